"""How much code an operation visits: ``python -m tests.visited [--json] [--files]``.

Runs a push, a pop and an ack of the synchronous client against a real node in this process, and
counts the files and functions of this project that each of them visits, in the client and in the
node together. Every operation runs once before the count, so that connecting and caching do not
count.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final
from unittest.mock import patch

import weft
from tests.costs.inside import Inside, opened

ROOT: Final = Path(weft.__file__).resolve().parents[1]
#: The node answers before its round has ended: the rest of the round is counted, too.
_ROUND_S: Final = 0.02
#: So many that work which merely coincides, on a busy machine, is not in all of them.
RUNS: Final = 15


class Visits:
    """Files and functions visited by the threads in which this profile function is set."""

    def __init__(self) -> None:
        self.counting, self.calls = False, 0
        self.functions: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if self.counting and event == "call":
            code = frame.f_code
            self.functions.add((code.co_filename, code.co_qualname))

    def of(self, operation: Callable[[], object]) -> set[tuple[str, str]]:
        """(file, function) of every run of an operation, with files named from the project's root.

        Work that happens to fall into a run, such as a timer, is not in all runs and is left out.
        """
        operation()
        runs = [self._run(operation) for _ in range(RUNS)]
        return set.intersection(*runs)

    def _run(self, operation: Callable[[], object]) -> set[tuple[str, str]]:
        time.sleep(_ROUND_S)
        self.functions = set()
        self.counting = True
        operation()
        time.sleep(_ROUND_S)
        self.counting = False
        return {
            (path.relative_to(ROOT).as_posix(), function)
            for path, function in ((Path(file).resolve(), name) for file, name in self.functions)
            if path.is_file()
            and path.is_relative_to(ROOT)
            and not path.is_relative_to(ROOT / "tests")
        }


@contextmanager
def _profiled(data: Path, visits: Visits) -> Iterator[Inside]:
    """A node whose threads, and this one, report to `visits`."""
    with patch("tests.costs.inside.Profile", lambda: visits), opened(data, relayed=False) as inside:
        sys.setprofile(visits)
        try:
            yield inside
        finally:
            sys.setprofile(None)


def measure() -> dict[str, set[tuple[str, str]]]:
    """The files and functions that each operation visits."""
    visits = Visits()
    with (
        tempfile.TemporaryDirectory() as data,
        _profiled(Path(data), visits) as inside,
        weft.connect(inside.address) as client,
    ):
        client.create_queue("q")
        queue = client.queue("q")
        queue.push_many([b"x"] * 100)
        held = [queue.pop() for _ in range(RUNS + 1)]

        def ack() -> None:
            message = held.pop()
            assert message is not None
            message.ack()

        return {
            "push": visits.of(lambda: queue.push(b"x")),
            "pop": visits.of(queue.pop),
            "ack": visits.of(ack),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--files", action="store_true", help="name the files, too")
    options = parser.parse_args()
    found = measure()
    counts = {
        name: {"files": len({file for file, _ in visited}), "functions": len(visited)}
        for name, visited in found.items()
    }
    if options.json:
        names = {name: sorted({file for file, _ in visited}) for name, visited in found.items()}
        more = {name: {"names": files} if options.files else {} for name, files in names.items()}
        print(json.dumps({name: counts[name] | more[name] for name in counts}, indent=1))
        return 0
    for name, count in counts.items():
        print(f"{name:5} {count['files']:3} files, {count['functions']:3} functions")
        if options.files:
            for file in sorted({file for file, _ in found[name]}):
                print(f"      {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

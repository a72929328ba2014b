"""`make bench`, or `python -m bench.peers`: compares Weft with its peers in one run."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from weft.client.cli.bench.machine import Machine

from . import plots, report, systems, workloads
from .arena import Arena
from .fetch import Missing
from .plan import Plan
from .process import ServerFailed
from .race import Race, available
from .server import Server
from .systems import System

OUT: Final = Path("bench/results/peers")
#: A document has the tables of a run between these two marker lines.
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
#: File systems in memory, on which a disk benchmark would be meaningless.
_IN_MEMORY: Final = {"tmpfs", "ramfs"}

_EPILOG: Final = """\
examples:
  make bench                                              everything; about an hour
  make bench ARGS="--quick"                               does it run here; some minutes
  make bench ARGS="--only W1 --systems weft-disk,redis-lists"
  make bench ARGS="--only W3,W4 --repeat 5 --out /tmp/bench"
"""


def main() -> None:
    options = _parser().parse_args()
    if options.list:
        _list()
        return
    with ended_by_signals():
        try:
            _run(options)
        except KeyboardInterrupt:
            sys.exit("stopped; every server that was started has been stopped, too")


def _run(options: argparse.Namespace) -> None:
    plan = _plan(options)
    wanted = [workloads.BY_NAME[name] for name in options.only]
    names = [name for name in options.systems if any(name in each.systems for each in wanted)]
    entrants = [systems.BY_NAME[name] for name in names]
    ready, skipped = available(entrants, may_fetch=not options.no_fetch, tell=tell)
    machine = Machine.here()
    with data_folder(options.data) as folder:
        arena = Arena(folder, tell)
        try:
            facts = {each.name: report.describe(each.name, _started(arena, each)) for each in ready}
            command = "make bench" + _arguments(sys.argv[1:])
            setting = report.Setting(command, machine, plan, filesystem_of(folder), facts, skipped)
            race = Race(arena, plan, ready, tell)
            try:
                race.run(wanted)
            finally:
                # Also after Ctrl-C, to keep the measurements so far.
                if race.results.measurements:
                    _write(setting, race, options.out, options.docs)
        finally:
            tell("stopping the servers")
            arena.close()


def _started(arena: Arena, system: System) -> Server | None:
    """Starts a single-node server to learn the version; other servers start on their turn."""
    if system.special:
        return system.server(arena.folder)
    try:
        return arena.server(system)
    except (ServerFailed, Missing, OSError) as error:
        tell(f"{system.name} did not start: {error}")
        return None


def _write(setting: report.Setting, race: Race, out: Path, docs: Path | None) -> None:
    out.mkdir(parents=True, exist_ok=True)
    text = report.markdown(setting, race.results)
    (out / "peers.md").write_text("# Weft beside its peers\n\n" + text, encoding="utf-8")
    record = as_lines(report.as_json(setting, race.results))
    (out / "peers.json").write_text(record, encoding="utf-8")
    pictures = plots.draw(race.results, out)
    print("\n" + report.must_reach(race.results) + "\n")
    drawn = f"{len(pictures)} pictures" if pictures else f"no pictures ({plots.why_none()})"
    tell(f"wrote {out / 'peers.md'}, peers.json and {drawn}")
    if docs is not None:
        docs.write_text(between(docs.read_text(encoding="utf-8"), text), encoding="utf-8")
        tell(f"put the tables into {docs}")


def as_lines(record: dict[str, Any]) -> str:
    """JSON with one line per measurement, so that two records can be compared with diff."""
    parts = []
    for key, value in record.items():
        if isinstance(value, list):
            rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in value)
            parts.append(
                f"{json.dumps(key)}: [\n  {rows}\n ]" if value else f"{json.dumps(key)}: []"
            )
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def between(document: str, text: str, first: str = BEGIN, last: str = END) -> str:
    """The document with the text between the two markers replaced."""
    head, begin, rest = document.partition(first)
    _, end, tail = rest.partition(last)
    if not begin or not end:
        raise SystemExit(f"the document needs the lines {first} and {last}, in this order")
    return f"{head}{first}\n{text}{last}{tail}"


def _plan(options: argparse.Namespace) -> Plan:
    plan = Plan.quick() if options.quick else Plan()
    given = {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(Plan)
        if getattr(options, field.name) is not None
    }
    return dataclasses.replace(plan, **given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make bench",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--only",
        type=names_among(list(workloads.BY_NAME)),
        default=list(workloads.BY_NAME),
        metavar="W1,W3",
        help="workloads; all by default",
    )
    add(
        "--systems",
        type=names_among(list(systems.BY_NAME)),
        default=list(systems.BY_NAME),
        metavar="A,B",
        help="systems; all by default",
    )
    add("--list", action="store_true", help="list workloads and systems, and end")
    add("--quick", action="store_true", help="a small run: to see that it works, not how fast")
    add("--repeat", type=positive, metavar="N", help="repetitions (3)")
    add("--seconds", type=float, metavar="S", help="of one throughput measurement (4)")
    add("--samples", type=positive, metavar="N", help="timed calls of W3 (3000)")
    add("--deep", type=positive, metavar="N", help="waiting messages of W7 (5000000)")
    add("--fill-s", type=float, metavar="S", help="W7 fills for this long at most (30)")
    add("--queues", type=positive, metavar="N", help="queues of W8 (1000)")
    add("--out", type=Path, default=OUT, metavar="DIR", help=f"where the results go ({OUT})")
    add("--docs", type=Path, metavar="FILE", help="also put the tables into this document")
    add("--data", type=Path, metavar="DIR", help="where servers keep their data (temporary)")
    add("--no-fetch", action="store_true", help="install nothing; skip what is not there")
    return parser  # fmt: skip


def names_among(known: list[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = [name for name in text.replace(" ", ",").split(",") if name]
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return names

    return parse


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def _list() -> None:
    for workload in workloads.ALL:
        print(f"{workload.name}  {workload.title}")
    print()
    for system in systems.ALL:
        print(f"{system.name:21} {system.durability}; {system.batching}")


def _arguments(given: Sequence[str]) -> str:
    return f" ARGS={shlex.quote(shlex.join(given))}" if given else ""


def tell(what: str) -> None:
    print(time.strftime("%H:%M:%S ") + what, flush=True)


@contextmanager
def data_folder(parent: Path | None) -> Iterator[Path]:
    """A temporary folder for the data of all servers."""
    folder = Path(tempfile.mkdtemp(prefix="weft-bench-", dir=parent)).absolute()
    try:
        if filesystem_of(folder) in _IN_MEMORY:
            tell(f"{folder} is in memory, not on a disk: use --data for a folder on a disk")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def filesystem_of(folder: Path) -> str:
    """The file system that a folder is on."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, name, *_ = line.split()
        if len(place) >= len(best) and folder.is_relative_to(place):
            best, kind = place, name
    return kind


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Handles SIGHUP and SIGTERM like Ctrl-C, so that the run cleans up."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""``python -m tests.costs``: every figure beside its bound; ``--write`` makes them the bounds."""

from __future__ import annotations

import argparse
import math
import re
import sys
import tempfile
from pathlib import Path
from typing import Final

from . import bounds, copies, fanout, grpc_calls, inside, instructions, ratios, system, task_map
from .operations import Plan

#: Headroom of a bound over the measured figure, by the beginning of the counter's name.
_EXACT: Final = ("messages", "frames", "store writes", "keys", "syncs")
_HEADROOM: Final = {
    "instructions": 1.3,
    # Whether a write must wake a thread depends on whether the thread already sleeps.
    "reads and writes": 1.3,
    "bytes written, client": 1.3,
    "bytes read": 1.3,
    "time in floors": 2.75,
    "CPU in floors": 2.0,
}
_USUAL: Final = 1.15


def everything() -> dict[str, float]:
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found |= inside.measure(folder / "inside", Plan())
        found |= fanout.measure(folder / "fanout")
        found |= task_map.measure(folder / "tasks")
        found |= grpc_calls.measure(folder / "grpc")
        with system.pair(Plan(100, 30)) as (node, caller):
            found |= system.books(node, caller)
            try:
                found |= system.traced(node, caller)
            except system.NoStrace as why:
                print(why, file=sys.stderr)
        try:
            found |= instructions.measure(folder)
        except instructions.NoCallgrind as why:
            print(why, file=sys.stderr)
        found |= copies.measure(folder / "copies")
    return found | ratios.measure()


def bound_of(name: str, figure: float) -> float:
    """The bound for a measured figure."""
    counter = name.partition(": ")[2]
    if counter.startswith(_EXACT):
        return math.ceil(figure - bounds.STRAY)
    headroom = next((h for start, h in _HEADROOM.items() if counter.startswith(start)), _USUAL)
    most = figure * headroom
    if most >= 10:
        return math.ceil(most)
    return math.ceil(most * 1000) / 1000


def write(found: dict[str, float]) -> None:
    path = Path(bounds.__file__)
    table = bounds.BOUNDS | {name: bound_of(name, figure) for name, figure in found.items()}
    rows = "".join(f'    "{name}": {most:_},\n' for name, most in table.items())
    text = path.read_text(encoding="utf-8")
    begin = re.search(r"^BOUNDS: .*= \{", text, re.MULTILINE)
    assert begin is not None
    path.write_text(text[: begin.end()] + "\n" + rows + "}\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.costs", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the figures into bounds.py")
    asked = parser.parse_args()
    found = everything()
    over = 0
    for name, figure in found.items():
        most = bounds.BOUNDS.get(name)
        over += most is None or figure > most + bounds.STRAY
        said = (
            "no bound"
            if most is None
            else f"{most:12,.3f}{'  OVER' if figure > most + bounds.STRAY else ''}"
        )
        print(f"{name:45} {figure:12,.3f} {said}")
    if asked.write:
        write(found)
        return 0
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())

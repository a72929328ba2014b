"""Runs scenarios against real clusters under load: one line for each run, then a table.

No acknowledged message may be lost, none delivered again after its ack was confirmed, none stored
twice; and where a node fails, no producer may wait for more than three seconds.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests import node_packages
from tests.process.netns import why_not
from tools.languages.build_cache import Missing

from .launch import one_run
from .outcome import Outcome
from .scenario import FAULT_S, FAULT_S_QUICK, SCENARIOS
from .table import good, markdown, summary


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that child processes are ended
    asked = _arguments()
    names: list[str] = asked.scenario or list(SCENARIOS)
    names = _runnable(names)
    asked.keep.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    for number in range(asked.runs):  # in turns: other load affects all scenarios alike
        for name in names:
            seed = secrets.randbelow(1 << 31) if asked.seed is None else asked.seed + number
            folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=asked.keep))
            outcome = one_run(name, seed, folder, quick=asked.quick)
            outcomes.append(outcome)
            print(f"{number + 1:>3} {outcome.line()}", flush=True)
            if outcome.ok and not outcome.slow:
                shutil.rmtree(folder)
            else:
                print(f"  kept: {folder}", flush=True)
            if asked.json:
                _save(asked.json, names, outcomes)
    rows = _rows(names, outcomes)
    print("\n" + markdown(rows, FAULT_S_QUICK if asked.quick else FAULT_S))
    return 0 if all(map(good, rows)) else 1


def _runnable(names: list[str]) -> list[str]:
    """The scenarios that can run here; prints the reason for each other one."""
    reasons: dict[str, str] = {}
    if any(SCENARIOS[name].hosts for name in names) and (reason := why_not()):
        reasons = {name: reason for name in names if SCENARIOS[name].hosts}
    if any(SCENARIOS[name].node_js for name in names):
        try:
            node_packages.environment()
        except Missing as why:
            reasons |= {name: str(why) for name in names if SCENARIOS[name].node_js}
    for name, why_left_out in reasons.items():
        print(f"left out: {name}: {why_left_out}", flush=True)
    return [name for name in names if name not in reasons]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument(
        "scenario", nargs="*", help=f"which ones, all by default: {', '.join(SCENARIOS)}"
    )
    parser.add_argument("--runs", type=int, default=10, help="of each scenario; default 10")
    parser.add_argument("--quick", action="store_true", help="short pauses and cuts")
    parser.add_argument("--seed", type=int, help="of the first run; random by default")
    parser.add_argument("--json", type=Path, help="a file for all outcomes, written as they come")
    parser.add_argument(
        "--keep", type=Path, default=Path(tempfile.gettempdir()) / "weft-chaos",
        help="where failed and slow runs leave their journals, logs and data",
    )  # fmt: skip
    asked = parser.parse_args()
    unknown = set(asked.scenario) - SCENARIOS.keys()
    if unknown:
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    return asked


def _rows(names: Sequence[str], outcomes: Sequence[Outcome]) -> list[dict[str, object]]:
    found = {name: [each for each in outcomes if each.scenario == name] for name in names}
    return [summary(name, runs) for name, runs in found.items() if runs]


def _save(path: Path, names: Sequence[str], outcomes: Sequence[Outcome]) -> None:
    runs = [msgspec.to_builtins(each) for each in outcomes]
    path.write_text(json.dumps({"table": _rows(names, outcomes), "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())

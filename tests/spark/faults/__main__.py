"""Runs the scenarios: one line for each, then a table for docs/spark.md.

In each, two queries run, one into a queue and one into Parquet. Every pushed message must be in
each of them exactly once, and nothing may be left reserved, waiting or staged.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.spark.session import why_no_java

from .outcome import Outcome, judged, markdown
from .scenario import SCENARIOS

MESSAGES_DEFAULT = 6000


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that child processes are ended
    asked = _arguments()
    if reason := why_no_java():
        print(reason)
        return 1
    outcomes: list[Outcome] = []
    for name in asked.scenario or SCENARIOS:
        folder = Path(tempfile.mkdtemp(prefix=f"spark-faults-{name}-"))
        began = time.monotonic()
        outcome = judged(SCENARIOS[name], folder, asked.messages)
        outcomes.append(outcome)
        print(f"{outcome.line()}  {time.monotonic() - began:.0f} s", flush=True)
        if outcome.ok:
            shutil.rmtree(folder)
        else:
            print(f"  kept: {folder}", flush=True)
        if asked.json:
            asked.json.write_text(json.dumps([each.plain() for each in outcomes], indent=1) + "\n")
    print("\n" + markdown(outcomes))
    return 0 if all(each.ok for each in outcomes) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.faults", description=__doc__)
    parser.add_argument("scenario", nargs="*", help=f"all by default: {', '.join(SCENARIOS)}")
    parser.add_argument("--messages", type=int, default=MESSAGES_DEFAULT, help="pushed at a time")
    parser.add_argument("--json", type=Path, help="a file for all outcomes, written as they come")
    asked = parser.parse_args()
    if unknown := set(asked.scenario) - SCENARIOS.keys():
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    return asked


if __name__ == "__main__":
    sys.exit(main())

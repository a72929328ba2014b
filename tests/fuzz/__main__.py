"""Fuzzes all ports of a real cluster, kind after kind, until the time is over; prints the counts.

The program ends at the first case that does harm, with that case in its smallest form.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, given, settings

from .cases import KINDS
from .target import Target, target

BATCH: Final = 250
_TELL_S: Final = 60.0


def fuzz(found: Target, kind: str, counts: Counter[str], until: float) -> None:
    """One batch of fresh cases of one kind, then a check of the whole target."""
    strategy, check = KINDS[kind]

    @settings(
        max_examples=BATCH, deadline=None, database=None,
        suppress_health_check=list(HealthCheck), print_blob=False,
    )  # fmt: skip
    @given(strategy)
    def run(case: Any) -> None:
        if time.monotonic() < until:
            counts[kind] += 1
            check(found, case)

    run()
    found.intact()


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--json", type=Path, help="a file for the counts")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only this, or these")
    asked = parser.parse_args()
    began = told = time.monotonic()
    until = began + 60 * asked.minutes
    counts: Counter[str] = Counter()
    with target() as found:
        while time.monotonic() < until:
            for kind in asked.kind or KINDS:
                fuzz(found, kind, counts, until)
                if time.monotonic() - told > _TELL_S:
                    told = time.monotonic()
                    print(f"{told - began:6.0f} s  {counts.total():,} cases", flush=True)
    minutes = (time.monotonic() - began) / 60
    for kind in KINDS:
        print(f"{counts[kind]:>10,}  {kind}")
    print(f"{counts.total():>10,}  in {minutes:.1f} minutes; no harm was done")
    if asked.json:
        told_of = {"minutes": round(minutes, 1), "total": counts.total(), "kinds": dict(counts)}
        asked.json.write_text(json.dumps(told_of, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

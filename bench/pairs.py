"""Two versions in turns: batch throughput (W1) and single calls (W3) against another checkout.

    python bench/pairs.py CHECKOUT [--pairs 9] [--messages 1000000] [--durability disk] [--json]

Each pair runs `weft bench --own` once with this checkout and once with the other, which has its own
`.venv`; the order alternates, so that neither version always meets the warmer machine. A shared
machine changes its speed from minute to minute, so the figure to read is the ratio within a pair:
the program prints its median over all pairs, and its range.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parents[1]
#: Name, place in the JSON of `weft bench`, and whether more is better.
FIGURES: Final = (
    ("W1, messages/s", ("throughput", "messages_per_s"), True),
    ("W1, node's CPU, us a message", ("throughput", "server_cpu_us"), False),
    ("W3, push p50, us", ("latency", "push_us", "p50"), False),
    ("W3, pop and ack p50, us", ("latency", "pop_ack_us", "p50"), False),
)


def run(checkout: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """One run of `weft bench` of a checkout, with its node's data in a temporary folder."""
    command = [
        str(checkout / ".venv" / "bin" / "weft"), "bench", "--own", "--json", "--repeat", "1",
        "--messages", str(asked.messages), "--samples", str(asked.samples),
        "--durability", asked.durability,
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr.strip()}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def figure(result: dict[str, Any], place: tuple[str, ...]) -> float:
    value: Any = result
    for key in place:
        value = value[key]
    return float(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path, help="the other version, with its own .venv")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--durability", choices=("disk", "os"), default="disk")
    parser.add_argument("--json", action="store_true", help="print JSON")
    asked = parser.parse_args()
    versions = {"here": HERE, "other": asked.checkout.resolve()}
    pairs: list[dict[str, dict[str, Any]]] = []
    for number in range(asked.pairs):
        order = list(versions) if number % 2 == 0 else list(reversed(versions))
        pairs.append({name: run(versions[name], asked) for name in order})
        print(f"pair {number + 1} of {asked.pairs}", file=sys.stderr)
    report = {}
    for name, place, _ in FIGURES:
        here = [figure(pair["here"], place) for pair in pairs]
        other = [figure(pair["other"], place) for pair in pairs]
        ratios = [mine / theirs for mine, theirs in zip(here, other, strict=True)]
        report[name] = {
            "here": statistics.median(here), "other": statistics.median(other),
            "ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios),
        }  # fmt: skip
    if asked.json:
        print(json.dumps(report, indent=1))
        return 0
    print(f"{asked.pairs} pairs, {asked.messages} messages, {asked.durability}")
    print(f"{'':30} {'here':>12} {'other':>12} {'ratio':>7}  range")
    for name, _, more in FIGURES:
        row = report[name]
        better = "more" if more else "less"
        print(
            f"{name:30} {row['here']:12.2f} {row['other']:12.2f} {row['ratio']:7.3f}"
            f"  {row['least']:.2f}-{row['most']:.2f}, {better} is better"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How fair the credit scheduler is: errors of the served rates over random configurations.

`python -m bench.fair --virtual --configs 200` runs paper 2's experiment of section IV-C in virtual
time, deterministic by seed: ten tasks with random shares and offered rates, items of unequal cost,
twice the capacity offered. The reset as printed runs beside the reset that carries debt over.
Without `--virtual` the experiment runs on a real node, with ten queues in each configuration
(`fair_node.py`); `--costs` prints what the node charges for pushes of several sizes, beside what
they cost; `--quiet` prints the latency of a quiet queue beside a noisy one; `--flood` floods three
nodes and counts suspicions and changes of the view.
`--threads` runs the lock-free protocol with real threads: those figures depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import random
import sys

from bench import fair_node
from weft.models.credit_threads import run_threads
from weft.models.shares import RULES, random_tasks, simulate

#: Section IV-C counts the configurations below this error.
CLOSE = 0.10
#: The same where every queue gets all that it wants.
CLOSE_UNSATURATED = 0.02
#: Section II's example.
SHARES = (0.5, 0.3, 0.2)


def errors(rule: str, configs: int, seconds: float, schedulers: int, seed: int) -> list[float]:
    rng = random.Random(seed)
    found = []
    for number in range(configs):
        tasks = random_tasks(rng, overload=2.0 * schedulers)
        run = simulate(tasks, seconds, seed=seed + number, schedulers=schedulers, rule=RULES[rule])
        found.append(run.error)
    return sorted(found)


def virtual(given: argparse.Namespace) -> list[dict[str, float | str]]:
    rows: list[dict[str, float | str]] = []
    for rule in RULES:
        found = errors(rule, given.configs, given.seconds, given.schedulers, given.seed)
        rows.append({
            "reset": rule,
            "configurations": len(found),
            "median": found[len(found) // 2],
            "p95": found[int(0.95 * (len(found) - 1))],
            "worst": found[-1],
            "below_10_percent": sum(each < CLOSE for each in found) / len(found),
        })  # fmt: skip
    return rows


def threads(given: argparse.Namespace) -> list[dict[str, float | str]]:
    run = run_threads(SHARES, schedulers=given.schedulers, events=1_000, seconds=given.seconds)
    return [
        {"share": share, "served": part, "items": float(items), "lost": float(run.lost)}
        for share, part, items in zip(SHARES, run.parts, run.processed, strict=True)
    ]


def real(given: argparse.Namespace) -> list[dict[str, float | str]]:
    rows: list[dict[str, float | str]] = []
    for name, measure, close in (
        ("saturated", fair_node.saturated, CLOSE),
        ("unsaturated", fair_node.unsaturated, CLOSE_UNSATURATED),
    ):
        configs = given.configs if name == "saturated" else min(given.configs, 5)
        found = measure(configs, given.seconds, given.seed)
        rows.append({
            "load": name,
            "configurations": len(found),
            "median": found[len(found) // 2],
            "p95": found[int(0.95 * (len(found) - 1))],
            "worst": found[-1],
            f"below_{close:.0%}": sum(each < close for each in found) / len(found),
        })  # fmt: skip
    return rows


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.fair", description=__doc__)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--virtual", action="store_true", help="in virtual time")
    how.add_argument("--threads", action="store_true", help="with real threads")
    how.add_argument("--costs", action="store_true", help="what a node charges, beside the costs")
    how.add_argument("--flood", action="store_true", help="a flood of three nodes: no view changes")
    how.add_argument("--quiet", action="store_true", help="a quiet queue beside a noisy one")
    parser.add_argument("--configs", type=int, default=200, help="random configurations")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each run")
    parser.add_argument("--schedulers", type=int, default=1, help="scheduling threads")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(words)
    if given.configs < 1 or given.seconds <= 0 or given.schedulers < 1:
        parser.error("--configs, --seconds and --schedulers must be positive")
    rows = (
        virtual(given) if given.virtual
        else threads(given) if given.threads
        else fair_node.costs(given.seconds) if given.costs
        else fair_node.flood(given.seconds) if given.flood
        else fair_node.quiet(given.seconds) if given.quiet
        else real(given)
    )  # fmt: skip
    if given.json:
        print(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        cells = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
        print("  ".join(cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())

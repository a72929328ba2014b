"""``python -m tests.sim --seeds 2000`` or ``--seed 130``: what ``make sim`` runs."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from .run import simulate, try_seed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many fresh seeds")
    parser.add_argument("--seed", type=int, help="one seed, its story printed")
    parser.add_argument("--whole", action="store_true", help="with --seed: of the one, full size")
    parser.add_argument("--first", type=int, help="the first of the seeds; random by default")
    asked = parser.parse_args()
    if asked.seed is not None:
        world = simulate(asked.seed, whole=asked.whole)
        print("\n".join(world.story[-100:]))
        print(f"seed {asked.seed}: no violation, {world.options}, digest {world.digest}")
        return 0
    first = secrets.randbits(40) if asked.first is None else asked.first
    start = time.monotonic()
    failed = run_many(first, asked.seeds)
    seconds = time.monotonic() - start
    print(f"{asked.seeds} seeds from {first} in {seconds:.0f} s: {len(failed)} with a violation")
    return 1 if failed else 0


def run_many(first: int, count: int) -> list[tuple[int, str]]:
    """Seeds from `first` on, on all cores; those that showed something, and what."""
    failed: list[tuple[int, str]] = []
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        seeds = range(first, first + count)
        for done, (seed, error) in enumerate(pool.map(try_seed, seeds, chunksize=8), 1):
            if error:
                failed.append((seed, error))
                print(f"\n{error}", flush=True)
            if sys.stderr.isatty():
                print(f"\r{done} of {count} seeds", end="", file=sys.stderr, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())

"""The simulator, as ``make sim`` runs it: ``python -m tests.sim --seeds 2000`` or ``--seed 130``.

A long run is split into pieces. With ``--log`` each finished piece is appended to a file; a run
started again with the same file resumes after the last piece. ``python -m tests.sim --seeds 100000
--jobs 1 --log FILE``.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from .run import simulate, try_seed

#: Seeds per line of the log.
PIECE = 500


class Piece(NamedTuple):
    """A range of seeds that ran, stored as one line of the log."""

    first: int
    seeds: int
    seconds: float
    #: Seeds with a violation, each with the first line of its error.
    failed: list[tuple[int, str]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=200, help="how many fresh seeds")
    parser.add_argument("--seed", type=int, help="one seed, its story printed")
    parser.add_argument("--whole", action="store_true", help="with --seed: of the one, full size")
    parser.add_argument("--first", type=int, help="the first of the seeds; random by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at one time")
    parser.add_argument("--log", type=Path, help="where a long run is written down, to go on later")
    asked = parser.parse_args()
    if asked.seed is not None:
        world = simulate(asked.seed, whole=asked.whole)
        print("\n".join(world.story[-100:]))
        print(f"seed {asked.seed}: no violation, {world.options}, digest {world.digest}")
        return 0
    done = read_log(asked.log) if asked.log is not None and asked.log.exists() else []
    first = asked.first if asked.first is not None else secrets.randbits(40)
    if done:
        first = done[0].first
    with _pool(asked.jobs) as pool:
        for start in range(first + sum(piece.seeds for piece in done), first + asked.seeds, PIECE):
            count = min(PIECE, first + asked.seeds - start)
            done.append(_piece(pool, start, count))
            if asked.log is not None:
                with asked.log.open("a") as log:
                    log.write(json.dumps(done[-1]) + "\n")
    failed = [each for piece in done for each in piece.failed]
    seconds = sum(piece.seconds for piece in done)
    count = sum(piece.seeds for piece in done)
    print(f"{count} seeds from {first} in {seconds:.0f} s: {len(failed)} with a violation")
    return 1 if failed else 0


def read_log(path: Path) -> list[Piece]:
    """Read the pieces of an earlier run; the pieces must be contiguous."""
    pieces: list[Piece] = []
    for line in path.read_text().splitlines():
        first, count, seconds, failed = json.loads(line)
        expected = pieces[-1].first + pieces[-1].seeds if pieces else first
        if first != expected:
            raise SystemExit(f"{path}: a piece from {first}, where {expected} should come")
        pieces.append(Piece(first, count, seconds, [(seed, what) for seed, what in failed]))
    return pieces


def run_many(first: int, count: int) -> list[tuple[int, str]]:
    """Run `count` seeds from `first` on, on all cores; return failed seeds with their errors."""
    with _pool(os.cpu_count() or 1) as pool:
        return list(_failed(pool, first, count))


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor | None]:
    """A process pool that runs seeds; with one job, None: the seeds run in the calling process."""
    if jobs == 1:
        yield None
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield pool


def _piece(pool: ProcessPoolExecutor | None, first: int, count: int) -> Piece:
    start = time.monotonic()
    failed = [(seed, error.splitlines()[0]) for seed, error in _failed(pool, first, count)]
    return Piece(first, count, round(time.monotonic() - start, 1), failed)


def _failed(pool: ProcessPoolExecutor | None, first: int, count: int) -> Iterator[tuple[int, str]]:
    seeds = range(first, first + count)
    tried = map(try_seed, seeds) if pool is None else pool.map(try_seed, seeds, chunksize=8)
    for done, (seed, error) in enumerate(tried, 1):
        if error:
            print(f"\n{error}", flush=True)
            yield seed, error
        if sys.stderr.isatty():
            print(f"\r{done} of {count} seeds", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

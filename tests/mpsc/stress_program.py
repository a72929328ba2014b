"""One rank of the MPI stress test: random calls, each recorded with its times.

The clock is the machine's monotonic one, which all ranks of a single host share, so the histories
of the ranks can be checked together. Usage: stress_program.py ALGORITHM SEED ITEMS
(direct|pure|mixed) FOLDER
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

from mpi4py import MPI

from weft.mpsc import Dequeuer, Enqueuer, create


def enqueue(enqueuer: Enqueuer, rank: int, items: int, dice: random.Random) -> list[object]:
    calls: list[object] = []
    done = 0
    while done < items:
        size = min(items - done, dice.choice((1, 1, 1, 2, 5)))
        values = [f"{rank}:{done + at}".encode().ljust(dice.randint(8, 16)) for at in range(size)]
        began = time.monotonic_ns()
        taken = enqueuer.enqueue_many(values) if size > 1 else int(enqueuer.enqueue(values[0]))
        ended = time.monotonic_ns()
        if taken:
            calls.append([[value.decode().strip() for value in values[:taken]], began, ended])
        else:
            time.sleep(0.0002)
        done += taken
        if dice.random() < 0.02:
            time.sleep(0.001)
    enqueuer.close()
    return calls


def dequeue(dequeuer: Dequeuer, dice: random.Random) -> list[object]:
    calls: list[object] = []
    while not dequeuer.drained():
        count = dice.choice((1, 1, 3, 64))
        began = time.monotonic_ns()
        if count == 1:
            item = dequeuer.dequeue()
            items = [] if item is None else [item]
        else:
            items = dequeuer.dequeue_many(count)
        ended = time.monotonic_ns()
        calls.append([[item.decode().strip() for item in items], began, ended])
        if not items:
            time.sleep(0.0002)
    return calls


def main(algorithm: str, seed: int, items: int, way: str, folder: Path) -> None:
    comm = MPI.COMM_WORLD
    rank, size = comm.Get_rank(), comm.Get_size()
    dice = random.Random(seed * 1000 + rank)
    dequeuer = random.Random(seed).randrange(size)
    with create(
        comm,
        algorithm=algorithm,
        dequeuer=dequeuer,
        capacity=random.Random(seed).choice((4, 37, 256)),
        item_bytes=16,
        variable=True,
        # Mixed: some reach the others' memory directly, as if they shared a machine, some do not.
        direct=way == "direct" or (way == "mixed" and rank % 2 == 0),
    ) as job:
        if job.dequeuer is not None:
            calls = dequeue(job.dequeuer, dice)
        else:
            calls = enqueue(job.enqueuer, rank, items, dice)
    name = "dequeuer" if rank == dequeuer else f"enqueuer-{rank}"
    (folder / f"{name}.json").write_text(json.dumps(calls))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], Path(sys.argv[5]))

"""Processor time of single operations of the MPI window, and of calls of the queues on it.

    mpiexec -n 2 python bench/mpsc_operations.py

Two ranks take turns, so no call waits for the other rank. Each result is nanoseconds of processor
time per operation, the minimum of three repeats. To compare two versions, alternate several runs of
each: the machine's clock rate and other load change between runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from mpi4py import MPI

from weft.mpsc import Job, create
from weft.mpsc.mpi import MpiWindow, wait_for_all

REPEATS = 3
OPERATIONS = 20_000
ITEMS = 6_000
ITEM = bytes(8)
DEQUEUER, ENQUEUER = 0, 1


def cpu_ns(count: int, operation: Callable[[], object]) -> float:
    began = time.process_time_ns()
    for _ in range(count):
        operation()
    return (time.process_time_ns() - began) / count


def window_figures(comm: MPI.Intracomm) -> dict[str, float]:
    """Costs of the window's operations for rank 0."""
    window = MpiWindow(comm, 1024)
    operations: dict[str, Callable[[], object]] = {
        "load, own": lambda: window.load(0, 3),
        "load of 8 words, own": lambda: window.load_range(0, 3, 8),
        "store, own": lambda: window.store(0, 3, 1),
        "load, other rank": lambda: window.load(1, 3),
        "fetch-add, other rank": lambda: window.fetch_add(1, 4, 1),
        "compare-swap, own": lambda: window.compare_swap(0, 5, 0, 0),
    }
    figures = {}
    if window.rank == 0:
        for name, operation in operations.items():
            figures[name] = min(cpu_ns(OPERATIONS, operation) for _ in range(REPEATS))
    window.free()
    return figures


def dequeue_all(job: Job, batched: bool) -> None:
    left = ITEMS
    while left:
        if batched:
            left -= len(job.dequeuer.dequeue_many(ITEMS))
        else:
            assert job.dequeuer.dequeue() is not None
            left -= 1


def queue_figures(comm: MPI.Intracomm, algorithm: str, batched: bool) -> dict[str, float]:
    """Costs per item: enqueues for rank 1, dequeues for rank 0."""
    rank = comm.Get_rank()
    job = create(comm, algorithm=algorithm, capacity=ITEMS, item_bytes=len(ITEM))
    enqueues, dequeues = [], []
    for _ in range(REPEATS):
        if rank == ENQUEUER:
            enqueues.append(cpu_ns(ITEMS, lambda: job.enqueuer.enqueue(ITEM)))
        wait_for_all(comm)
        if rank == DEQUEUER:
            dequeues.append(cpu_ns(1, lambda: dequeue_all(job, batched)) / ITEMS)
        wait_for_all(comm)
    job.close()
    enqueue = comm.bcast(min(enqueues, default=0.0), ENQUEUER)
    way = ", batched" if batched else ""
    if rank != DEQUEUER:
        return {}
    return {f"{algorithm}, enqueue{way}": enqueue, f"{algorithm}, dequeue{way}": min(dequeues)}


def main() -> None:
    comm = MPI.COMM_WORLD
    figures = window_figures(comm)
    for algorithm in ("slotqueue", "sweepqueue", "dltqueue", "dltqueue2", "spsc"):
        figures |= queue_figures(comm, algorithm, batched=False)
    for algorithm in ("slotqueue", "sweepqueue", "spsc"):
        batched = queue_figures(comm, algorithm, batched=True)
        figures |= {name: figure for name, figure in batched.items() if "dequeue" in name}
    if comm.Get_rank() == 0:
        print(json.dumps({name: round(figure) for name, figure in figures.items()}, indent=1))


if __name__ == "__main__":
    main()

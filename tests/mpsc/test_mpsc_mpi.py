"""Real MPI processes on this machine, started with the mpiexec of the mpich wheel."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from tests.mpsc.history import Dequeue, Enqueue, violation
from tests.mpsc.mpi_job import MEMORIES, run
from tests.mpsc.window_contract import CHECKS, WAYS


@pytest.mark.parametrize("memory", MEMORIES)
def test_the_mpi_window_keeps_the_contract(memory: str) -> None:
    options = ["--apart"] if memory == "apart" else []
    output = run(2, "window_contract.py", *options, memory=memory)
    for way, name in itertools.product(WAYS, CHECKS):
        assert output.count(f"passed {way} {name}") == 2


def read(folder: Path) -> tuple[list[Enqueue], list[Dequeue]]:
    enqueues = []
    for actor, path in enumerate(sorted(folder.glob("enqueuer-*.json"))):
        for values, began, ended in json.loads(path.read_text()):
            items = tuple(value.encode() for value in values)
            enqueues.append(Enqueue(actor, items, began, ended, len(items)))
    dequeues = [
        Dequeue(-1, tuple(value.encode() for value in values), began, ended)
        for values, began, ended in json.loads((folder / "dequeuer.json").read_text())
    ]
    return enqueues, dequeues


MANY = ("dltqueue", "dltqueue2", "slotqueue", "sweepqueue", "amqueue")
CASES = [("spsc", 2, 1500, "direct"), ("spsc", 2, 1500, "pure")] + [
    (algorithm, ranks, 2400 // ranks, way)
    for algorithm in MANY
    for ranks, way in ((2, "direct"), (4, "direct"), (8, "direct"), (4, "pure"), (4, "mixed"))
]


@pytest.mark.parametrize(("algorithm", "ranks", "items", "way"), CASES)
def test_nothing_is_lost_doubled_or_out_of_order(
    algorithm: str, ranks: int, items: int, way: str, tmp_path: Path
) -> None:
    run(ranks, "stress_program.py", algorithm, str(ranks), str(items), way, str(tmp_path))
    check(tmp_path, items * (ranks - 1))


@pytest.mark.parametrize(("algorithm", "ranks"), [("spsc", 2), *((name, 3) for name in MANY)])
def test_ranks_that_share_no_memory_make_progress(
    algorithm: str, ranks: int, tmp_path: Path
) -> None:
    arguments = (algorithm, str(ranks), "100", "direct", str(tmp_path))
    run(ranks, "stress_program.py", *arguments, memory="apart")
    check(tmp_path, 100 * (ranks - 1))


def test_operations_on_a_computing_rank_complete(tmp_path: Path) -> None:
    """Without the thread of ``progress.py`` the operations would wait for the rank's next call."""
    run(2, "compute_program.py", str(tmp_path), memory="apart")


def check(folder: Path, items: int) -> None:
    enqueues, dequeues = read(folder)
    out = [value for call in dequeues for value in call.values]
    assert len(out) == items
    assert set(out) == {value for call in enqueues for value in call.values}
    assert violation(enqueues, dequeues) is None

"""The real thing: MPI processes on this machine, started with the mpiexec of the mpich wheel."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mpsc.history import Dequeue, Enqueue, violation
from tests.mpsc.window_contract import CHECKS, WAYS

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
#: A run takes about two seconds; a hang must not eat the time of the others.
RUN_SECONDS_MAX = 200


def mpiexec() -> str:
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    assert found, "no mpiexec: pip install 'weft[mpi]' brings one"
    return found


def run(ranks: int, program: str, *arguments: str) -> str:
    command = [mpiexec(), "-n", str(ranks), sys.executable, str(HERE / program), *arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        output, _ = process.communicate(timeout=RUN_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.terminate()  # mpiexec takes its ranks with it
        output, _ = process.communicate()
        pytest.fail(f"{' '.join(command)} did not end:\n{output[-2000:]}")
    assert process.returncode == 0, output[-4000:]
    return output


def test_the_mpi_window_keeps_the_contract() -> None:
    output = run(2, "window_contract.py")
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


CASES = [("spsc", 2, 1500, "direct"), ("spsc", 2, 1500, "pure")] + [
    (algorithm, ranks, 2400 // ranks, way)
    for algorithm in ("dltqueue", "dltqueue2", "slotqueue", "sweepqueue", "amqueue")
    for ranks, way in ((2, "direct"), (4, "direct"), (8, "direct"), (4, "pure"), (4, "mixed"))
]


@pytest.mark.parametrize(("algorithm", "ranks", "items", "way"), CASES)
def test_nothing_is_lost_doubled_or_out_of_order(
    algorithm: str, ranks: int, items: int, way: str, tmp_path: Path
) -> None:
    run(ranks, "stress_program.py", algorithm, str(ranks), str(items), way, str(tmp_path))
    enqueues, dequeues = read(tmp_path)
    out = [value for call in dequeues for value in call.values]
    assert len(out) == items * (ranks - 1)
    assert set(out) == {value for call in enqueues for value in call.values}
    assert violation(enqueues, dequeues) is None

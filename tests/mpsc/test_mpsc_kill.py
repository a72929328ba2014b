"""SIGKILL at random steps of a producer, on real MPI; `tests.mpsc.kill_stress` runs many more."""

from __future__ import annotations

import pytest

from tests.mpsc.kill_stress import run_once
from tests.mpsc.mpi_job import MEMORIES

pytestmark = pytest.mark.process


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize(("algorithm", "seed"), [("slotqueue", 1), ("dltqueue2", 2)])
def test_a_queue_is_drained_after_a_producer_was_killed(
    algorithm: str, seed: int, memory: str
) -> None:
    assert run_once(algorithm, memory, seed) == ""

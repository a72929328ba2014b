"""The cluster under faults: fresh seeds, every seed that ever failed, and determinism of a seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.__main__ import run_many
from tests.sim.fresh import first_seed
from tests.sim.options import Options
from tests.sim.run import simulate

#: (seed, whether it has the fixed size that all runs once had)
KEPT = [
    (int(line.split()[0]), line.split()[1] == "whole")
    for line in Path(__file__).with_name("kept_seeds.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
#: Fresh seeds of a version of the code (``fresh.py``); `make sim SEEDS=n` draws others, and more.
FRESH = int(os.environ.get("WEFT_SIM_SEEDS", "2000"))


@pytest.mark.timeout(900)
def test_fresh_seeds() -> None:
    failed = run_many(first_seed(), FRESH)
    assert not failed, "\n\n".join(error for _, error in failed)


@pytest.mark.parametrize(("seed", "whole"), KEPT)
def test_kept_seeds(seed: int, whole: bool) -> None:
    simulate(seed, whole=whole)


def test_a_seed_is_a_run() -> None:
    assert simulate(7).digest == simulate(7).digest
    assert simulate(7).digest != simulate(8).digest


def test_a_seed_is_the_same_run_in_every_process() -> None:
    """No choice of the core may depend on the order of a set of strings."""
    program = (
        "from tests.sim.run import simulate; print(*(simulate(s).digest for s in (17, 21, 45)))"
    )

    def digests(hash_seed: str) -> bytes:
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        root = Path(__file__).parents[2]
        return subprocess.check_output([sys.executable, "-c", program], env=environment, cwd=root)

    assert len({digests(hash_seed) for hash_seed in "0123"}) == 1


def test_the_faults_are_real() -> None:
    """A simulator without views, failovers and crashes would find nothing."""
    worlds = [simulate(seed) for seed in range(8)]
    assert sum(len(world.checker.active) for world in worlds) > 40
    crashes = [machine.boots - 1 for world in worlds for machine in world.machines.values()]
    assert sum(crashes) > 8
    assert all(world.checker.ledger.acked for world in worlds)


def test_one_node_alone_serves() -> None:
    world = simulate(1, Options(nodes=1, partitions=2, pushes=20, cuts=False))
    assert world.checker.ledger.acked

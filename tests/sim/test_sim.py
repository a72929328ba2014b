"""The cluster's core under faults: fresh seeds, every seed that ever failed, and planted bugs."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from .check import Violation
from .run import simulate
from .world import Options

KEPT = [
    int(line.split()[0])
    for line in Path(__file__).with_name("kept_seeds.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
#: Fresh seeds in one run of the tests; `make sim SEEDS=n` runs more.
FRESH = int(os.environ.get("WEFT_SIM_SEEDS", "120"))


def test_fresh_seeds() -> None:
    first = secrets.randbits(40)
    for seed in range(first, first + FRESH):
        simulate(seed)


@pytest.mark.parametrize("seed", KEPT)
def test_kept_seeds(seed: int) -> None:
    simulate(seed)


def test_a_seed_is_a_run() -> None:
    assert simulate(7).digest == simulate(7).digest
    assert simulate(7).digest != simulate(8).digest


def test_the_faults_are_real() -> None:
    """A simulator without views, failovers and crashes would find nothing either."""
    worlds = [simulate(seed) for seed in range(8)]
    assert sum(len(world.checker.active) for world in worlds) > 40
    crashes = [machine.boots - 1 for world in worlds for machine in world.machines.values()]
    assert sum(crashes) > 8
    assert all(world.checker.acked for world in worlds)


@pytest.mark.parametrize(
    ("mutant", "seeds"),
    [
        ("early_ack", range(5)),
        ("unclean_election", range(5)),
        ("volatile_promise", range(10)),
        ("forgetful_voter", range(10)),
        ("skipped_fsync", range(20)),
    ],
)
def test_a_planted_bug_is_caught(mutant: str, seeds: range) -> None:
    assert any(_caught(seed, mutant) for seed in seeds)


def _caught(seed: int, mutant: str) -> bool:
    try:
        simulate(seed, mutant=mutant)
    except Violation:
        return True
    return False


def test_one_node_alone_serves_with_min_sync_one() -> None:
    world = simulate(1, Options(nodes=1, partitions=2, pushes=20, min_sync=1, cuts=False))
    assert all(push.done for push in world.pushes)

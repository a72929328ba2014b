"""Every queue under thousands of interleavings, each checked exactly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.mpsc.choosers import at_random
from tests.mpsc.scenario import (
    ABANDON,
    NotDrained,
    Scenario,
    abandon_and_drain,
    explore,
    explore_all,
    explore_seeds,
    named,
)
from weft.mpsc import ALGORITHMS, Dequeuer

QUEUES = ("dltqueue", "dltqueue2", "slotqueue", "sweepqueue", "amqueue")
WAIT_FREE = QUEUES[:-1]
SEEDS = 600

Sizes = tuple[tuple[int, ...], ...]

#: Single calls among three enqueuers, batches, and rings that fill up.
PROGRAMS: dict[str, tuple[Sizes, tuple[int, ...], int]] = {
    "singles": (((1, 1), (1, 1), (1,)), (1, 1, 1, 1, 1, 1), 8),
    "batches": (((2, 1), (1, 3)), (3, 1, 4, 1, 2, 2), 8),
    "full": (((1, 1, 1), (3, 2)), (1, 1, 2, 1, 4), 2),
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", QUEUES)
def test_random_interleavings_are_linearizable(name: str, program: str) -> None:
    enqueues, dequeues, capacity = PROGRAMS[program]
    dequeuer = 1  # in the middle: enqueuers are numbered around it
    scenario = Scenario(named(name), enqueues, dequeues, capacity, dequeuer)
    runs = explore_seeds(scenario, range(SEEDS))
    assert not any(run.hub.blocked or run.hub.cut for run in runs)
    answers = {tuple(call.values for call in run.dequeues) for run in runs}
    assert len(answers) > 20, "the seeds must lead to different histories"


def test_spsc_random_interleavings_are_linearizable() -> None:
    scenario = Scenario(named("spsc"), ((1, 2, 1, 2),), (1, 3, 1, 1, 3), capacity=2)
    runs = explore_seeds(scenario, range(SEEDS))
    assert any(call.taken == 0 for run in runs for call in run.enqueues), "it was full at times"


#: (queue, enqueues, dequeues): all interleavings, up to the order of independent steps.
SMALL: list[tuple[str, Sizes, tuple[int, ...]]] = [
    ("spsc", ((1, 1, 1),), (1, 1, 1)),
    ("spsc", ((2, 2),), (2, 2, 2)),
    ("slotqueue", ((1, 1),), (1, 1, 1)),
    ("slotqueue", ((1,), (1,)), (1, 1)),
    ("slotqueue", ((1,), (1,)), (2, 2)),
    ("slotqueue", ((2,), (1,)), (2, 1)),
    ("sweepqueue", ((1, 1),), (1, 1, 1)),
    ("sweepqueue", ((1,), (1,)), (1, 1)),
    ("sweepqueue", ((2,), (1,)), (2, 1)),
    ("dltqueue", ((1,), (1,)), (1,)),
    ("dltqueue2", ((1,), (1,)), (1,)),
    ("dltqueue", ((2,),), (2,)),
    ("dltqueue2", ((2,),), (2,)),
    ("amqueue", ((1,),), (1, 1)),
    ("amqueue", ((1, 1),), (1,)),
]


@pytest.mark.parametrize(("name", "enqueues", "dequeues"), SMALL)
def test_all_interleavings_of_a_small_program_are_linearizable(
    name: str, enqueues: Sizes, dequeues: tuple[int, ...]
) -> None:
    scenario = Scenario(named(name), enqueues, dequeues, capacity=2)
    count = explore_all(scenario, runs_max=20_000)
    assert count is not None, "not all of them were run"
    assert count > 20


@pytest.mark.parametrize("name", WAIT_FREE)
def test_a_dead_enqueuer_stops_nobody(name: str) -> None:
    """An enqueuer dies before each of its steps in turn; the others end, with correct answers."""
    enqueues, dequeues = ((1, 2), (1, 1), (1,)), (1, 3, 1, 1, 1)
    alive = explore(Scenario(named(name), enqueues, dequeues), at_random(0))
    steps = alive.hub.actors[1].steps
    for step in range(steps):
        scenario = Scenario(named(name), enqueues, dequeues, death=(0, step))
        for run in explore_seeds(scenario, range(step, step + 9)):
            others = [actor for actor in run.hub.actors if actor.index != 1]
            assert all(actor.over for actor in others)
            assert len(run.dequeues) == len(dequeues)


@pytest.mark.parametrize("memory_gone", [False, True], ids=["memory-stays", "memory-gone"])
@pytest.mark.parametrize("name", ["spsc", *WAIT_FREE])
def test_a_queue_is_drained_wherever_an_abandoned_enqueuer_died(
    name: str, memory_gone: bool
) -> None:
    """Killed before each of its steps, under 4 schedules each, and abandoned meanwhile or later."""
    enqueues = ((1, 2, 1),) if name == "spsc" else ((1, 2, 1), (1, 1))
    dequeues = (1, ABANDON, 3, 1, ABANDON, 1, 2)
    alive = explore(Scenario(named(name), enqueues, dequeues), at_random(0))
    for step in range(alive.hub.actors[1].steps + 1):
        scenario = Scenario(
            named(name), enqueues, dequeues, death=(0, step), memory_gone=memory_gone
        )
        for size, run in zip(
            (1, 3, 1, 3), explore_seeds(scenario, range(step, step + 4)), strict=True
        ):
            abandon_and_drain(scenario, run, size)


@pytest.mark.parametrize("name", ["slotqueue", "dltqueue", "dltqueue2"])
def test_an_announcement_that_was_left_out_keeps_a_queue_from_being_drained(name: str) -> None:
    """The planted mutant: abandon does not announce.

    The steps between moving Last and announcing reveal the bug.
    """

    class AbandonAnnouncesNothing(ALGORITHMS[name].dequeuer):  # type: ignore[misc]
        abandon = Dequeuer.abandon
        drained = Dequeuer.drained

    scenario = Scenario(named(name, dequeuer=AbandonAnnouncesNothing), ((1,), (1,)), ())
    stuck = set()
    for step in range(17):
        killed = replace(scenario, death=(0, step))
        try:
            abandon_and_drain(killed, explore(killed, at_random(0)), size=1)
        except NotDrained:
            stuck.add(step)
    assert 3 in stuck, "Last has moved, and nothing is announced"


def test_a_dead_enqueuer_stops_amqueue() -> None:
    """The baseline blocks, and the explorer detects it."""
    enqueues, dequeues = ((1,), (1,)), (1, 1)
    blocked = 0
    for step in range(5):
        scenario = Scenario(named("amqueue"), enqueues, dequeues, death=(0, step))
        blocked += any(run.hub.blocked for run in explore_seeds(scenario, range(60)))
    assert blocked >= 3, "between registering and signing off, its death blocks the dequeuer"


def test_a_seed_tells_the_same_story_twice() -> None:
    scenario = Scenario(named("slotqueue"), *PROGRAMS["singles"])
    for seed in range(30):
        stories = {explore(scenario, at_random(seed)).story() for _ in range(2)}
        assert len(stories) == 1

"""Operation counts (ERRATA 5.11) and wait-freedom as a bound on the steps of a call."""

from __future__ import annotations

import math

import pytest

from tests.mpsc.scenario import Scenario, explore_seeds, named
from weft.mpsc import ALGORITHMS, Counts, Dequeuer, Enqueuer, InProcessWindow, Segments, Shape


class Rig:
    """A queue of in-process ranks, used by one thread."""

    def __init__(self, name: str, enqueuers: int = 3, capacity: int = 16) -> None:
        shape = Shape(enqueuers + 1, dequeuer=0, capacity=capacity, item_bytes=8)
        made = ALGORITHMS[name]
        sizes = [made.segment_bytes(shape, rank) for rank in range(shape.ranks)]
        segments = Segments(sizes)
        self.windows = [InProcessWindow(segments, rank) for rank in range(shape.ranks)]
        self.dequeuer: Dequeuer = made.dequeuer(self.windows[0], shape)
        self.enqueuers: list[Enqueuer] = [
            made.enqueuer(window, shape) for window in self.windows[1:]
        ]

    def enqueue(self, number: int, count: int = 1) -> tuple[int, int]:
        """The cost of an enqueue: R and L."""
        start = self.windows[number + 1].counts.copy()
        items = [bytes(8)] * count
        if count == 1:
            assert self.enqueuers[number].enqueue(items[0])
        else:
            assert self.enqueuers[number].enqueue_many(items) == count
        return _pair(self.windows[number + 1].counts.since(start))

    def dequeue(self, count: int = 1) -> tuple[int, int]:
        start = self.windows[0].counts.copy()
        if count == 1:
            assert self.dequeuer.dequeue() is not None
        else:
            assert len(self.dequeuer.dequeue_many(count)) == count
        return _pair(self.windows[0].counts.since(start))


def _pair(counts: Counts) -> tuple[int, int]:
    return counts.remote, counts.local


@pytest.mark.parametrize("count", [1, 5])
def test_slotqueue_enqueue(count: int) -> None:
    rig = Rig("slotqueue")
    assert rig.enqueue(0, count) == (6, 1), "into an empty ring"
    assert rig.enqueue(0, count) == (3, 1), "behind an item of its own"


@pytest.mark.parametrize("count", [1, 5])
def test_sweepqueue_enqueue(count: int) -> None:
    rig = Rig("sweepqueue")
    assert rig.enqueue(0, count) == rig.enqueue(0, count) == (2, 1)


def test_dltqueue2_enqueue_behind_an_item() -> None:
    rig = Rig("dltqueue2")
    rig.enqueue(0)
    assert rig.enqueue(0) == (3, 2)


@pytest.mark.parametrize("count", [1, 5])
def test_amqueue(count: int) -> None:
    rig = Rig("amqueue")
    assert rig.enqueue(0, count) == (5, 0)
    assert rig.dequeue()[0] == 0


@pytest.mark.parametrize("name", ["slotqueue", "dltqueue2"])
def test_dequeue_has_at_most_three_remote_operations(name: str) -> None:
    rig = Rig(name)
    for number in (0, 1, 2, 0, 1, 2, 0):
        rig.enqueue(number)
    costs = [rig.dequeue()[0] for _ in range(7)]
    assert all(1 <= remote <= 3 for remote in costs)


@pytest.mark.parametrize("name", ["slotqueue", "sweepqueue", "dltqueue2"])
def test_a_batched_dequeue_costs_one_get_for_each_ring(name: str) -> None:
    rig = Rig(name)
    for number in (0, 1, 2):
        rig.enqueue(number, 10)
    assert rig.dequeue(30)[0] == 3


def test_a_batched_dequeue_of_dltqueue_costs_what_its_tree_costs() -> None:
    """Min_timestamp is at the enqueuers; the number of items does not matter."""
    costs = set()
    for count in (2, 10):
        rig = Rig("dltqueue")
        for number in (0, 1, 2):
            rig.enqueue(number, count)
        costs.add(rig.dequeue(3 * count)[0])
    assert len(costs) == 1


def test_an_spsc_call_is_one_remote_and_one_local_operation() -> None:
    rig = Rig("spsc", enqueuers=1)
    assert rig.enqueue(0) == (1, 1)
    assert rig.dequeue() == (1, 2), "the first dequeue also reads Last"
    rig.enqueue(0, 2)
    rig.dequeue()
    assert rig.dequeue() == (1, 1)


def _bounds(name: str, enqueuers: int) -> tuple[int, int]:
    """The most steps that one enqueue and one dequeue of a single item can take."""
    levels = math.ceil(math.log2(enqueuers)) + 1
    tree = 2 * 3 + levels * 2 * 6
    return {
        "slotqueue": (1 + 10 + 1, 2 * enqueuers + 11),
        "sweepqueue": (1 + 3, 4 * enqueuers),
        "dltqueue": (1 + 3 + 2 * 4 + tree, 4 + 2 * 4 + tree),
        "dltqueue2": (1 + 3 + 2 + 2 * 4 + tree, 4 + 2 * 4 + tree),
    }[name]


@pytest.mark.parametrize("name", ["slotqueue", "sweepqueue", "dltqueue", "dltqueue2"])
def test_no_interleaving_makes_a_call_longer_than_its_bound(name: str) -> None:
    """Wait-freedom: a fixed bound for any interleaving. Rings of two cells fill up."""
    scenario = Scenario(named(name), ((1, 1, 1), (1, 1, 1), (1, 1)), (1,) * 9, capacity=2)
    enqueue_max, dequeue_max = _bounds(name, enqueuers=3)
    runs = explore_seeds(scenario, range(600))
    assert max(run.hub.actors[0].steps_max for run in runs) <= dequeue_max
    enqueuers = [actor for run in runs for actor in run.hub.actors[1:]]
    assert max(actor.steps_max for actor in enqueuers) <= enqueue_max


def test_slotqueues_worst_enqueue_is_ten_remote_and_one_local_operation() -> None:
    scenario = Scenario(named("slotqueue"), ((1, 1), (1, 3)), (1, 1, 4, 1, 2, 2))
    runs = explore_seeds(scenario, range(1500))
    worst = max(actor.steps_max for run in runs for actor in run.hub.actors[1:])
    assert worst == 10 + 1

"""The queues with one correction undone each: as in the published paper, or with a part left out.

Named after the numbers of the corrections in docs/mpi.md; ``batch`` are those of the batched
dequeue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.mpsc.mutant_trees import (
    ComparesVersions,
    EmptyWithoutVersion,
    LeafAsPrinted,
    LeafIsRoot,
    LeafTriedOnce,
    NamesItself,
    NodeTriedOnce,
    NodeWithoutVersion,
    ReadsTheRoot,
    RootHasNoChildren,
    StampTriedOnce,
    StampWithoutVersion,
    mutant_tree,
)
from tests.mpsc.scenario import Scenario, named
from weft.mpsc import Algorithm, Shape, Window
from weft.mpsc.amqueue import BIG, AmDequeuer, AmEnqueuer
from weft.mpsc.dltqueue import DltDequeuer, DltEnqueuer
from weft.mpsc.dltqueue_v2 import DltV2Enqueuer
from weft.mpsc.shape import DATA
from weft.mpsc.slotqueue import MAX_STAMP, SlotDequeuer, SlotEnqueuer
from weft.mpsc.spsc import SpscDequeuer, SpscEnqueuer
from weft.mpsc.spsc_queue import SpscQueueDequeuer, SpscQueueEnqueuer
from weft.mpsc.sweepqueue import SweepDequeuer

#: Programs in which the mistakes can show: (enqueues, dequeues).
PAIR = (((1, 1, 1), (1, 1)), (1, 1, 1, 1, 1, 1))
TRIO = (((1, 1), (1,), (1, 1)), (1, 1, 1, 1, 1, 1))
TWO = (((1, 1), (1,)), (1, 1, 1, 1))
THRICE = (((1, 1, 1),), (1, 1, 1, 1))
TWICE = (((1, 1),), (1, 1, 1))
ALONE = (((1, 1, 1, 1),), (1, 1, 1, 1, 1))
BATCHED = (((2, 1), (1, 2), (1, 1)), (4, 1, 3, 1, 4, 4))


@dataclass(frozen=True)
class Mutant:
    """A broken queue and a program that reveals the bug."""

    name: str
    algorithm: Algorithm
    program: tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]
    capacity: int = 8

    @property
    def scenario(self) -> Scenario:
        return Scenario(self.algorithm, *self.program, capacity=self.capacity)


class ShortStamps(DltEnqueuer):
    def _draw(self, count: int) -> int:
        return super()._draw(count) % 4


class SkipsWhenEqual(DltV2Enqueuer):
    def _announce(self, stamp: int) -> None:
        if self._ring.front_stamp() != stamp:
            self._tree.propagate(self._number, self._ring.front_stamp)


class _StaleRing(SpscEnqueuer):
    def in_front(self) -> bool:
        return self._first == self._start


class ReadsItsCopyOfFirst(SlotEnqueuer):
    def __init__(self, window: Window, shape: Shape) -> None:
        super().__init__(window, shape)
        self._ring = _StaleRing(window, shape, self._cells)


class NeverSmaller(SlotDequeuer):
    def _minimum(self) -> int | None:
        slots = self._slots(self._shape.enqueuers)
        number, low = None, MAX_STAMP
        for at, stamp in enumerate(slots):
            if low < stamp:
                number, low = at, stamp
        return number


class ScanLeavesOutCandidate(SlotDequeuer):
    def _minimum(self) -> int | None:
        slots = self._slots(self._shape.enqueuers)
        low = min(slots)
        if low == MAX_STAMP:
            return None
        again = self._slots(slots.index(low))
        low = min(again, default=MAX_STAMP)
        return None if low == MAX_STAMP else again.index(low)


class OneScan(SlotDequeuer):
    def _minimum(self) -> int | None:
        slots = self._slots(self._shape.enqueuers)
        low = min(slots)
        return None if low == MAX_STAMP else slots.index(low)


class OneLookAtTheFront(SlotEnqueuer):
    def _refresh(self, stamp: int) -> bool:
        if not self._ring.in_front():
            return True
        old = self._window.load(self._shape.dequeuer, self._slot)
        return self._window.compare_swap(self._shape.dequeuer, self._slot, old, stamp) == old


class EnqueueTriesOnce(SlotEnqueuer):
    def _announce(self, stamp: int) -> None:
        self._refresh(stamp)


class DequeueTriesOnce(SlotDequeuer):
    def _complete_announcement(self, number: int) -> None:
        self._refresh(number)


class SlotByRank(SlotEnqueuer):
    def __init__(self, window: Window, shape: Shape) -> None:
        super().__init__(window, shape)
        self._slot = shape.own + window.rank


class StoresZero(AmDequeuer):
    """As published: only the old buffer is closed, and a store of 0 opens it again."""

    def __init__(self, window: Window, shape: Shape, pause: Callable[[], None]) -> None:
        super().__init__(window, shape, pause)
        window.store(window.rank, self._places.writers[1], 0)

    def _swap(self, old: int) -> None:
        self._window.fetch_add(self._window.rank, self._places.writers[old], -BIG)

    def _drain(self) -> list[bytes]:
        old = self._window.load(self._window.rank, self._places.queue_num)
        items = super()._drain()
        self._window.store(self._window.rank, self._places.writers[old], 0)
        return items


class OpensTheDrained(StoresZero):
    def _drain(self) -> list[bytes]:
        old = self._window.load(self._window.rank, self._places.queue_num)
        items = AmDequeuer._drain(self)
        self._window.fetch_add(self._window.rank, self._places.writers[old], BIG)
        return items


class AcceptsPositive(AmEnqueuer):
    def _register(self) -> int:
        window, places, target = self._window, self._places, self._shape.dequeuer
        while True:
            active = window.load(target, places.queue_num)
            if window.fetch_add(target, places.writers[active], 1) > 0:
                return active
            window.fetch_add(target, places.writers[active], -1)
            self._pause()


class _LastFirst(SpscEnqueuer):
    def append(self, data: bytes, count: int) -> None:
        place = self._last % self._capacity
        self._window.put(self._window.rank, DATA + place * self._cells.words, data)
        self._last += count
        self._window.store(self._dequeuer, self._last_word, self._last)
        self._window.flush(self._window.rank)


class LastBeforeData(SpscQueueEnqueuer):
    def __init__(self, window: Window, shape: Shape) -> None:
        super().__init__(window, shape)
        self._ring = _LastFirst(window, shape, self._cells)


class _DataFirst(SpscDequeuer):
    def dequeue(self) -> bytes | None:
        word = DATA + self._first % self._capacity * self._cells.words
        cell = self._window.get(self._enqueuer, word, self._cells.bytes)
        self._window.flush(self._enqueuer)
        if not self._any():
            return None
        self.take(1)
        return self._cells.unpack(cell)


class _FirstFirst(SpscDequeuer):
    def dequeue(self) -> bytes | None:
        if not self._any():
            return None
        word = DATA + self._first % self._capacity * self._cells.words
        cell = self._window.get(self._enqueuer, word, self._cells.bytes)
        self.take(1)
        self._window.flush(self._enqueuer)
        return self._cells.unpack(cell)


def _spsc(kind: type[SpscDequeuer]) -> Algorithm:
    class MutantDequeuer(SpscQueueDequeuer):
        def __init__(self, window: Window, shape: Shape) -> None:
            super().__init__(window, shape)
            self._ring = kind(window, shape, self._cells, 0)

    return named("spsc", dequeuer=MutantDequeuer)


class TakesAll(SweepDequeuer):
    """No bound: everything fetched is taken."""

    def _sweep(self) -> list[bytes]:
        lasts = self._lasts()
        numbers = [at for at, ring in enumerate(self._rings) if lasts[at] > ring.first]
        return self._take_in_order(numbers, lasts, lasts, 100)[0] if numbers else []


class SlotTakesAll(SlotDequeuer):
    """One pass: nothing bounds the taken items."""

    def dequeue_many(self, count_max: int) -> list[bytes]:
        slots = self._slots(self._shape.enqueuers)
        lasts = self._lasts()
        announced = [at for at, stamp in enumerate(slots) if stamp != MAX_STAMP]
        items, touched = self._take_in_order(announced, lasts, lasts, count_max)
        self._refresh_taken(touched)
        return items


class TreeTakesAll(DltDequeuer):
    """One pass: nothing bounds the taken items."""

    def _take_by_last(self, count_max: int) -> tuple[list[bytes], list[int]]:
        lasts = self._lasts()
        numbers = [at for at, ring in enumerate(self._rings) if lasts[at] > ring.first]
        return self._take_in_order(numbers, lasts, lasts, count_max) if numbers else ([], [])


class TreeKeepsStaleNodes(DltDequeuer):
    """The batched dequeue does not propagate its removals up the tree."""

    def dequeue_many(self, count_max: int) -> list[bytes]:
        return self._take_by_last(count_max)[0]


class BatchByLast(SlotDequeuer):
    """The batched dequeue takes from rings whose slot is not set."""

    def _slots(self, count: int) -> list[int]:
        slots = super()._slots(count)
        if count == self._shape.enqueuers and self._batch:
            return [0] * count
        return slots

    _batch = False

    def dequeue_many(self, count_max: int) -> list[bytes]:
        self._batch = True
        items = super().dequeue_many(count_max)
        self._batch = False
        return items


def _slot_enqueuer(kind: type[SlotEnqueuer]) -> Algorithm:
    return named("slotqueue", enqueuer=kind)


def _slot_dequeuer(kind: type[SlotDequeuer]) -> Algorithm:
    return named("slotqueue", dequeuer=kind)


MUTANTS = (
    Mutant("5.1 leaf as printed", mutant_tree(LeafAsPrinted), PAIR),
    Mutant("5.1 one enqueuer's leaf is the root", mutant_tree(LeafIsRoot), ALONE),
    Mutant("5.2 the root has no children", mutant_tree(RootHasNoChildren), PAIR),
    Mutant("5.3 the dequeuer's readFront", _slot_enqueuer(ReadsItsCopyOfFirst), PAIR),
    Mutant("5.4 reads Nodes + 0", mutant_tree(ReadsTheRoot), PAIR),
    Mutant("5.4 compares tagged stamps", mutant_tree(ComparesVersions), TRIO),
    Mutant("5.5 the leaf names Self_rank", mutant_tree(NamesItself), PAIR),
    Mutant("5.6 nodes without versions", mutant_tree(NodeWithoutVersion), TWICE),
    Mutant("5.6 one try for the stamp", mutant_tree(StampTriedOnce), TWICE),
    Mutant("5.6 one try for the leaf", mutant_tree(LeafTriedOnce), THRICE),
    Mutant("5.6 one try for a node", mutant_tree(NodeTriedOnce), TWO),
    Mutant("5.7 stamps wrap", named("dltqueue", enqueuer=ShortStamps), PAIR),
    Mutant("5.8 the comparison as printed", _slot_dequeuer(NeverSmaller), PAIR),
    Mutant("5.8 the final scan leaves out rank", _slot_dequeuer(ScanLeavesOutCandidate), PAIR),
    Mutant("5.8 one scan", _slot_dequeuer(OneScan), TRIO),
    Mutant("5.8 one readFront", _slot_enqueuer(OneLookAtTheFront), THRICE, 2),
    Mutant("5.8 enqueue tries once", _slot_enqueuer(EnqueueTriesOnce), TWO),
    Mutant("5.9 slots by process rank", _slot_enqueuer(SlotByRank), PAIR),
    Mutant("5.10 skips when equal", named("dltqueue2", enqueuer=SkipsWhenEqual), PAIR),
    Mutant("5.12 stores 0", named("amqueue", dequeuer=StoresZero), PAIR),
    Mutant("5.12 opens the drained buffer", named("amqueue", dequeuer=OpensTheDrained), PAIR),
    Mutant("5.12 accepts above 0", named("amqueue", enqueuer=AcceptsPositive), PAIR),
    Mutant("5.13 Last before Data", named("spsc", enqueuer=LastBeforeData), ALONE, 2),
    Mutant("5.13 Data before Last", _spsc(_DataFirst), ALONE, 2),
    Mutant("5.13 First before Data arrived", _spsc(_FirstFirst), ALONE, 1),
    Mutant("batch: one pass, sweepqueue", named("sweepqueue", dequeuer=TakesAll), BATCHED),
    Mutant("batch: one pass, slotqueue", _slot_dequeuer(SlotTakesAll), BATCHED),
    Mutant("batch: rings chosen by Last", _slot_dequeuer(BatchByLast), BATCHED),
    Mutant("batch: one pass, dltqueue", named("dltqueue", dequeuer=TreeTakesAll), BATCHED),
    Mutant("batch: stale tree, dltqueue", named("dltqueue", dequeuer=TreeKeepsStaleNodes), BATCHED),
)

#: Corrections whose absence the explorer does not reveal, kept in the queues all the same: see
#: "Corrections that the explorer did not confirm" in docs/mpi.md. A mutant that is caught belongs
#: in MUTANTS.
SURVIVORS = (
    Mutant("5.6 Min_timestamp without versions", mutant_tree(StampWithoutVersion), TWICE),
    Mutant("5.6 no version when a ring empties", mutant_tree(EmptyWithoutVersion), TWICE),
    Mutant("5.8 dequeue tries once", _slot_dequeuer(DequeueTriesOnce), TWICE),
)

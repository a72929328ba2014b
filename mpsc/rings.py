"""Queues made of one SPSC ring per enqueuer: what Slotqueue, Sweepqueue and the trees share.

An enqueue takes a stamp from one counter at the dequeuer, writes the stamped item into its own
ring and then announces it in the way of the algorithm. Stamps grow along every ring, and if one
enqueue ended before another began, its stamp is smaller; the dequeuer's task is to take items in
the order of stamps although it cannot see all rings at one moment.

Departures from the paper: room is checked before a stamp is drawn, so that a full enqueuer does
not load the counter (stamps may still have gaps: no one may expect otherwise, ERRATA 5.14). An
enqueue of k items (the paper's future work) draws k consecutive stamps with one fetch-and-add,
writes one range, moves Last once and announces its first stamp once. It is k enqueues in order,
each taking effect at some moment of the call; it is not one atomic step: an item that drew an
older stamp but was announced late may be dequeued between two of a batch.

**Batched dequeue.** Let the dequeuer read all Last words (pass one), then read them again (pass
two), and fetch what pass two showed. Let c be any item that pass one showed. Then all items of
pass two with stamps up to c's may be taken in the order of stamps. Proof: let e2 be taken and
let e1 have ended before e2 began. Then e1 ended before e2 drew its stamp, which was not after c
drew its own (stamps are drawn in order), which was before pass one ended. So e1 was complete
before pass two began, pass two showed it, and it is taken before e2, having the smaller stamp.
The best c is the one with the largest stamp. An answer of "nothing" is right too: an item that
was complete before the call began is in pass one. Items beyond the bound stay fetched, so
nothing is fetched twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from .queue import Dequeuer, Enqueuer
from .scratch import Scratch
from .shape import COUNTER, Shape
from .spsc import SpscDequeuer, SpscEnqueuer
from .window import Window

Stamps = npt.NDArray[np.int64]
Order = npt.NDArray[np.intp]


class RingEnqueuer(Enqueuer):
    """Stamp, write, announce."""

    def __init__(self, window: Window, shape: Shape) -> None:
        super().__init__(window, shape)
        self._ring = SpscEnqueuer(window, shape, self._cells)

    def _append_one(self, item: bytes) -> bool:
        if not self._ring.room(1):
            return False
        stamp = self._draw(1)
        self._ring.append(self._cells.pack(item, stamp), 1)
        self._announce(stamp)
        return True

    def _append_some(self, items: Sequence[bytes]) -> int:
        count = self._ring.room(len(items))
        if count:
            stamp = self._draw(count)
            self._ring.append(self._cells.pack_many(items[:count], stamp), count)
            self._announce(stamp)
        return count

    def _draw(self, count: int) -> int:
        """The first of ``count`` new stamps."""
        return self._window.fetch_add(self._shape.dequeuer, COUNTER, count)

    def _announce(self, stamp: int) -> None:
        """Let the dequeuer know of the item with this stamp, the first of its enqueue."""
        raise AssertionError("every algorithm says how it announces")


class RingDequeuer(Dequeuer):
    """Holds the dequeuer's ends of all rings."""

    def __init__(self, window: Window, shape: Shape) -> None:
        super().__init__(window, shape)
        numbers = range(shape.enqueuers)
        self._rings = [SpscDequeuer(window, shape, self._cells, number) for number in numbers]
        self._fetched = Scratch(self._cells.words)
        self._gathered = Scratch(self._cells.words)

    def backlog(self) -> int:
        return sum(ring.backlog for ring in self._rings)

    def taken(self) -> list[int]:
        """How many items were taken from each enqueuer's ring, by the enqueuer's number."""
        return [ring.first for ring in self._rings]

    def _lasts(self) -> list[int]:
        """One pass over the Last words, which live here."""
        return self._window.load_range(self._window.rank, self._shape.last, self._shape.enqueuers)

    def _take_in_order(
        self, numbers: Sequence[int], before: list[int], lasts: list[int], count_max: int
    ) -> tuple[list[bytes], list[int]]:
        """Take what the two passes, ``before`` and ``lasts``, allow of these rings; the items, and
        the numbers of the rings that gave some."""
        rings = [self._rings[number] for number in numbers]
        shown = [before[number] - self._rings[number].first for number in numbers]
        sizes = [
            ring.reach(lasts[number], count_max)
            for ring, number in zip(rings, numbers, strict=True)
        ]
        rows = self._fetched.rows(sum(sizes))
        ends = list(accumulate(sizes))
        parts = [rows[end - size : end] for end, size in zip(ends, sizes, strict=True)]
        for ring, part in zip(rings, parts, strict=True):
            ring.fetch(part)
        for ring in rings:
            ring.arrive()
        # A copy, because sorting reads a stamp many times, and in the rows they lie far apart.
        order, counts = merge(rows[:, 0].copy(), sizes, shown, count_max)
        if order is None:
            records = rows[: counts[0]]
        else:
            # "clip" because "raise" would gather into a copy first; every index is in range.
            gathered = self._gathered.rows(len(order))
            records = np.take(rows, order, axis=0, out=gathered, mode="clip")
        items = self._cells.bodies(records)
        touched = []
        for at, (ring, part) in enumerate(zip(rings, parts, strict=True)):
            ring.keep(part[counts[at] :])
            if counts[at]:
                ring.take(counts[at])
                touched.append(numbers[at])
        return items, touched


def merge(
    stamps: Stamps, sizes: Sequence[int], shown: Sequence[int], count_max: int
) -> tuple[Order | None, list[int]]:
    """Which items may be taken, in the order of stamps, ``count_max`` at most, and how many that
    are of each ring. ``stamps`` are those of all fetched items, ring after ring, of which ``sizes``
    says how many are whose, and ``shown`` how many of them pass one had shown. The order of a
    single ring is its own: None."""
    ends = list(accumulate(sizes))
    parts = [stamps[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    tops = [
        int(part[min(seen, len(part)) - 1])
        for part, seen in zip(parts, shown, strict=True)
        if seen > 0 and len(part)
    ]
    if not tops:
        return None, [0] * len(parts)
    counts = _up_to(parts, max(tops))
    total = min(sum(counts), count_max)
    if len(parts) == 1:
        return None, [total]
    # Stable, because that sort is made for the few long runs that these are. What is beyond the
    # bound comes last.
    order = np.argsort(stamps, kind="stable")[:total]
    if total < sum(counts):
        counts = _up_to(parts, int(stamps[order[-1]]))
    return order, counts


def _up_to(parts: Sequence[Stamps], bound: int) -> list[int]:
    """How many items of each ring have stamps up to the bound: mostly all."""
    return [
        len(part)
        if len(part) and part[-1] <= bound
        else int(np.searchsorted(part, bound, side="right"))
        for part in parts
    ]

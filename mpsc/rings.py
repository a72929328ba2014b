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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .cell import Cells, Records
from .queue import Dequeuer, Enqueuer
from .shape import COUNTER, Shape
from .spsc import SpscDequeuer, SpscEnqueuer
from .window import Window


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

    def backlog(self) -> int:
        return sum(ring.backlog for ring in self._rings)

    def taken(self) -> list[int]:
        """How many items were taken from each enqueuer's ring, by the enqueuer's number."""
        return [ring.first for ring in self._rings]

    def _lasts(self) -> list[int]:
        """One pass over the Last words, which live here."""
        return self._window.load_range(self._window.rank, self._shape.last, self._shape.enqueuers)

    def _take_in_order(
        self, numbers: Iterable[int], before: list[int], lasts: list[int], count_max: int
    ) -> tuple[list[bytes], list[int]]:
        """Take what the two passes, ``before`` and ``lasts``, allow of these rings; the items, and
        the numbers of the rings that gave some."""
        rings = self._rings
        fetches = [(number, rings[number].fetch(lasts[number], count_max)) for number in numbers]
        ranges = [
            Range(number, rings[number].arrive(raws), before[number] - rings[number].first)
            for number, raws in fetches
        ]
        records, counts = merge(self._cells, ranges, count_max)
        touched = [part.number for part, count in zip(ranges, counts, strict=True) if count]
        for part, count in zip(ranges, counts, strict=True):
            if count:
                rings[part.number].take(count)
        return self._cells.bodies(records), touched


@dataclass(frozen=True, slots=True)
class Range:
    """What was fetched of one ring, and how many of it pass one had shown."""

    number: int
    records: Records
    shown: int


def merge(cells: Cells, ranges: list[Range], count_max: int) -> tuple[Records, list[int]]:
    """The records up to the bound in the order of stamps, ``count_max`` at most, and how many came
    from each range."""
    tops = [
        int(cells.stamps(part.records)[min(part.shown, len(part.records)) - 1])
        for part in ranges
        if part.shown > 0 and len(part.records)
    ]
    if not tops:
        return cells.view(bytearray()), [0] * len(ranges)
    bound = max(tops)
    counts = [
        min(count_max, int(np.searchsorted(cells.stamps(part.records), bound, side="right")))
        for part in ranges
    ]
    parts = [part.records[:count] for part, count in zip(ranges, counts, strict=True)]
    if len(parts) == 1:
        return parts[0], counts
    together = np.concatenate(parts)
    # Stable, because that sort is made for the few long runs that these are; of a copy, because
    # it reads a stamp many times and they lie far apart.
    order = np.argsort(cells.stamps(together).copy(), kind="stable")
    if len(order) > count_max:
        order = order[:count_max]
        source = np.repeat(np.arange(len(parts)), counts)[order]
        counts = np.bincount(source, minlength=len(parts)).tolist()
    return np.take(together, order, axis=0), counts

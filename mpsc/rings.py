"""Queues made of one SPSC ring per enqueuer: the common part of Slotqueue, Sweepqueue and the
trees.

An enqueue takes a stamp from one counter at the dequeuer, writes the stamped item into its own ring
and then announces the item in the way of the algorithm. Stamps grow along every ring, and if one
enqueue ended before another began, its stamp is smaller; the dequeuer must take items in the order
of stamps although it cannot read all rings at one moment.

Departures from the paper: room is checked before a stamp is drawn, so that a full enqueuer does not
load the counter (stamps may still have gaps: no caller may expect otherwise, ERRATA 5.14). An
enqueue of k items (the paper's future work) draws k consecutive stamps with one fetch-and-add,
writes one range, moves Last once and announces its first stamp once. The result is k enqueues in
order, each taking effect at some moment of the call, and not one atomic step: an item with an older
stamp that was announced late may be dequeued between two of a batch.

**Batched dequeue.** Let the dequeuer read all Last words (pass one), then read them again (pass
two), and fetch the items shown by pass two. Let c be any item shown by pass one. Then all items of
pass two with stamps up to c's may be taken in the order of stamps. Proof: let e2 be taken and let
e1 have ended before e2 began. Then e1 ended before e2 drew its stamp, which was not after c drew
its own (stamps are drawn in order), which was before pass one ended. So e1 was complete before pass
two began, pass two showed e1, and e1 is taken before e2, having the smaller stamp. The best c is
the one with the largest stamp. An empty result is right too: an item that was complete before the
call began is in pass one. Items beyond the bound stay fetched, so nothing is fetched twice.

**A dead enqueuer.** An enqueuer may die at any step. Before Last has moved, nothing of its enqueue
exists for the dequeuer. After that the item counts in the backlog, but the algorithm's own words
(Slotqueue's slot, the tree of dLTQueue) may not announce it, and its enqueuer never will. So
``abandon`` completes the announcement in its place (``_complete_announcement``): the dequeuer makes
the same refresh as after taking an item from the ring. The queue stays linearizable: the enqueue
never returned, so its items may take effect at the moment of the refresh, and earlier items of the
ring, which belong to enqueues that had returned, come before them in the ring.

One operation of a dead rank may still be in flight in the network, and no more, because a rank
completes each operation before the next. If the operation moves Last after ``abandon``, ``drained``
finds the backlog and announces it. If the operation swaps the slot of a ring that is empty by then,
``dequeue`` finds the ring empty and refreshes the slot again. In the tree such a swap fails by its
version.

If the memory of the dead rank is gone too (``Window.outlives``), the ring is cut: fetched items are
delivered, the others are lost and counted in ``lost``.

A dequeuer may discover a lost rank at any remote read. Before it has taken items, the dequeuer
raises ``RankLost``. After it has taken some, which raising would lose, the dequeuer returns them
and remembers the rings with a failed refresh (``_unrefreshed``). The next call refreshes those
rings first, and raises if the rank is still not abandoned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from weft.errors import RankLost

from .cell import Records
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
        """Announces to the dequeuer the item with the given stamp, the first of its enqueue."""
        raise AssertionError("every algorithm says how it announces")


class RingDequeuer(Dequeuer):
    """Holds the dequeuer's ends of all rings."""

    def __init__(self, window: Window, shape: Shape) -> None:
        super().__init__(window, shape)
        numbers = range(shape.enqueuers)
        self._rings = [SpscDequeuer(window, shape, self._cells, number) for number in numbers]
        self._fetched = Scratch(self._cells.words)
        self._gathered = Scratch(self._cells.words)
        #: Numbers of abandoned enqueuers, and the subset without memory.
        self._abandoned: set[int] = set()
        self._cut: set[int] = set()
        #: Announced items of dead ranks that could not be fetched any more.
        self.lost = 0
        #: Rings that gave items without a refreshed announcement since: a rank was lost.
        self._unrefreshed: set[int] = set()

    def abandon(self, rank: int) -> None:
        number = self._shape.number(rank)
        if not self._window.outlives(rank) and number not in self._cut:
            self._cut.add(number)
            self.lost += self._rings[number].cut()
        self._abandoned.add(number)
        super().abandon(rank)
        self._refresh_taken({number})

    def drained(self) -> bool:
        if self.waiting_for():
            return False
        self._refresh_taken({at for at in self._abandoned if self._rings[at].backlog})
        return self.backlog() == 0

    def _complete_announcement(self, number: int) -> None:
        """Makes the algorithm's own words name the front of the ring, even if its enqueuer is dead.

        Nothing to do where Last alone announces.
        """

    def _refresh_taken(self, numbers: Collection[int]) -> None:
        """Refreshes the announcements of rings from which items were taken. Never raises."""
        for number in numbers:
            try:
                self._complete_announcement(number)
            except RankLost:
                self._unrefreshed.add(number)

    def _refresh_rest(self) -> None:
        """Retries the refreshes that failed in an earlier call; may raise ``RankLost``."""
        for number in sorted(self._unrefreshed):
            self._complete_announcement(number)
            self._unrefreshed.discard(number)

    def backlog(self) -> int:
        return sum(ring.backlog for ring in self._rings)

    def taken(self) -> list[int]:
        """Items taken from each enqueuer's ring, by the enqueuer's number."""
        return [ring.first for ring in self._rings]

    def _dequeue_announced(self, first: Callable[[], int | None]) -> bytes | None:
        """Takes one item from the ring named by ``first``, and refreshes its announcement."""
        if self._unrefreshed:
            self._refresh_rest()
        while (number := first()) is not None:
            item = self._rings[number].dequeue()
            try:
                self._complete_announcement(number)
            except RankLost:
                self._unrefreshed.add(number)
            if item is not None:
                return item
            # The last swap of a dead rank arrived late: at most once per dead rank.
            assert number in self._abandoned, "the ring is announced, so it is not empty"
        return None

    def _lasts(self) -> list[int]:
        """One pass over the Last words, which are local."""
        count = self._shape.enqueuers
        lasts = self._window.load_range(self._window.rank, self._shape.last, count)
        for number in self._cut:
            lasts[number] = self._rings[number].last
        return lasts

    def _take_by_last(self, count_max: int) -> tuple[list[bytes], list[int]]:
        """The batched dequeue from all rings in which Last shows items, up to ``count_max`` of
        each.

        Returns the items, and the numbers of the rings that gave some.
        """
        before = self._lasts()
        lasts = self._lasts()
        numbers = [number for number, ring in enumerate(self._rings) if lasts[number] > ring.first]
        return self._take_in_order(numbers, before, lasts, count_max) if numbers else ([], [])

    def _take_in_order(
        self, numbers: Sequence[int], before: list[int], lasts: list[int], count_max: int
    ) -> tuple[list[bytes], list[int]]:
        """Takes the items of the given rings that the two passes, ``before`` and ``lasts``, allow.

        Returns the items, and the numbers of the rings that gave some.
        """
        rings = [self._rings[number] for number in numbers]
        shown = [before[number] - self._rings[number].first for number in numbers]
        sizes = [
            ring.reach(lasts[number], count_max)
            for ring, number in zip(rings, numbers, strict=True)
        ]
        rows = self._fetched.rows(sum(sizes))
        ends = list(accumulate(sizes))
        parts = [rows[end - size : end] for end, size in zip(ends, sizes, strict=True)]
        self._bring(rings, parts)
        # A copy, because sorting reads a stamp many times, and in the rows stamps lie far apart.
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

    def _bring(self, rings: Sequence[SpscDequeuer], parts: Sequence[Records]) -> None:
        """Fetches from all rings at once. If a rank is lost, nothing has been taken.

        Gets from a lost rank may still be in flight and write into the scratch memory later, so the
        scratch memory is not used again.
        """
        try:
            for ring, part in zip(rings, parts, strict=True):
                ring.fetch(part)
            for ring in rings:
                ring.arrive()
        except RankLost:
            for ring in rings:
                with suppress(RankLost):
                    ring.arrive()
            self._fetched = Scratch(self._cells.words)
            raise


def merge(
    stamps: Stamps, sizes: Sequence[int], shown: Sequence[int], count_max: int
) -> tuple[Order | None, list[int]]:
    """Chooses the items to take, in the order of stamps, ``count_max`` at most.

    ``stamps`` holds the stamps of all fetched items, ring after ring; ``sizes`` is the number of
    items per ring, and ``shown`` the number of them shown by pass one. Returns the order of the
    chosen items, and their number per ring. For a single ring the order is None: the ring's own.
    """
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
    # A stable sort, because its algorithm suits few long runs, as here. Items beyond the bound come
    # last.
    order = np.argsort(stamps, kind="stable")[:total]
    if total < sum(counts):
        counts = _up_to(parts, int(stamps[order[-1]]))
    return order, counts


def _up_to(parts: Sequence[Stamps], bound: int) -> list[int]:
    """The number of items of each ring with stamps up to the bound: mostly all."""
    return [
        len(part)
        if len(part) and part[-1] <= bound
        else int(np.searchsorted(part, bound, side="right"))
        for part in parts
    ]

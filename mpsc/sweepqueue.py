"""Sweepqueue: Slotqueue reduced to the case in which every dequeue is a batch.

The bound under the batched dequeue (``rings.py``) needs Last alone, and Last lives at the dequeuer.
So there are no slots, no compare-and-swap and no retry: an enqueue is

    draw a stamp (1R), write the item (1L), move Last (1R)

and no step can fail or be wasted. This is the relief of contention at the dequeuer that the paper
leaves open (chapter VI), without backoff, which is not wait-free: the counter is the only word
shared by enqueuers, each touches the counter once for k items, and no enqueuer reads or swaps a
word written by another.

The dequeuer sweeps: it reads all Last words twice, fetches the new items of every ring with one get
each, all in flight at once, and merges up to the bound. Later calls hand out the items of a sweep
in order. That is linearizable, since every item outside the sweep either has a larger stamp than
the bound or was not complete when pass two began, so the item precedes nothing in the sweep.

The price: a dequeuer that wants one item of n waiting rings fetches from all n of them first. A
dequeuer that takes all available items pays nothing extra.

Cost: enqueue 2R + 1L for any number of items (1R more when the ring seemed full). Sweep: 2n L, and
one R for each ring with new items (two if the ring wraps).
"""

from __future__ import annotations

from typing import Final

from weft.limits import check_range

from .queue import ring_segment_bytes
from .rings import RingDequeuer, RingEnqueuer
from .shape import SEGMENT_BYTES_MAX, Shape
from .window import Window

#: Cells of one ring in one sweep: bounds the dequeuer's memory and a sweep's time.
SWEEP_CELLS_MAX: Final = 8192


def segment_bytes(shape: Shape, rank: int) -> int:
    return ring_segment_bytes(shape, rank, own_words=0)


class SweepEnqueuer(RingEnqueuer):
    """Stamp, write, done."""

    def _announce(self, stamp: int) -> None:
        """Nothing to do: Last has moved."""


class SweepDequeuer(RingDequeuer):
    """Hands out the items of sweeps."""

    def __init__(self, window: Window, shape: Shape) -> None:
        super().__init__(window, shape)
        self._swept: list[bytes] = []
        self._next = 0

    def dequeue(self) -> bytes | None:
        items = self.dequeue_many(1)
        return items[0] if items else None

    def dequeue_many(self, count_max: int) -> list[bytes]:
        check_range("count_max", count_max, 1, SEGMENT_BYTES_MAX)
        if self._next == len(self._swept):
            self._swept, self._next = self._sweep(), 0
        start = self._next
        self._next = min(start + count_max, len(self._swept))
        return self._swept[start : self._next]

    def backlog(self) -> int:
        return super().backlog() + len(self._swept) - self._next

    def _sweep(self) -> list[bytes]:
        return self._take_by_last(SWEEP_CELLS_MAX)[0]

"""The SPSC ring as a queue of its own: no stamps, and no announcement but Last."""

from __future__ import annotations

from weft.errors import InvalidArgument
from weft.limits import check_range

from .queue import ring_segment_bytes
from .rings import RingDequeuer, RingEnqueuer
from .shape import SEGMENT_BYTES_MAX, Shape
from .window import Window


def segment_bytes(shape: Shape, rank: int) -> int:
    if shape.enqueuers != 1:
        raise InvalidArgument(
            f"an SPSC queue has 2 ranks, not {shape.ranks}: use slotqueue for more enqueuers"
        )
    return ring_segment_bytes(shape, rank, own_words=0)


class SpscQueueEnqueuer(RingEnqueuer):
    """Cost: 1R + 1L, and 1R more when the ring seems full."""

    def _draw(self, count: int) -> int:
        return 0

    def _announce(self, stamp: int) -> None:
        """Nothing to do: Last has moved."""


class SpscQueueDequeuer(RingDequeuer):
    """Cost: 1R + 1L, and 1L more when the ring seems empty."""

    def __init__(self, window: Window, shape: Shape) -> None:
        super().__init__(window, shape)
        self._ring = self._rings[0]

    def dequeue(self) -> bytes | None:
        return self._ring.dequeue()

    def dequeue_many(self, count_max: int) -> list[bytes]:
        check_range("count_max", count_max, 1, SEGMENT_BYTES_MAX)
        ring = self._ring
        rows = self._fetched.rows(ring.reach(self._lasts()[0], count_max))
        self._bring([ring], [rows])
        items = self._cells.bodies(rows[:count_max])
        ring.keep(rows[count_max:])
        if items:
            ring.take(len(items))
        return items

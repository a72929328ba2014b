"""AMQueue: the blocking baseline (paper, section 3.2, after Schuchart and others).

    dequeuer's own words: QueueNum | Writers[2] | Offset[2] | Data[2][capacity cells]

Two buffers at the dequeuer: enqueuers write into the buffer named by QueueNum, the dequeuer drains
the other. An enqueuer registers in ``Writers`` of the active buffer, reserves cells by adding to
``Offset``, writes, and deregisters. A closed buffer has BIG subtracted from its Writers, so that a
fetched value below zero tells a late enqueuer to deregister and retry.

Corrected (ERRATA 5.12): the dequeuer closes and opens by adding -BIG and +BIG, never by storing 0,
which would lose the enqueuers that are deregistering after a refusal; a drained buffer stays closed
until the next swap; a registration is accepted when the fetched value is >= 0.

- A dequeue waits for every registered enqueuer: one that stalls blocks the dequeue, one that dies
  blocks it for ever. An enqueue repeats while it meets closed buffers: neither end is wait-free.
- Offset may run past the capacity: reservations there were refused as "full".

Cost (ERRATA 5.11): enqueue 5R uncontended, dequeue 0R.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from weft.limits import check_range

from .cell import Cells
from .queue import Dequeuer, Enqueuer
from .scratch import Scratch
from .shape import SEGMENT_BYTES_MAX, Shape
from .window import WORD_BYTES, Window

#: More than all registrations in flight at once: every rank has at most one.
BIG: Final = 2**40


def _give_way() -> None:
    """Yields the core between two polls of a word that another rank must change first."""
    time.sleep(0)


class Places:
    """The words of AMQueue at the dequeuer."""

    def __init__(self, shape: Shape, cells: Cells) -> None:
        self.queue_num = shape.own
        self.writers = (shape.own + 1, shape.own + 2)
        self.offset = (shape.own + 3, shape.own + 4)
        start, size = shape.own + 5, shape.capacity * cells.words
        self.data = (start, start + size)
        self.end = start + 2 * size


def segment_bytes(shape: Shape, rank: int) -> int:
    if rank != shape.dequeuer:
        return 0
    return Places(shape, Cells(shape.item_bytes, shape.variable)).end * WORD_BYTES


class AmEnqueuer(Enqueuer):
    """Register, reserve, write, deregister."""

    def __init__(self, window: Window, shape: Shape, pause: Callable[[], None] = _give_way) -> None:
        super().__init__(window, shape)
        self._places = Places(shape, self._cells)
        self._pause = pause

    def _append_one(self, item: bytes) -> bool:
        return self._append(self._cells.pack(item, 0), 1) == 1

    def _append_some(self, items: Sequence[bytes]) -> int:
        return self._append(self._cells.pack_many(items, 0), len(items))

    def _append(self, data: bytes, count: int) -> int:
        window, places, target = self._window, self._places, self._shape.dequeuer
        active = self._register()
        start = window.fetch_add(target, places.offset[active], count)
        count = max(0, min(count, self._shape.capacity - start))
        if count:
            word = places.data[active] + start * self._cells.words
            window.put(target, word, data[: count * self._cells.bytes])
            window.flush(target)
        window.fetch_add(target, places.writers[active], -1)
        return count

    def _register(self) -> int:
        window, places, target = self._window, self._places, self._shape.dequeuer
        while True:
            active = window.load(target, places.queue_num)
            if window.fetch_add(target, places.writers[active], 1) >= 0:
                return active
            window.fetch_add(target, places.writers[active], -1)
            self._pause()


class AmDequeuer(Dequeuer):
    """Swap the buffers, wait for the writers, take everything."""

    def __init__(self, window: Window, shape: Shape, pause: Callable[[], None] = _give_way) -> None:
        super().__init__(window, shape)
        self._places = Places(shape, self._cells)
        self._pause = pause
        self._fetched = Scratch(self._cells.words)
        self._drained: list[bytes] = []
        self._next = 0
        window.store(window.rank, self._places.writers[1], -BIG)

    def dequeue(self) -> bytes | None:
        items = self.dequeue_many(1)
        return items[0] if items else None

    def dequeue_many(self, count_max: int) -> list[bytes]:
        check_range("count_max", count_max, 1, SEGMENT_BYTES_MAX)
        if self._next == len(self._drained):
            self._drained, self._next = self._drain(), 0
        start = self._next
        self._next = min(start + count_max, len(self._drained))
        return self._drained[start : self._next]

    def backlog(self) -> int:
        offsets = self._window.load_range(self._window.rank, self._places.offset[0], 2)
        waiting = sum(min(offset, self._shape.capacity) for offset in offsets)
        return waiting + len(self._drained) - self._next

    def _drain(self) -> list[bytes]:
        window, places, me = self._window, self._places, self._window.rank
        old = window.load(me, places.queue_num)
        window.store(me, places.queue_num, 1 - old)
        self._swap(old)
        while window.load(me, places.writers[old]) != -BIG:
            self._pause()
        count = min(window.load(me, places.offset[old]), self._shape.capacity)
        items: list[bytes] = []
        if count:
            rows = self._fetched.rows(count)
            window.get_into(me, places.data[old], rows.data)
            window.flush(me)
            items = self._cells.bodies(rows)
        window.store(me, places.offset[old], 0)
        return items

    def _swap(self, old: int) -> None:
        """Closes the active buffer, then opens the other."""
        window, places, me = self._window, self._places, self._window.rank
        window.fetch_add(me, places.writers[old], -BIG)
        window.fetch_add(me, places.writers[1 - old], BIG)

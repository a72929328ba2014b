"""Slotqueue: wait-free, a constant number of remote operations (paper, section 4.3).

    dequeuer's own words: Slots[n]

``Slots[i]`` is the stamp of the oldest item in enqueuer i's ring, or MAX_STAMP: the dequeuer
chooses a ring from its slots, without a remote operation. Only enqueuer i and the dequeuer change
the slot, always by compare-and-swap from the value read before they read the ring.

- An enqueue that finds its own item at the front of its ring sets the slot. Otherwise an older item
  is there, and the enqueue that announced the older item, or the dequeuer that removes it, does the
  rest. A refresh that loses its swap is retried once; if the retry loses, too, the dequeuer has
  begun *and* ended a refresh meanwhile, and has seen the item. Both tries, and the second read of
  the front between reading the slot and swapping it, are needed (ERRATA 5.8).
- Invariant: once an enqueue of stamp s has ended, and until its item is dequeued, Slots[i] <= s.
- A slot that is not MAX_STAMP belongs to a ring that is not empty when the dequeuer reads the slot.
  So a dequeue that chose a ring gets an item from the ring.
- The dequeuer scans all slots, takes the smallest as candidate r, and scans the slots before r
  again: one of them may have been filled after the scan passed and before the candidate's enqueue
  began. Slots after r were read after r's, so they need no second scan.
- ABA: stamps never return, and no rank can restore MAX_STAMP while an enqueue that read MAX_STAMP
  is in progress, because the dequeuer touches only rings with a slot that it saw set. The batched
  dequeue follows the same rule: it chooses rings by their slots, although Last alone would show
  more.

Stamps are 63 bits: at a million enqueues a second they last 290,000 years.

Cost (ERRATA 5.11, less the paper's local reads of the front's stamp, which is the enqueue's own
exactly when First is at its item): enqueue 3R + 1L behind other items of the same enqueuer, 6R + 1L
into an empty ring, 10R + 1L at worst (1R more when the ring seemed full); dequeue at most 3R. An
enqueue of k items costs the same as one. A batched dequeue costs one R for each ring with taken
items (two if the ring wraps), at most 2 more for the slot when the ring was not all fetched, for
any number of items.
"""

from __future__ import annotations

from typing import Final

from weft.limits import check_range

from .queue import ring_segment_bytes
from .rings import RingDequeuer, RingEnqueuer
from .shape import SEGMENT_BYTES_MAX, Shape
from .window import WORD_MAX, Window

MAX_STAMP: Final = WORD_MAX


def segment_bytes(shape: Shape, rank: int) -> int:
    return ring_segment_bytes(shape, rank, own_words=shape.enqueuers)


class SlotEnqueuer(RingEnqueuer):
    """Procedures 21 and 22."""

    def __init__(self, window: Window, shape: Shape) -> None:
        super().__init__(window, shape)
        self._slot = shape.own + self._number

    def _announce(self, stamp: int) -> None:
        if not self._refresh(stamp):
            self._refresh(stamp)

    def _refresh(self, stamp: int) -> bool:
        if not self._ring.in_front():
            return True
        dequeuer = self._shape.dequeuer
        old = self._window.load(dequeuer, self._slot)
        if not self._ring.in_front():
            return True
        return self._window.compare_swap(dequeuer, self._slot, old, stamp) == old


class SlotDequeuer(RingDequeuer):
    """Procedures 23 to 25, and the batched dequeue."""

    def __init__(self, window: Window, shape: Shape) -> None:
        super().__init__(window, shape)
        #: The word of the first slot.
        self._first_slot = shape.own
        for number in range(shape.enqueuers):
            window.store(window.rank, self._first_slot + number, MAX_STAMP)

    def dequeue(self) -> bytes | None:
        return self._dequeue_announced(self._minimum)

    def dequeue_many(self, count_max: int) -> list[bytes]:
        check_range("count_max", count_max, 1, SEGMENT_BYTES_MAX)
        if self._unrefreshed:
            self._refresh_rest()
        before = self._lasts()
        slots = self._slots(self._shape.enqueuers)
        announced = [number for number, stamp in enumerate(slots) if stamp != MAX_STAMP]
        if not announced:
            return []
        items, touched = self._take_in_order(announced, before, self._lasts(), count_max)
        self._refresh_taken({*touched, *self._abandoned.intersection(announced)})
        return items

    def _complete_announcement(self, number: int) -> None:
        if not self._refresh(number):
            self._refresh(number)

    def _slots(self, count: int) -> list[int]:
        return self._window.load_range(self._window.rank, self._first_slot, count)

    def _minimum(self) -> int | None:
        """The number of the enqueuer with the next front to take."""
        slots = self._slots(len(self._rings))
        low = min(slots)
        if low == MAX_STAMP:
            return None
        candidate = slots.index(low)
        if not candidate:
            return candidate  # no slot is before it
        slots = [*self._slots(candidate), low]
        return slots.index(min(slots))

    def _refresh(self, number: int) -> bool:
        window, slot = self._window, self._first_slot + number
        old = window.load(window.rank, slot)
        front = self._rings[number].front_stamp()
        new = MAX_STAMP if front is None else front
        return window.compare_swap(window.rank, slot, old, new) == old

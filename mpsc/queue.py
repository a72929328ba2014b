"""The two ends of every queue, independent of the algorithm.

- ``enqueue`` returns False and ``enqueue_many`` a smaller number when there is no room: a full
  queue is a normal result, and the remaining items may be offered again.
- ``dequeue`` returns None and ``dequeue_many`` an empty list when the queue is empty.
- ``close`` marks the enqueuer as done; ``drained`` is true once all enqueuers are done and all
  enqueued items were delivered. An enqueuer that died never closes: ``abandon`` closes in its
  place.

Creating an end writes the initial values of the words in its own segment. So all ranks create their
end first, then wait for each other once, then begin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from weft.errors import UsageError
from weft.limits import check_range

from .cell import Cells
from .shape import DATA, SEGMENT_BYTES_MAX, Shape
from .window import WORD_BYTES, Window

_OPEN, _CLOSED = 0, 1


class Enqueuer(ABC):
    """One producer's end of a queue."""

    def __init__(self, window: Window, shape: Shape) -> None:
        self._window = window
        self._shape = shape
        self._cells = Cells(shape.item_bytes, shape.variable)
        self._number = shape.number(window.rank)
        self._open = True
        #: The item size that needs no check; -1 if sizes vary.
        self._fixed = -1 if shape.variable else shape.item_bytes

    def enqueue(self, item: bytes) -> bool:
        """Puts an item at the end of the queue; False if the queue is full."""
        if not self._open:
            self._check_open()
        if len(item) != self._fixed:
            self._cells.check(item)
        return self._append_one(item)

    def enqueue_many(self, items: Sequence[bytes]) -> int:
        """Enqueues, in order, as many items as there was room for at one moment; returns the
        number.
        """
        self._check_open()
        for item in items:
            self._cells.check(item)
        return self._append_some(items) if items else 0

    def close(self) -> None:
        """Marks the enqueuer as done. Closing twice is harmless."""
        if self._open:
            self._open = False
            word = self._shape.closed + self._number
            self._window.store(self._shape.dequeuer, word, _CLOSED)

    def _check_open(self) -> None:
        if not self._open:
            raise UsageError("this enqueuer was closed: open a new queue to enqueue more")

    @abstractmethod
    def _append_one(self, item: bytes) -> bool: ...

    @abstractmethod
    def _append_some(self, items: Sequence[bytes]) -> int: ...


class Dequeuer(ABC):
    """The one consumer's end of a queue."""

    def __init__(self, window: Window, shape: Shape) -> None:
        self._window = window
        self._shape = shape
        self._cells = Cells(shape.item_bytes, shape.variable)

    @abstractmethod
    def dequeue(self) -> bytes | None:
        """Removes and returns the item at the head of the queue; None if the queue is empty."""

    def dequeue_many(self, count_max: int) -> list[bytes]:
        """Up to ``count_max`` items from the head; a shorter list does not mean an empty queue."""
        check_range("count_max", count_max, 1, SEGMENT_BYTES_MAX)
        items: list[bytes] = []
        while len(items) < count_max and (item := self.dequeue()) is not None:
            items.append(item)
        return items

    @abstractmethod
    def backlog(self) -> int:
        """The number of items waiting to be dequeued; others may arrive during the count."""

    def drained(self) -> bool:
        """True if every enqueuer is closed or abandoned, and everything was dequeued."""
        # In this order: a closed enqueuer adds nothing, so an empty queue afterwards is final.
        return not self.waiting_for() and self.backlog() == 0

    def waiting_for(self) -> list[int]:
        """The ranks of the enqueuers that may still enqueue."""
        count = self._shape.enqueuers
        words = self._window.load_range(self._window.rank, self._shape.closed, count)
        return [self._shape.rank(number) for number, word in enumerate(words) if word == _OPEN]

    def abandon(self, rank: int) -> None:
        """Stops waiting for the enqueuer, because its process has ended.

        Every item with an enqueue that had moved Last is still delivered, once; an incompletely
        written item is not. If the rank's memory is gone with its process (another machine), items
        not yet fetched are lost. Abandoning a rank twice is harmless.
        """
        word = self._shape.closed + self._shape.number(rank)
        self._window.store(self._window.rank, word, _CLOSED)


def ring_segment_bytes(shape: Shape, rank: int, own_words: int) -> int:
    """A rank's segment in a queue of rings; ``own_words`` are the algorithm's at the dequeuer."""
    if rank == shape.dequeuer:
        return (shape.own + own_words) * WORD_BYTES
    return (DATA + shape.capacity * Cells(shape.item_bytes, shape.variable).words) * WORD_BYTES

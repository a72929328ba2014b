"""The two ends that every queue here has, whatever its algorithm.

- ``enqueue`` answers False and ``enqueue_many`` a smaller number when there is no room: a full
  queue is an answer, and the items not taken may be offered again.
- ``dequeue`` answers None and ``dequeue_many`` an empty list when nothing is there.
- ``close`` says that this enqueuer is done; ``drained`` is true once all enqueuers are done and
  all they enqueued was delivered. An enqueuer that died never says so: ``abandon`` says it for
  it.

Making an end writes the initial values of the words that live in its own segment. So all ranks
make their end first, then wait for each other once, then begin.
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
        #: The size that needs no check.
        self._fixed = -1 if shape.variable else shape.item_bytes

    def enqueue(self, item: bytes) -> bool:
        """Put an item at the end of the queue; False: full."""
        if not self._open:
            self._check_open()
        if len(item) != self._fixed:
            self._cells.check(item)
        return self._append_one(item)

    def enqueue_many(self, items: Sequence[bytes]) -> int:
        """Enqueue, in order, as many as there was room for at one moment; how many that was."""
        self._check_open()
        for item in items:
            self._cells.check(item)
        return self._append_some(items) if items else 0

    def close(self) -> None:
        """This enqueuer is done. Closing twice is harmless."""
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
        """The item at the head of the queue; None: empty."""

    def dequeue_many(self, count_max: int) -> list[bytes]:
        """Up to ``count_max`` items from the head; fewer does not mean that no more are there."""
        check_range("count_max", count_max, 1, SEGMENT_BYTES_MAX)
        items: list[bytes] = []
        while len(items) < count_max and (item := self.dequeue()) is not None:
            items.append(item)
        return items

    @abstractmethod
    def backlog(self) -> int:
        """How many items wait to be dequeued; others may arrive while it counts."""

    def drained(self) -> bool:
        """Every enqueuer is closed or abandoned, and everything was dequeued."""
        # In this order: a closed enqueuer adds nothing, so an empty queue after it is final.
        return not self.waiting_for() and self.backlog() == 0

    def waiting_for(self) -> list[int]:
        """The ranks of the enqueuers that may still enqueue."""
        count = self._shape.enqueuers
        words = self._window.load_range(self._window.rank, self._shape.closed, count)
        return [self._shape.rank(number) for number, word in enumerate(words) if word == _OPEN]

    def abandon(self, rank: int) -> None:
        """Do not wait for this enqueuer: it died. What it enqueued in full is still delivered."""
        word = self._shape.closed + self._shape.number(rank)
        self._window.store(self._window.rank, word, _CLOSED)


def ring_segment_bytes(shape: Shape, rank: int, own_words: int) -> int:
    """A rank's segment in a queue of rings; ``own_words`` are the algorithm's at the dequeuer."""
    if rank == shape.dequeuer:
        return (shape.own + own_words) * WORD_BYTES
    return (DATA + shape.capacity * Cells(shape.item_bytes, shape.variable).words) * WORD_BYTES

"""A bounded queue for one enqueuer and one dequeuer (paper, section 4.1, procedures 4 to 7).

Data is a ring of cells at the enqueuer. First (the oldest item not yet removed) and Last (the next
free place) count up for ever and live at the dequeuer; First is written by the dequeuer only, Last
by the enqueuer only. Each side caches the other side's word and reads the word itself only when the
copy says "full" or "empty", the only way in which the copy can be wrong.

Invariant: First <= Last <= First + capacity. Cells First..Last-1 belong to the dequeuer, all others
to the enqueuer; a cell changes hands by a store to First or Last and in no other way. Hence the
three orders of ERRATA 5.13, each a ``flush`` below:

- data is complete at its place before Last is written,
- Last is read before the data that it announces,
- data has arrived at the dequeuer before First gives its cells back.

The dequeuer may fetch cells ahead of First and take them later; First moves when they are taken. No
loop but over the pieces of a ring (two), no wait: both sides are wait-free.
"""

from __future__ import annotations

from collections.abc import Iterator

from .cell import Cells, Records
from .shape import DATA, Shape
from .window import Window


def pieces(start: int, count: int, capacity: int) -> Iterator[tuple[int, int]]:
    """The one or two (place, count) pieces of the ring that hold ``count`` cells from ``start``."""
    place = start % capacity
    head = min(count, capacity - place)
    if head:
        yield place, head
    if count > head:
        yield 0, count - head


class SpscEnqueuer:
    """The enqueuer's end."""

    def __init__(self, window: Window, shape: Shape, cells: Cells) -> None:
        number = shape.number(window.rank)
        self._window = window
        self._cells = cells
        self._capacity = shape.capacity
        self._dequeuer = shape.dequeuer
        self._first_word = shape.first + number
        self._last_word = shape.last + number
        self._first = 0
        self._last = 0
        #: The position of the first cell of the last append.
        self._start = 0

    def room(self, wanted: int) -> int:
        """The number of free cells, at most ``wanted``. Never shrinks: only this side fills."""
        free = self._capacity - (self._last - self._first)
        if free < wanted:
            self._first = self._window.load(self._dequeuer, self._first_word)
            free = self._capacity - (self._last - self._first)
        return min(free, wanted)

    def append(self, data: bytes, count: int) -> None:
        """Writes ``count`` packed cells, for which there must be room, and announces them."""
        window, words = self._window, self._cells.words
        if count == 1:
            # The common case, kept short: a third of an enqueue's work in Python.
            window.put(window.rank, DATA + self._last % self._capacity * words, data)
        else:
            done = 0
            for place, cells in pieces(self._last, count, self._capacity):
                end = done + cells * self._cells.bytes
                window.put(window.rank, DATA + place * words, data[done:end])
                done = end
        window.flush(window.rank)
        self._start = self._last
        self._last += count
        window.store(self._dequeuer, self._last_word, self._last)

    def in_front(self) -> bool:
        """True if the first item of the last append is the oldest item in the ring: First is at it.

        Equivalent to comparing the front's stamp with the item's own, without reading the data.
        """
        self._first = self._window.load(self._dequeuer, self._first_word)
        return self._first == self._start

    def front_stamp(self) -> int | None:
        """The stamp of the oldest item in the ring (procedure 5).

        Only this side overwrites cells, so the cell at First stays readable even if the dequeuer
        moves on.
        """
        if self._first >= self._last:
            return None
        self._first = self._window.load(self._dequeuer, self._first_word)
        if self._first >= self._last:
            return None
        place = self._first % self._capacity
        return self._window.load(self._window.rank, DATA + place * self._cells.words)


class SpscDequeuer:
    """The dequeuer's end of one enqueuer's ring."""

    def __init__(self, window: Window, shape: Shape, cells: Cells, number: int) -> None:
        self._window = window
        self._cells = cells
        self._capacity = shape.capacity
        self._enqueuer = shape.rank(number)
        self._dequeuer = window.rank
        self._first_word = shape.first + number
        self._last_word = shape.last + number
        self._first = 0
        self._last = 0
        #: Cells fetched by ``fetch`` and not yet taken: the first of them is at First.
        self._fetched: Records = cells.view(bytearray())
        self._under_way = False
        #: The enqueuer's memory is gone: Last is not read any more.
        self._cut = False

    @property
    def first(self) -> int:
        return self._first

    @property
    def last(self) -> int:
        """Last, as read most recently by this side."""
        return self._last

    @property
    def backlog(self) -> int:
        """Items waiting in the ring, by a fresh read of Last."""
        self._read_last()
        return self._last - self._first

    def cut(self) -> int:
        """The enqueuer died and its memory is gone: keep only fetched items.

        Returns the number of lost items that Last had announced.
        """
        announced = self._window.load(self._dequeuer, self._last_word)
        self._last = self._first + len(self._fetched)
        self._cut = True
        return announced - self._last

    def dequeue(self) -> bytes | None:
        """Procedure 6: the oldest item."""
        if not self._any():
            return None
        if len(self._fetched):
            item = self._cells.bodies(self._fetched[:1])[0]
            self._fetched = self._fetched[1:]
        else:
            place = self._first % self._capacity
            word = DATA + place * self._cells.words
            cell = self._window.get(self._enqueuer, word, self._cells.bytes)
            self._window.flush(self._enqueuer)
            item = self._cells.unpack(cell)
        self.take(1)
        return item

    def front_stamp(self) -> int | None:
        """Procedure 7: the stamp of the oldest item."""
        if not self._any():
            return None
        if len(self._fetched):
            return int(self._fetched[0, 0])
        place = self._first % self._capacity
        return self._window.load(self._enqueuer, DATA + place * self._cells.words)

    def reach(self, last: int, count_max: int) -> int:
        """The number of items from First on that ``fetch`` will bring, fetched ones included.

        These are the items up to ``last``, a value read from Last, but ``count_max`` at most.
        """
        if not self._cut:
            self._last = max(self._last, last)
        return max(len(self._fetched), min(self._last - self._first, count_max))

    def fetch(self, into: Records) -> None:
        """Starts to fetch as many items as ``into`` has rows; ``arrive`` completes the fetch.

        Several rings may have a fetch in flight at once.
        """
        known = len(self._fetched)
        into[:known] = self._fetched
        self._under_way = known < len(into)
        words, row = self._cells.words, known
        start, count = self._first + known, len(into) - known
        for place, cells in pieces(start, count, self._capacity):
            rows = into[row : row + cells].data
            self._window.get_into(self._enqueuer, DATA + place * words, rows)
            row += cells

    def arrive(self) -> None:
        """Completes a fetch."""
        if self._under_way:
            self._window.flush(self._enqueuer)

    def keep(self, rest: Records) -> None:
        """Keeps fetched items that are not taken now: they are not fetched again."""
        self._fetched = rest.copy() if len(rest) else rest[:0]

    def take(self, count: int) -> None:
        """Removes the oldest ``count`` items, already arrived, and gives their cells back."""
        self._first += count
        self._window.store(self._dequeuer, self._first_word, self._first)

    def _any(self) -> bool:
        if self._first >= self._last:
            self._read_last()
        return self._first < self._last

    def _read_last(self) -> None:
        if not self._cut:
            self._last = self._window.load(self._dequeuer, self._last_word)

"""The tree of dLTQueue (paper, section 4.2): names the enqueuer with the smallest stamp.

    dequeuer's own words: Nodes[2n] | Stamps[n] (the second part in dLTQueueV2 only)

``Nodes`` is laid out as a heap: the root is 0, the parent of i is (i-1)//2, the leaf of enqueuer i
is n + i, so n = 1 has a root and a leaf of its own (ERRATA 5.1, 5.2). A node names the enqueuer of
its subtree with the smallest stamp of an oldest item, or no enqueuer. ``Min_timestamp`` of an
enqueuer is the stamp of its oldest item or MAX_STAMP; dLTQueue keeps the word at the enqueuer,
dLTQueueV2 at the dequeuer.

After each operation, enqueuers and the dequeuer refresh the changed path, from Min_timestamp up to
the root: read the old value, compute the new one from below, compare-and-swap. After one failure
the refresh is retried, after two it is not: then another rank has begun and ended a refresh in
between, and has seen the change.

Every word carries a version that each swap raises, on the empty branch too (ERRATA 5.6): without
the version a swap may succeed on an old value that has returned, and write a result computed before
the value changed.

    Min_timestamp = stamp (43 bits) | version (20 bits)
    a node        = number (15 bits) | version (48 bits)

The paper's 32-bit stamps break the order after 2^32 enqueues (ERRATA 5.7); 43 bits last 100 days at
a million a second, and then ``TooLarge`` is raised rather than the order broken. Twenty bits of
version are enough for ever: while one side is between its read and its swap of Min_timestamp, the
other can change the word at most twice for each of its operations on the ring. There can be no more
of these than the ring has cells (CAPACITY_MAX = 2^18), since the ring fills up or runs empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from weft.errors import TooLarge

from .shape import CAPACITY_MAX, OWN, RANKS_MAX, Shape
from .window import Window

STAMP_VERSION_BITS: Final = 20
NODE_VERSION_BITS: Final = 48
#: Larger than every stamp that is given out.
MAX_STAMP: Final = 2**43 - 1
#: The number of no enqueuer.
NOBODY: Final = RANKS_MAX

assert 2 * CAPACITY_MAX + 4 < 2**STAMP_VERSION_BITS, "a version must not return within one swap"

_STAMP_VERSIONS: Final = 2**STAMP_VERSION_BITS - 1
_NODE_VERSIONS: Final = 2**NODE_VERSION_BITS - 1


def check_stamp(stamp: int, stamp_max: int = MAX_STAMP) -> int:
    """Refuses a stamp that does not fit, before it breaks the order."""
    if stamp >= stamp_max:
        raise TooLarge(f"the queue has used all of its {stamp_max} stamps: open a new queue")
    return stamp


Front = Callable[[], int | None]


class Tree:
    """One rank's access to the tree. ``stamp_at`` gives an enqueuer's Min_timestamp's address."""

    def __init__(
        self, window: Window, shape: Shape, stamp_at: Callable[[int], tuple[int, int]]
    ) -> None:
        self._window = window
        self._shape = shape
        self._stamp_at = stamp_at
        self._size = 2 * shape.enqueuers
        #: Reads the oldest stamp of enqueuers with a lost Min_timestamp, at the dequeuer.
        self._disconnected: dict[int, Front] = {}

    def disconnect(self, number: int, front: Front) -> None:
        """At the dequeuer: the enqueuer's process has ended.

        If its Min_timestamp was in its own memory, the word is gone: use the front of its ring
        instead, which no other rank changes.
        """
        if self._stamp_at(number)[0] != self._window.rank:
            self._disconnected[number] = front

    def reset_stamp(self, number: int) -> None:
        """Initial value: no item. Called where the word lives."""
        self._window.store(*self._stamp_at(number), MAX_STAMP << STAMP_VERSION_BITS)

    def reset_nodes(self) -> None:
        """Initial value, at the dequeuer: every node names no enqueuer."""
        for index in range(self._size):
            word = self._shape.own + index
            self._window.store(self._window.rank, word, NOBODY << NODE_VERSION_BITS)

    def first(self) -> int | None:
        """The enqueuer named by the root."""
        number = self._node(0) >> NODE_VERSION_BITS
        return None if number == NOBODY else number

    def propagate(self, number: int, front: Front) -> None:
        """Procedures 12 and 17: propagates a change of enqueuer ``number``'s ring to the root."""
        if not self._refresh_stamp(number, front):
            self._refresh_stamp(number, front)
        if not self._refresh_leaf(number):
            self._refresh_leaf(number)
        index = self._leaf(number)
        while index != 0:
            index = (index - 1) // 2
            if not self._refresh_node(index):
                self._refresh_node(index)

    def _leaf(self, number: int) -> int:
        return self._shape.enqueuers + number

    def _children(self, index: int) -> Iterator[int]:
        return iter(range(2 * index + 1, min(2 * index + 3, self._size)))

    def _refresh_stamp(self, number: int, front: Front) -> bool:
        """Procedures 13 and 18."""
        if number in self._disconnected:
            return True
        target, word = self._stamp_at(number)
        old = self._window.load(target, word)
        stamp = front()
        value = MAX_STAMP if stamp is None else stamp
        version = (old + 1) & _STAMP_VERSIONS
        new = value << STAMP_VERSION_BITS | version
        return self._window.compare_swap(target, word, old, new) == old

    def _refresh_leaf(self, number: int) -> bool:
        """Procedures 15 and 20: the leaf names its enqueuer, not the rank that refreshes it."""
        index = self._leaf(number)
        old = self._node(index)
        stamp = self._stamp(number)
        return self._swap_node(index, old, NOBODY if stamp == MAX_STAMP else number)

    def _refresh_node(self, index: int) -> bool:
        """Procedures 14 and 19."""
        old = self._node(index)
        lowest, lowest_stamp = NOBODY, MAX_STAMP
        for child in self._children(index):
            number = self._node(child) >> NODE_VERSION_BITS
            if number == NOBODY:
                continue
            stamp = self._stamp(number)
            if stamp < lowest_stamp:
                lowest, lowest_stamp = number, stamp
        return self._swap_node(index, old, lowest)

    def _stamp(self, number: int) -> int:
        """An enqueuer's Min_timestamp, without its version: plain stamps are compared."""
        if number in self._disconnected:
            stamp = self._disconnected[number]()
            return MAX_STAMP if stamp is None else stamp
        return self._window.load(*self._stamp_at(number)) >> STAMP_VERSION_BITS

    def _node(self, index: int) -> int:
        return self._window.load(self._shape.dequeuer, self._shape.own + index)

    def _swap_node(self, index: int, old: int, number: int) -> bool:
        new = number << NODE_VERSION_BITS | (old + 1) & _NODE_VERSIONS
        word = self._shape.own + index
        return self._window.compare_swap(self._shape.dequeuer, word, old, new) == old


def stamps_at_enqueuers(shape: Shape) -> Callable[[int], tuple[int, int]]:
    """dLTQueue's address of Min_timestamp."""
    return lambda number: (shape.rank(number), OWN)


def stamps_at_dequeuer(shape: Shape) -> Callable[[int], tuple[int, int]]:
    """dLTQueueV2's address of Min_timestamp, after the nodes."""
    return lambda number: (shape.dequeuer, shape.own + 2 * shape.enqueuers + number)

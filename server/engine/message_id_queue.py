"""The MessageId queue, a node's in-memory list of its messages of one queue; and its handles.

Fabriq's structure of the same name (paper 4, section 4.2.2) lists message ids; here the entries are
batches and parts of batches, because the batch is the unit of storage. Each priority has two lists:
*fresh* batches, untouched since their push, as bare handles in order of arrival; and *returned*
parts (nacked, expired, split off, due after a delay) in a heap. Handles sort by arrival, so taking
the smaller of the two heads keeps the queue's order on this node: a returned message gets its old
place. Delayed parts wait in a third list until due.

The MessageId queue is volatile: recovery rebuilds the lists from the stored heads at start.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

STAMP_BITS: Final = 54
PARTITION_BITS: Final = 16
LSN_BITS: Final = 44
COUNT_BITS: Final = 13
SIZE_BITS: Final = 24

#: Bit offsets of the fields; a restart packs a million handles without a call for each.
COUNT_SHIFT: Final = SIZE_BITS
LSN_SHIFT: Final = COUNT_SHIFT + COUNT_BITS
PARTITION_SHIFT: Final = LSN_SHIFT + LSN_BITS
STAMP_SHIFT: Final = PARTITION_SHIFT + PARTITION_BITS

_KEY_SHIFT: Final = LSN_SHIFT
_KEY_MASK: Final = (1 << (PARTITION_BITS + LSN_BITS)) - 1
_LSN_MASK: Final = (1 << LSN_BITS) - 1
_COUNT_MASK: Final = (1 << COUNT_BITS) - 1
_SIZE_MASK: Final = (1 << SIZE_BITS) - 1
#: An entry's `first` for an untouched batch.
WHOLE = -1
#: Makes an `IdEntry` without the call of its own constructor.
_entry: Final = tuple.__new__


class Handle:
    """Functions of handles: all in-memory data of a waiting batch, packed into one integer.

    ``stamp (54) | partition (16) | lsn (44) | count (13) | size (24)``, most significant first. A
    million waiting batches are a million integers of 48 bytes and nothing else; the head and the
    payload stay on disk until a pop needs them. The stamp comes first, so handles sort by arrival:
    a node's stamps are strictly increasing microseconds, and sorting the handles found on disk
    restores a queue's order after a restart.
    """

    @staticmethod
    def pack(stamp: int, partition: int, lsn: int, count: int, size: int) -> int:
        assert 0 < stamp < 1 << STAMP_BITS, stamp
        assert 0 < lsn <= _LSN_MASK, lsn
        assert 0 < count <= _COUNT_MASK, count
        assert 0 <= size <= _SIZE_MASK, size
        return (
            stamp << STAMP_SHIFT
            | partition << PARTITION_SHIFT
            | lsn << LSN_SHIFT
            | count << COUNT_SHIFT
            | size
        )

    @staticmethod
    def key(handle: int) -> int:
        """(partition, lsn) as one number: a batch's identity on this node."""
        return handle >> _KEY_SHIFT & _KEY_MASK

    @staticmethod
    def key_of(partition: int, lsn: int) -> int:
        return partition << LSN_BITS | lsn

    @staticmethod
    def split_key(key: int) -> tuple[int, int]:
        """(partition, lsn)."""
        return key >> LSN_BITS, key & _LSN_MASK

    @staticmethod
    def partition(handle: int) -> int:
        return handle >> PARTITION_SHIFT & ((1 << PARTITION_BITS) - 1)

    @staticmethod
    def stamp(handle: int) -> int:
        """When the batch arrived, in microseconds since 1970."""
        return handle >> STAMP_SHIFT

    @staticmethod
    def count(handle: int) -> int:
        return handle >> SIZE_BITS & _COUNT_MASK

    @staticmethod
    def size(handle: int) -> int:
        return handle & _SIZE_MASK

    @staticmethod
    def totals(handles: list[int]) -> tuple[int, int]:
        """The messages and the bytes of many batches, without a Python-level loop."""
        size = sum(map(_SIZE_MASK.__and__, handles))
        both = sum(map(((1 << _KEY_SHIFT) - 1).__and__, handles))
        return (both - size) >> SIZE_BITS, size


class IdEntry(NamedTuple):
    """One entry: a batch, and the first message of the part (WHOLE for an untouched batch)."""

    handle: int
    first: int


class Level:
    """The waiting entries of one priority."""

    __slots__ = ("fresh", "priority", "returned")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.fresh: deque[int] = deque()
        self.returned: list[IdEntry] = []


class MessageIdQueue:
    def __init__(self) -> None:
        self.levels: list[Level] = []  # highest priority first; nearly always just one
        self._delayed: list[tuple[int, int, IdEntry]] = []  # (due, priority, entry)

    def add_fresh(self, priority: int, batch_handle: int) -> None:
        self._level(priority).fresh.append(batch_handle)

    def add_all_fresh(self, priority: int, handles: list[int]) -> None:
        """Adds batches found by a restart, in any order."""
        level = self._level(priority)
        level.fresh = deque(sorted([*level.fresh, *handles]))

    def add_returned(self, priority: int, entry: IdEntry) -> None:
        levels = self.levels
        if levels and levels[0].priority == priority:  # nearly always, so without a call
            heapq.heappush(levels[0].returned, entry)
        else:
            heapq.heappush(self._level(priority).returned, entry)

    def put_back(self, priority: int, entry: IdEntry) -> None:
        """Lists the rest of the entry that `take` returned last."""
        self.add_returned(priority, entry)

    def add_delayed(self, due: int, priority: int, entry: IdEntry) -> None:
        heapq.heappush(self._delayed, (due, priority, entry))

    def take(self) -> IdEntry | None:
        """Removes and returns the next entry; the caller leases or returns the messages."""
        for level in self.levels:
            fresh, returned = level.fresh, level.returned
            if fresh and (not returned or fresh[0] < returned[0].handle):
                return _entry(IdEntry, (fresh.popleft(), WHOLE))
            if returned:
                return heapq.heappop(returned)
        return None

    def peek(self, limit: int) -> Iterator[IdEntry]:
        """The next entries, in the order of `take`, without removal."""
        for level in self.levels:
            fresh = (IdEntry(batch_handle, WHOLE) for batch_handle in islice(level.fresh, limit))
            yield from heapq.merge(fresh, heapq.nsmallest(limit, level.returned))

    def oldest(self) -> int:
        """The stamp of the oldest ready entry; 0: no entry is ready."""
        heads = [
            head
            for level in self.levels
            for head in (*islice(level.fresh, 1), *(entry.handle for entry in level.returned[:1]))
        ]
        return Handle.stamp(min(heads)) if heads else 0

    def take_older(self, stamp: int) -> IdEntry | None:
        """Removes and returns a ready entry older than `stamp`, of any priority."""
        for level in self.levels:
            if level.fresh and Handle.stamp(level.fresh[0]) < stamp:
                return IdEntry(level.fresh.popleft(), WHOLE)
            if level.returned and Handle.stamp(level.returned[0].handle) < stamp:
                return heapq.heappop(level.returned)
        return None

    def take_oldest(self, upto: int) -> IdEntry | None:
        """Removes and returns the oldest ready entry, of any priority, if not newer than `upto`.

        Unlike `take_older`, compares all lists: entries come in order of arrival.
        """
        oldest: IdEntry | None = None
        where: Level | None = None
        for level in self.levels:
            if level.fresh and (oldest is None or level.fresh[0] < oldest.handle):
                oldest, where = IdEntry(level.fresh[0], WHOLE), level
            if level.returned and (oldest is None or level.returned[0] < oldest):
                oldest, where = level.returned[0], level
        if oldest is None or where is None or Handle.stamp(oldest.handle) > upto:
            return None
        if where.returned and where.returned[0] is oldest:
            return heapq.heappop(where.returned)
        where.fresh.popleft()
        return oldest

    def next_due(self) -> int | None:
        return self._delayed[0][0] if self._delayed else None

    def take_due(self, now: int) -> tuple[int, IdEntry] | None:
        """Removes and returns (priority, entry) of a delayed part due by `now`."""
        if self._delayed and self._delayed[0][0] <= now:
            _, priority, entry = heapq.heappop(self._delayed)
            return priority, entry
        return None

    def drop(self, partitions: set[int]) -> list[tuple[IdEntry, bool]]:
        """Removes all entries of some partitions; returns (entry, True if delayed)."""
        dropped: list[tuple[IdEntry, bool]] = []
        for level in self.levels:
            kept = [h for h in level.fresh if Handle.partition(h) not in partitions]
            if len(kept) < len(level.fresh):
                gone = (h for h in level.fresh if Handle.partition(h) in partitions)
                dropped += [(IdEntry(h, WHOLE), False) for h in gone]
                level.fresh = deque(kept)
            returned = [e for e in level.returned if Handle.partition(e.handle) not in partitions]
            if len(returned) < len(level.returned):
                gone_parts = (e for e in level.returned if Handle.partition(e.handle) in partitions)
                dropped += [(entry, False) for entry in gone_parts]
                heapq.heapify(returned)
                level.returned = returned
        late = [each for each in self._delayed if Handle.partition(each[2].handle) in partitions]
        if late:
            dropped += [(entry, True) for _, _, entry in late]
            self._delayed = [
                each for each in self._delayed if Handle.partition(each[2].handle) not in partitions
            ]
            heapq.heapify(self._delayed)
        return dropped

    def remove(self, batch_handle: int, first: int) -> bool | None:
        """Removes the entry of the part starting at `first`. Returns True for a delayed entry,
        False for a ready entry, None if not listed. Takes time linear in the list."""
        entries = (IdEntry(batch_handle, first), IdEntry(batch_handle, WHOLE))[: 1 + (first == 0)]
        for number, (_, _, entry) in enumerate(self._delayed):
            if entry in entries:
                del self._delayed[number]
                heapq.heapify(self._delayed)
                return True
        for level in self.levels:
            for entry in entries:
                if entry in level.returned:
                    level.returned.remove(entry)
                    heapq.heapify(level.returned)
                    return False
            if first == 0 and batch_handle in level.fresh:
                level.fresh.remove(batch_handle)
                return False
        return None

    def handles(self) -> Iterator[int]:
        """The handles of all entries, delayed ones too, unordered and possibly repeated."""
        for level in self.levels:
            yield from level.fresh
            yield from (entry.handle for entry in level.returned)
        yield from (entry.handle for _, _, entry in self._delayed)

    def peek_delayed(self, limit: int) -> list[IdEntry]:
        """The delayed entries due next, without removal."""
        return [entry for _, _, entry in heapq.nsmallest(limit, self._delayed)]

    def drain(self) -> Iterator[IdEntry]:
        """Removes and yields every entry, delayed ones too."""
        while (entry := self.take()) is not None:
            yield entry
        while self._delayed:
            yield self._delayed.pop()[2]

    def _level(self, priority: int) -> Level:
        for level in self.levels:
            if level.priority == priority:
                return level
        level = Level(priority)
        self.levels.append(level)
        self.levels.sort(key=lambda each: -each.priority)
        return level

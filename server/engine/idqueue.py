"""The MessageId queue: a node's own list, in memory, of what it holds of one queue.

Fabriq's structure of that name (paper 4, section 4.2.2) lists message ids; here the entries are
batches and parts of batches, because a batch is what is stored. For each priority there are two
lists: *fresh* batches, untouched since their push, as bare handles in order of arrival; and
*returned* parts (nacked, expired, split off, due after a delay) in a heap. Handles sort by
arrival, so taking the smaller of the two heads keeps the queue's order on this node: a message
that comes back stands again where it stood. Parts that are not due yet wait in a third list.

It is volatile: rebuilt from the stored heads at start.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from . import handle

#: An entry's `first` for a batch that nothing has happened to.
WHOLE = -1


class Entry(NamedTuple):
    """One entry: a batch, and the first message of the part (WHOLE for an untouched batch)."""

    handle: int
    first: int


class Level:
    """What waits at one priority."""

    __slots__ = ("fresh", "priority", "returned")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.fresh: deque[int] = deque()
        self.returned: list[Entry] = []


class MessageIdQueue:
    def __init__(self) -> None:
        self.levels: list[Level] = []  # highest priority first; nearly always just one
        self._delayed: list[tuple[int, int, Entry]] = []  # (due, priority, entry)

    def add_fresh(self, priority: int, batch_handle: int) -> None:
        self._level(priority).fresh.append(batch_handle)

    def add_all_fresh(self, priority: int, handles: list[int]) -> None:
        """What a restart has found, in any order."""
        level = self._level(priority)
        level.fresh = deque(sorted([*level.fresh, *handles]))

    def add_returned(self, priority: int, entry: Entry) -> None:
        heapq.heappush(self._level(priority).returned, entry)

    def add_delayed(self, due: int, priority: int, entry: Entry) -> None:
        heapq.heappush(self._delayed, (due, priority, entry))

    def take(self) -> Entry | None:
        """The next entry, removed; the caller lends it or puts it back."""
        for level in self.levels:
            fresh, returned = level.fresh, level.returned
            if fresh and (not returned or fresh[0] < returned[0].handle):
                return Entry(fresh.popleft(), WHOLE)
            if returned:
                return heapq.heappop(returned)
        return None

    def peek(self, limit: int) -> Iterator[Entry]:
        """The next entries, as `take` would give them, left where they are."""
        for level in self.levels:
            fresh = (Entry(batch_handle, WHOLE) for batch_handle in islice(level.fresh, limit))
            yield from heapq.merge(fresh, heapq.nsmallest(limit, level.returned))

    def oldest(self) -> int:
        """The stamp of the oldest entry that is ready; 0 when there is none."""
        heads = [
            head
            for level in self.levels
            for head in (*islice(level.fresh, 1), *(entry.handle for entry in level.returned[:1]))
        ]
        return handle.stamp(min(heads)) if heads else 0

    def take_older(self, stamp: int) -> Entry | None:
        """An entry that is ready and arrived before `stamp`, removed, whatever its priority."""
        for level in self.levels:
            if level.fresh and handle.stamp(level.fresh[0]) < stamp:
                return Entry(level.fresh.popleft(), WHOLE)
            if level.returned and handle.stamp(level.returned[0].handle) < stamp:
                return heapq.heappop(level.returned)
        return None

    def take_oldest(self, upto: int) -> Entry | None:
        """The entry that is ready and arrived first, if by `upto`; removed, whatever its priority.

        Unlike `take_older` it looks at all lists: what it gives is in order of arrival.
        """
        oldest: Entry | None = None
        where: Level | None = None
        for level in self.levels:
            if level.fresh and (oldest is None or level.fresh[0] < oldest.handle):
                oldest, where = Entry(level.fresh[0], WHOLE), level
            if level.returned and (oldest is None or level.returned[0] < oldest):
                oldest, where = level.returned[0], level
        if oldest is None or where is None or handle.stamp(oldest.handle) > upto:
            return None
        if where.returned and where.returned[0] is oldest:
            return heapq.heappop(where.returned)
        where.fresh.popleft()
        return oldest

    def next_due(self) -> int | None:
        return self._delayed[0][0] if self._delayed else None

    def take_due(self, now: int) -> tuple[int, Entry] | None:
        """(priority, entry) of a delayed part whose time has come, removed."""
        if self._delayed and self._delayed[0][0] <= now:
            _, priority, entry = heapq.heappop(self._delayed)
            return priority, entry
        return None

    def drop(self, partitions: set[int]) -> list[tuple[Entry, bool]]:
        """Removes all entries of some partitions; with each, whether it was delayed."""
        dropped: list[tuple[Entry, bool]] = []
        for level in self.levels:
            kept = [h for h in level.fresh if handle.partition(h) not in partitions]
            if len(kept) < len(level.fresh):
                gone = (h for h in level.fresh if handle.partition(h) in partitions)
                dropped += [(Entry(h, WHOLE), False) for h in gone]
                level.fresh = deque(kept)
            returned = [e for e in level.returned if handle.partition(e.handle) not in partitions]
            if len(returned) < len(level.returned):
                gone_parts = (e for e in level.returned if handle.partition(e.handle) in partitions)
                dropped += [(entry, False) for entry in gone_parts]
                heapq.heapify(returned)
                level.returned = returned
        late = [each for each in self._delayed if handle.partition(each[2].handle) in partitions]
        if late:
            dropped += [(entry, True) for _, _, entry in late]
            self._delayed = [
                each for each in self._delayed if handle.partition(each[2].handle) not in partitions
            ]
            heapq.heapify(self._delayed)
        return dropped

    def drain(self) -> Iterator[Entry]:
        """Every entry, delayed ones too, each removed as it is given."""
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

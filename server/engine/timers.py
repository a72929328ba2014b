"""Timers by key: one heap with lazy deletion.

A timer reset or cleared leaves its old entry in the heap; the stale entry is skipped when due. When
stale entries outnumber live entries, the heap is rebuilt. So the heap size follows the number of
live timers, even when every timer is long and nearly all are cleared early (as with leases).
"""

from __future__ import annotations

import heapq
from typing import Final

_SLACK = 256


#: Later than every timer.
NEVER: Final = 1 << 62


class Timers:
    def __init__(self) -> None:
        self._when: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []
        #: No timer is due before this time; a stale entry may make it too early.
        self.earliest = NEVER

    def __len__(self) -> int:
        return len(self._when)

    def set(self, key: int, when: int) -> None:
        """Sets the timer of `key`. An earlier heap entry stays, and is rescheduled when due."""
        before = self._when.get(key)
        self._when[key] = when
        if before is None or when < before:
            heapq.heappush(self._heap, (when, key))
            if when < self.earliest:
                self.earliest = when
            if len(self._heap) > 2 * len(self._when) + _SLACK:
                self._heap = [(due, name) for name, due in self._when.items()]
                heapq.heapify(self._heap)

    def clear(self, key: int) -> None:
        self._when.pop(key, None)

    def when(self, key: int, otherwise: int) -> int:
        """The time of `key`, or `otherwise` if not set."""
        return self._when.get(key, otherwise)

    def next(self) -> int | None:
        """The time of the next timer. Removes stale entries, which would cause wake-ups in vain."""
        heap = self._heap
        while heap:
            due, key = heap[0]
            when = self._when.get(key)
            if when == due:
                self.earliest = due
                return due
            heapq.heappop(heap)
            if when is not None:  # the timer was reset to a later time
                heapq.heappush(heap, (when, key))
        self.earliest = NEVER
        return None

    def fire(self, now: int, limit: int) -> list[int]:
        """Clears and returns up to `limit` due keys, earliest first."""
        due: list[int] = []
        heap = self._heap
        while heap and heap[0][0] <= now and len(due) < limit:
            _, key = heapq.heappop(heap)
            when = self._when.get(key)
            if when is None:
                continue
            if when <= now:
                del self._when[key]
                due.append(key)
            else:  # the timer was reset to a later time
                heapq.heappush(heap, (when, key))
        self.earliest = heap[0][0] if heap else NEVER
        return due

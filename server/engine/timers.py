"""Timers by key: one heap, lazily cleaned.

A timer that is set again or cleared leaves its old entry in the heap; the entry is skipped when it
comes up. When dead entries outnumber living ones the heap is rebuilt, so its size follows what is
alive even when every timer is long and nearly all are cleared early (leases are like that).
"""

from __future__ import annotations

import heapq

_SLACK = 256


class Timers:
    def __init__(self) -> None:
        self._when: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._when)

    def set(self, key: int, when: int) -> None:
        """When `key` comes up. An entry that would come up earlier already is kept and moved on."""
        before = self._when.get(key)
        self._when[key] = when
        if before is None or when < before:
            heapq.heappush(self._heap, (when, key))
            if len(self._heap) > 2 * len(self._when) + _SLACK:
                self._heap = [(due, name) for name, due in self._when.items()]
                heapq.heapify(self._heap)

    def clear(self, key: int) -> None:
        self._when.pop(key, None)

    def when(self, key: int, otherwise: int) -> int:
        """When `key` comes up, if it is set."""
        return self._when.get(key, otherwise)

    def next(self) -> int | None:
        """When something next comes up. Dead entries at the front go, or each would be a look."""
        heap = self._heap
        while heap:
            due, key = heap[0]
            when = self._when.get(key)
            if when == due:
                return due
            heapq.heappop(heap)
            if when is not None:  # it was set to a later time since
                heapq.heappush(heap, (when, key))
        return None

    def fire(self, now: int, limit: int) -> list[int]:
        """Up to `limit` keys whose time has come, earliest first; they are cleared."""
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
            else:  # it was set to a later time since
                heapq.heappush(heap, (when, key))
        return due

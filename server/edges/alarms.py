"""Timers of the calls in the node's thread: callbacks at times of the monotonic clock."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Final

#: Cancelled alarms that may stay in the heap besides as many as there are live ones. A stream sets
#: and cancels an alarm for each wait, and must not fill the memory.
_STALE_MAX: Final = 64


class Alarms:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        #: Alarms that will ring, by their handles.
        self.live: dict[int, Callable[[], None]] = {}
        self._handles = itertools.count(1)

    def set(self, at: float, callback: Callable[[], None]) -> int:
        """Has `callback` called at a time; returns a handle for `cancel`."""
        handle = next(self._handles)
        self.live[handle] = callback
        heapq.heappush(self._heap, (at, handle))
        return handle

    def cancel(self, handle: int) -> None:
        """Cancels an alarm; one that has rung or was cancelled is ignored."""
        self.live.pop(handle, None)
        if len(self._heap) > 2 * len(self.live) + _STALE_MAX:
            self._heap = [each for each in self._heap if each[1] in self.live]
            heapq.heapify(self._heap)

    def next(self) -> float | None:
        """The time of the next alarm."""
        while self._heap:
            at, handle = self._heap[0]
            if handle in self.live:
                return at
            heapq.heappop(self._heap)
        return None

    def due(self, now: float) -> list[Callable[[], None]]:
        """Takes the callbacks of all alarms up to now."""
        taken = []
        while self._heap and self._heap[0][0] <= now:
            callback = self.live.pop(heapq.heappop(self._heap)[1], None)
            if callback is not None:
                taken.append(callback)
        return taken

"""The recent changes of one partition's rows, for watchers.

A history begins with the first watch of the partition and ends a while after the last one: a
partition that no client watches keeps nothing. It is bounded; a watcher that is further behind than
its start has missed changes, and is told so.

Invariant: every change with a version above `start` is in the history.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from weft import limits


class RowChange(NamedTuple):
    version: int
    key: str
    #: None: removed or expired.
    value: bytes | None


class TableHistory:
    def __init__(self, start: int) -> None:
        self.start = start
        self.changes: deque[RowChange] = deque()
        self._bytes = 0
        #: The time of the last request of a watcher.
        self.watched = 0

    def add(self, version: int, key: str, value: bytes | None) -> None:
        change = RowChange(version, key, value)
        self.changes.append(change)
        self._bytes += _size(change)
        while len(self.changes) > 1 and (
            len(self.changes) > limits.TABLE_CHANGES_MAX
            or self._bytes > limits.TABLE_CHANGES_BYTES_MAX
        ):
            dropped = self.changes.popleft()
            self._bytes -= _size(dropped)
            self.start = dropped.version

    def since(self, version: int) -> list[RowChange] | None:
        """The changes after a version; None if some are lost."""
        if version < self.start:
            return None
        found: list[RowChange] = []
        for change in reversed(self.changes):
            if change.version <= version:
                break
            found.append(change)
        found.reverse()
        return found


def _size(change: RowChange) -> int:
    return len(change.key) + len(change.value or b"")

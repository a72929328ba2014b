"""The free-space reserve: pushes stop while there is still room to ack and delete.

LevelDB needs space even to forget, and a disk that is really full can cost acknowledged writes. So
the node looks at the disk once a second, and again whenever it has written a quarter of the
reserve since the last look. What the store has in memory it will still write, so that much is
counted as used already (``ahead_bytes``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from .log import fields

log = logging.getLogger(__name__)

_LOOK_US: Final = 1_000_000


class Space:
    def __init__(self, free_bytes: Callable[[], int], reserve_bytes: int, ahead_bytes: int) -> None:
        self._free_bytes = free_bytes
        self._ahead_bytes = ahead_bytes if reserve_bytes else 0  # no reserve: no looking ahead
        self.reserve_bytes = reserve_bytes
        self.free_bytes = free_bytes()
        self._look_at = 0
        self._written = 0
        self.full = self.free_bytes < reserve_bytes + self._ahead_bytes

    def written(self, size: int) -> None:
        self._written += size

    def look(self, now: int) -> bool:
        """Whether the reserve is reached. A disk just above it counts as full until it is not
        close any more: pushes must not flicker."""
        if now >= self._look_at or self._written > self.reserve_bytes // 4:
            self._look_at, self._written = now + _LOOK_US, 0
            self.free_bytes = self._free_bytes()
            margin = self.reserve_bytes // 16 if self.full else 0
            full = self.free_bytes < self.reserve_bytes + self._ahead_bytes + margin
            if full != self.full:
                self.full = full
                word = "disk at its reserve: pushes are refused" if full else "disk has room again"
                log.warning(word, extra=fields(free=self.free_bytes, reserve=self.reserve_bytes))
        return self.full

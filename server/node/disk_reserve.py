"""The free-space reserve: pushes stop while there is still room to ack and delete.

LevelDB needs space even for deletes, and a really full disk can cost acknowledged writes. So the
node checks the disk once a second, and also after each quarter of the reserve written since the
last check. The store will still write its memory to the disk, so that amount counts as used already
(``ahead_bytes``).

A disk at the reserve counts as full until there is some more room (the *margin*): the node must not
refuse and accept pushes in turns. The margin is a part of the room that a drained store would
leave, because a larger margin would refuse pushes for good on a small disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from weft.persistence.leveldb_database import WRITE_BUFFER_BYTES
from weft.server.observability.log import fields

log = logging.getLogger(__name__)

_POLL_US: Final = 1_000_000


class DiskReserve:
    """`free_bytes` returns the free bytes of the disk, and `store_bytes` the size of the store."""

    def __init__(
        self,
        free_bytes: Callable[[], int],
        store_bytes: Callable[[], int],
        reserve_bytes: int,
        ahead_bytes: int = WRITE_BUFFER_BYTES,
    ) -> None:
        self._free_bytes = free_bytes
        self._store_bytes = store_bytes
        self.reserve_bytes = reserve_bytes
        # Without a reserve there is nothing to look ahead for.
        self._least_bytes = reserve_bytes + (ahead_bytes if reserve_bytes else 0)
        self.free_bytes = free_bytes()
        #: The next check is due at this time, or past this number of bytes written since the last.
        self.check_at = 0
        self.unseen_bytes_max = reserve_bytes // 4
        self.written_bytes = 0
        self.full = self.free_bytes < self._least_bytes
        #: The node refuses pushes while fewer bytes are free.
        self.limit_bytes = self._limit_bytes()

    def check(self, now: int) -> bool:
        """Checks the disk when due; True if the reserve is reached."""
        if now >= self.check_at or self.written_bytes > self.unseen_bytes_max:
            self.check_at, self.written_bytes = now + _POLL_US, 0
            self.free_bytes = self._free_bytes()
            full = self.free_bytes < self._limit_bytes()
            if full != self.full:
                self.full = full
                word = "disk at its reserve: pushes are refused" if full else "disk has room again"
                log.warning(word, extra=fields(free=self.free_bytes, reserve=self.reserve_bytes))
            self.limit_bytes = self._limit_bytes()
        return self.full

    def _limit_bytes(self) -> int:
        if not self.full:
            return self._least_bytes
        room = max(0, self.free_bytes + self._store_bytes() - self._least_bytes)
        return self._least_bytes + min(self.reserve_bytes // 16, room // 8)

"""Compaction: the disk follows what is alive.

LevelDB forgets deleted payloads when it happens to rewrite the tables they are in, and a queue that
was filled and then drained gives it no reason to: most of what was deleted stays. So once in a
while the node compares what the store takes with what its queues hold, and when most of it is dead
asks LevelDB to rewrite it, in a thread of its own: the node goes on serving. On a disk at its
reserve the store also gives back what it keeps for later writes.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from weft.errors import StorageError
from weft.limits import MIB
from weft.persistence import layout
from weft.persistence.leveldb import WRITE_BUFFER_BYTES
from weft.persistence.store import Store

from .log import fields

log = logging.getLogger(__name__)

#: Dead bytes that are not worth a rewrite: LevelDB's own logs and young tables. Fewer are worth it
#: when the disk is at its reserve.
SLACK_BYTES: Final = 128 * MIB
SLACK_FULL_BYTES: Final = 16 * MIB
#: What a rewrite needs besides room for what lives: LevelDB first writes out what is in memory.
ROOM_BYTES: Final = 2 * WRITE_BUFFER_BYTES


class Compaction:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._thread: threading.Thread | None = None
        self._after_bytes = 0  # what the last rewrite left: no use in trying again at once

    def look(self, live_bytes: int, free_bytes: int, *, full: bool) -> None:
        """Starts a rewrite if it is worth it, if there is room for it, and if none is going on.
        About once a second."""
        if full:
            self._store.shed()
        if self._thread is not None and self._thread.is_alive():
            return
        if free_bytes < live_bytes + ROOM_BYTES:
            return  # what lives is written again first, and a store that runs out of room fails
        size = self._store.size_bytes()
        slack = SLACK_FULL_BYTES if full else SLACK_BYTES
        if size > 2 * live_bytes + slack and size > self._after_bytes + slack:
            log.info("compacting", extra=fields(store_bytes=size, live_bytes=live_bytes))
            self._thread = threading.Thread(target=self._compact, name="compaction", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Until no rewrite is going on."""
        if self._thread is not None:
            self._thread.join()

    def _compact(self) -> None:
        try:
            for kind in (layout.BODY, layout.HEAD, layout.DEDUP):
                self._store.compact(*layout.kind_range(kind))
            self._after_bytes = self._store.size_bytes()
            log.info("compacted", extra=fields(store_bytes=self._after_bytes))
        except StorageError as error:
            # The store is closed, or has failed: then the next write says so to the node.
            log.warning("compaction ended early", extra=fields(error=str(error)))

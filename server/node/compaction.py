"""Compaction: the store's size follows the live data.

LevelDB drops deleted payloads when it happens to rewrite their tables, and a queue that was filled
and then drained gives LevelDB no reason to: most deleted data stays. So once in a while the node
compares the store's size with the bytes in its queues. When most of the store is dead, the node has
LevelDB rewrite the store, in a separate thread: the node goes on serving. On a disk at its reserve
the store also gives back the space kept for later writes.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from weft.errors import StorageError
from weft.limits import MIB
from weft.persistence import layout
from weft.persistence.leveldb_database import WRITE_BUFFER_BYTES
from weft.persistence.store import Store
from weft.server.core.node_core import NodeCore
from weft.server.observability.log import fields

log = logging.getLogger(__name__)

#: Dead bytes that are not worth a rewrite: LevelDB's own logs and young tables. When the disk is at
#: its reserve, fewer are worth a rewrite: a part of the store, which on a small disk is small.
SLACK_BYTES: Final = 128 * MIB
SLACK_FULL_BYTES: Final = 16 * MIB
SLACK_FULL_PART: Final = 8
#: Space for a rewrite besides the live data: LevelDB first writes out its memory.
ROOM_BYTES: Final = 2 * WRITE_BUFFER_BYTES


class Compaction:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._thread: threading.Thread | None = None
        #: Live bytes at the start of the last rewrite, and dead bytes left by that rewrite: another
        #: rewrite helps only when more bytes have died since.
        self._live_bytes = 0
        self._left_bytes = 0

    def check(self, live_bytes: int, free_bytes: int, *, full: bool) -> None:
        """Starts a rewrite if a rewrite is worthwhile, if there is room, and if none is running.
        Called about once a second."""
        if full:
            self._store.shed()
        if self._thread is not None and self._thread.is_alive():
            return
        if free_bytes < live_bytes + ROOM_BYTES:
            return  # live data is rewritten first, and a store without room fails
        size = self._store.size_bytes()
        slack = min(SLACK_FULL_BYTES, max(MIB, size // SLACK_FULL_PART)) if full else SLACK_BYTES
        if size > 2 * live_bytes + slack and size - live_bytes > self._left_bytes + slack:
            log.info("compacting", extra=fields(store_bytes=size, live_bytes=live_bytes))
            self._live_bytes = live_bytes
            self._thread = threading.Thread(target=self._compact, name="compaction", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Waits until no rewrite is running."""
        if self._thread is not None:
            self._thread.join()

    def _compact(self) -> None:
        try:
            for kind in (layout.BODY, layout.HEAD, layout.DEDUP):
                self._store.compact(*layout.kind_range(kind))
            size = self._store.size_bytes()
            self._left_bytes = max(0, size - self._live_bytes)
            log.info("compacted", extra=fields(store_bytes=size))
        except StorageError as error:
            # The store is closed, or has failed: then the node's next write reports the failure.
            log.warning("compaction ended early", extra=fields(error=str(error)))


def live_bytes(node_core: NodeCore, store: Store) -> int:
    """The estimated size of a store without garbage."""
    if not node_core.leads:
        return store.size_bytes()
    led = sum(each.bytes for each in node_core.engine.queues.values())
    # A followed replica is about as large as a led one.
    return led * node_core.holds // node_core.leads

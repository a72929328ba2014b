"""The background writer: runs a store's writes in a separate thread, one at a time.

While the disk syncs, the calling thread continues to work. The caller hands a write over (`begin`)
and keeps reading as if the write were done: `get` sees the write in flight and the changes gathered
for the next write. The caller must not acknowledge a change before `settle` has returned for the
write with the change. `fd` is readable when a write has ended.

Handing over a write wakes the writer thread, and the end of the write wakes the caller: worth the
cost only for a write that takes longer. A short write is better executed directly on the store,
while no write is in flight and no change is gathered (`busy`).

One thread calls all methods. At most one write is in flight, and the caller bounds the changes
gathered for the next write (`gathered_bytes`). `settle`, and every call that waits for a write,
raises the error of a failed write.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Final

from .store import Change, Store

_NAME: Final = "weft-writer"

_Job = tuple[list[Change], bool]


class BackgroundWriter:
    """A StoreReader over a store. The thread starts with the first write handed over."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        #: True while a write is in flight, or has ended and `settle` has not been called.
        self.busy = False
        self.gathered_bytes = 0
        self._under_way: dict[bytes, bytes | None] = {}
        self._gathered: dict[bytes, bytes | None] = {}
        self._sync = False
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        #: The duration of an ended write in seconds, or the error of a failed write.
        self._ends: SimpleQueue[float | BaseException] = SimpleQueue()
        self._took: float | None = None
        self._thread: threading.Thread | None = None

    @property
    def path(self) -> str:
        return self._store.path

    # --- StoreReader ---

    def get(self, key: bytes) -> bytes | None:
        if key in self._gathered:
            return self._gathered[key]
        if key in self._under_way:
            return self._under_way[key]
        return self._store.get(key)

    def get_parted(self, key: bytes, at: int) -> tuple[bytes, bytes] | None:
        if key in self._gathered or key in self._under_way:
            value = self.get(key)
            return None if value is None else (value[:at], value[at:])
        return self._store.get_parted(key, at)

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Wait for the write in flight and write the gathered changes first: a scan is rare, and
        reads only the store."""
        if self.busy:
            self._wait()
            self._under_way = {}  # older than the gathered changes, which are written now
        if self._gathered:
            changes, sync = self._take()
            self._store.write(changes, sync=sync)
        return self._store.scan(start, stop)

    # --- writes handed to the thread ---

    @property
    def gathered(self) -> bool:
        return bool(self._gathered)

    def gather(self, changes: list[Change], *, sync: bool) -> None:
        """Add changes to the next write, after the changes gathered before."""
        self._gathered.update(changes)
        self.gathered_bytes += sum([len(value) for _, value in changes if value])
        self._sync |= sync

    def begin(self) -> None:
        """Hand the gathered changes to the writer thread."""
        assert not self.busy, "one at a time"
        assert self._gathered, "nothing to write"
        self.busy = True
        self._under_way = self._gathered
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=_NAME, daemon=True)
            self._thread.start()
        self._jobs.put(self._take())

    def settle(self) -> float:
        """Wait until the write in flight is done; returns the write's duration in seconds.

        Changes that a `scan` wrote in the meantime are in the store, too.
        """
        assert self.busy, "nothing is under way"
        took = self._wait()
        os.eventfd_read(self.fd)
        self.busy = False
        self._under_way = {}
        self._took = None
        return took

    def close(self) -> None:
        """End the thread after the write in flight. Gathered changes are not written, and the
        store itself stays open."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _take(self) -> _Job:
        changes, sync = list(self._gathered.items()), self._sync
        self._gathered, self._sync, self.gathered_bytes = {}, False, 0
        return changes, sync

    def _wait(self) -> float:
        if self._took is None:
            end = self._ends.get()
            if isinstance(end, BaseException):
                self._ends.put(end)  # every later call raises the same error
                raise end
            self._took = end
        return self._took

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            changes, sync = job
            began = time.perf_counter()
            try:
                self._store.write(changes, sync=sync)
                end: float | BaseException = time.perf_counter() - began
            except BaseException as error:  # `_wait` raises the error in the caller's thread
                end = error
            del job, changes  # free the memory: the changes may be large, the next job far away
            # In this order: a caller that has received the end finds the descriptor readable.
            os.eventfd_write(self.fd, 1)
            self._ends.put(end)

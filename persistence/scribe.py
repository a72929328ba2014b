"""The scribe: carries out a store's writes in a thread of its own, one after the other.

While a disk syncs, the thread that asked for it could work on. It hands the write over (`begin`),
and goes on reading as if it were done: what is being written, and what is gathered for the write
after it, is seen by `get`. Nobody may be told of a change before `settle` has returned for the
write that it is in; that is the caller's to see to. `fd` is readable when a write has ended.

A hand-over wakes a thread, and wakes another one at its end: that is worth it for a write that
takes longer. A short one is better carried out at once, on the store itself, while nothing is under
way or gathered (`busy`).

One thread calls all of this. There is one write under way at most, and what is gathered for the
next one is bounded by the caller (`gathered_bytes`). A write that failed is raised by `settle`, and
by all that waits for one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Final

from .store import Change, Store

_NAME: Final = "weft-scribe"

_Job = tuple[list[Change], bool]


class Scribe:
    """A Reader of a store. Its thread begins with the first write that is handed over."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        #: Whether a write is under way, or has ended and is not settled.
        self.busy = False
        self.gathered_bytes = 0
        self._under_way: dict[bytes, bytes | None] = {}
        self._gathered: dict[bytes, bytes | None] = {}
        self._sync = False
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        #: The seconds of a write that has ended, or how it failed.
        self._ends: SimpleQueue[float | BaseException] = SimpleQueue()
        self._took: float | None = None
        self._thread: threading.Thread | None = None

    @property
    def path(self) -> str:
        return self._store.path

    # --- a Reader ---

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
        """Waits for what is under way, and writes what is gathered: a scan is rare, and reads what
        is in the store."""
        if self.busy:
            self._wait()
        if self._gathered:
            changes, sync = self._take()
            self._store.write(changes, sync=sync)
        return self._store.scan(start, stop)

    # --- writes that are handed over ---

    @property
    def gathered(self) -> bool:
        return bool(self._gathered)

    def gather(self, changes: list[Change], *, sync: bool) -> None:
        """For the next write, with what was gathered before."""
        self._gathered.update(changes)
        self.gathered_bytes += sum([len(value) for _, value in changes if value])
        self._sync |= sync

    def begin(self) -> None:
        """Hands over what is gathered."""
        assert not self.busy, "one at a time"
        assert self._gathered, "nothing to write"
        self.busy = True
        self._under_way = self._gathered
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=_NAME, daemon=True)
            self._thread.start()
        self._jobs.put(self._take())

    def settle(self) -> float:
        """Waits until the write under way is done; the seconds that it took.

        What is not gathered any more by then is in the store, too.
        """
        assert self.busy, "nothing is under way"
        took = self._wait()
        os.eventfd_read(self.fd)
        self.busy = False
        self._under_way = {}
        self._took = None
        return took

    def close(self) -> None:
        """Ends the thread, after the write under way. What is gathered is not written, and the
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
                self._ends.put(end)  # whoever asks again hears it again
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
            except BaseException as error:  # it is the caller's to see to, in his own thread
                end = error
            del job, changes  # they may be large, and the next may be long in coming
            # In this order: who has heard of the end finds the descriptor ready.
            os.eventfd_write(self.fd, 1)
            self._ends.put(end)

"""Counts the calls inside LevelDB: plyvel frees LevelDB even while another thread is in a call.

A call enters with ``with guard:``. After `refuse` no further call enters, and `drain` waits until
the calls inside have left.
"""

from __future__ import annotations

import threading
from typing import NoReturn

from weft.errors import StorageError


class CallGuard:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        #: Why calls are refused; None: calls may enter.
        self.refusal: StorageError | None = None
        self._empty: threading.Event | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self.refusal is not None:
                self.turn_away()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._empty is not None:
                self._empty.set()

    def turn_away(self) -> NoReturn:
        assert self.refusal is not None
        raise type(self.refusal)(self.refusal.message)

    def refuse(self, why: StorageError) -> None:
        """From now on entering raises `why`, or the error of an earlier `refuse`."""
        with self._lock:
            if self.refusal is None:
                self.refusal = why

    def drain(self) -> None:
        """Wait until no call is inside. One thread calls `drain`, once, after `refuse`."""
        with self._lock:
            assert self.refusal is not None, "others would still come in"
            assert self._empty is None, "drained before"
            self._empty = threading.Event()
            if self._inside == 0:
                return
        self._empty.wait()

"""Who is inside: plyvel frees LevelDB even while another thread is in a call, so calls are counted.

A call goes in with ``with turnstile:``. Once `refuse` was called nobody gets in any more, and
`drain` waits for those who still are.
"""

from __future__ import annotations

import threading
from typing import NoReturn

from weft.errors import StorageError


class Turnstile:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._refusal: StorageError | None = None
        self._empty: threading.Event | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._refusal is not None:
                self.turn_away()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._empty is not None:
                self._empty.set()

    @property
    def refusal(self) -> StorageError | None:
        return self._refusal

    def turn_away(self) -> NoReturn:
        assert self._refusal is not None
        raise type(self._refusal)(self._refusal.message)

    def refuse(self, why: StorageError) -> None:
        """From now on going in raises this, or what an earlier call said."""
        with self._lock:
            if self._refusal is None:
                self._refusal = why

    def drain(self) -> None:
        """Wait until nobody is inside. One thread calls this, once, after `refuse`."""
        with self._lock:
            assert self._refusal is not None, "others would still come in"
            assert self._empty is None, "drained before"
            self._empty = threading.Event()
            if self._inside == 0:
                return
        self._empty.wait()

"""The store in memory: the same contract as the store on disk, with disk faults on demand.

Tests and the simulator use this store. `crash` simulates a power loss and returns the store as the
disk would have the data. The model follows the guarantees of LevelStore: writes reach the disk in
order, each atomically; a synced write makes every earlier write durable; of the writes after the
last synced write, any prefix may survive. So the state is a durable map and a list of un-synced
writes, and nothing else.
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final

from weft.errors import StorageError

from .store import Change

#: Approximate overhead on disk that LevelDB adds to a key and a value.
ENTRY_BYTES: Final = 12


class MemoryStore:
    """A Store in memory. `crash`, `fail_next_write` and `corrupt` inject faults."""

    def __init__(self, path: str = "memory") -> None:
        self._path = path
        self._rows: dict[bytes, bytes] = {}
        #: The keys of `_rows`, sorted.
        self._keys: list[bytes] = []
        #: The rows that survive a power loss for certain: `_rows` before the un-synced writes.
        self._durable: dict[bytes, bytes] = {}
        self._unsynced: list[list[Change]] = []
        self._bytes = 0
        self._next_failure: Exception | None = None
        self._failure: str | None = None
        self._closed = False

    @property
    def path(self) -> str:
        return self._path

    def get(self, key: bytes) -> bytes | None:
        self._check()
        return self._rows.get(key)

    def get_parted(self, key: bytes, at: int) -> tuple[bytes, bytes] | None:
        value = self.get(key)
        return None if value is None else (value[:at], value[at:])

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._check()
        keys = self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, stop)]
        # Copy the rows now: a scan is a snapshot, also during concurrent writes.
        return self._checked(iter([(key, self._rows[key]) for key in keys]))

    def write(self, changes: list[Change], *, sync: bool) -> None:
        self._check()
        assert all(key for key, _ in changes), "a key is never empty"
        if self._next_failure is not None:
            # A failed write may or may not be on disk, so a crash may keep the write.
            self._unsynced.append(list(changes))
            self._failure = f"{self._path}: a write failed: {self._next_failure}"
            raise StorageError(self._failure) from self._next_failure
        for key, value in changes:
            self._apply(key, value)
        self._unsynced.append(list(changes))
        if sync:
            _settle(self._durable, self._unsynced)
            self._unsynced.clear()

    def compact(self, start: bytes, stop: bytes) -> None:
        self._check()

    def shed(self) -> None:
        self._check()

    def size_bytes(self) -> int:
        self._check()
        return self._bytes

    def close(self) -> None:
        self._closed = True

    def crash(self, rng: random.Random | None = None) -> MemoryStore:
        """The store as the disk has the data after a power loss now; closes the current store.

        Every synced write survives. Of the later writes a prefix survives: ``rng`` draws the
        length, and without ``rng`` no later write survives.
        """
        kept = rng.randint(0, len(self._unsynced)) if rng else 0
        left = dict(self._durable)
        _settle(left, self._unsynced[:kept])
        after = MemoryStore(self._path)
        after.write(list(left.items()), sync=True)
        self.close()
        return after

    def fail_next_write(self, error: Exception) -> None:
        """The next write raises StorageError, caused by ``error``; then the store is failed."""
        self._next_failure = error

    def corrupt(self, key: bytes, rng: random.Random) -> None:
        """Flip one bit of the value stored under ``key``, as a bad disk would."""
        value = bytearray(self._rows[key])
        assert value, f"the value under {key.hex()} is empty: it has no bit to flip"
        value[rng.randrange(len(value))] ^= 1 << rng.randrange(8)
        self._rows[key] = bytes(value)
        # The damage must survive a crash: flip the newest un-synced write of the key, or the
        # durable value.
        for changes in reversed(self._unsynced):
            for place in reversed(range(len(changes))):
                if changes[place][0] == key:
                    changes[place] = key, bytes(value)
                    return
        self._durable[key] = bytes(value)

    def _check(self) -> None:
        if self._failure is not None:
            raise StorageError(self._failure)
        if self._closed:
            raise StorageError(f"{self._path}: the store is closed; open it again to use it")

    def _checked(self, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        for row in rows:
            self._check()
            yield row

    def _apply(self, key: bytes, value: bytes | None) -> None:
        old = self._rows.pop(key, None)
        if old is not None:
            self._bytes -= ENTRY_BYTES + len(key) + len(old)
        if value is not None:
            self._rows[key] = value
            self._bytes += ENTRY_BYTES + len(key) + len(value)
        if old is None and value is not None:
            insort(self._keys, key)
        elif old is not None and value is None:
            del self._keys[bisect_left(self._keys, key)]


def _settle(rows: dict[bytes, bytes], writes: list[list[Change]]) -> None:
    for changes in writes:
        for key, value in changes:
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value

"""The reads of a LevelDB store, and its errors: the base of `LevelStore`.

A read verifies LevelDB's checksums, and follows a pointer into a segment. Every failure of LevelDB
becomes a Weft error that names the damaged file, or the next step.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from typing import Any, Final

import plyvel

from weft.errors import StorageError, StoreDamaged
from weft.limits import MIB

from . import integrity
from .call_guard import CallGuard
from .integrity import RESTORE
from .leveldb_database import error_text
from .segment_pointer import pointer_of
from .segments import SegmentStore

#: A scan copies up to this many bytes or rows out of LevelDB at a time, and at least one row. Two
#: chunks have too few rows to start Python's cycle collector, which would traverse each row.
SCAN_BYTES: Final = 1 * MIB
SCAN_ROWS: Final = 256
#: Prefix of the store's own keys, the usage records of segments. All other keys sort before it.
OWN: Final = b"\xff\xff\xff\xff"
_value = itemgetter(1)


class LevelReader:
    """Any thread may read."""

    _db: Any
    _segments: SegmentStore

    def __init__(self, path: str) -> None:
        self._path = path
        self._call_guard = CallGuard()
        #: Scans still in use: such a scan may read values deleted since the scan began.
        self._scans: weakref.WeakSet[Iterator[tuple[bytes, bytes]]] = weakref.WeakSet()

    @property
    def path(self) -> str:
        return self._path

    def get(self, key: bytes) -> bytes | None:
        assert key, "the empty key is the store's own"
        with self._call_guard:
            try:
                value: bytes | None = self._db.get(key, verify_checksums=True)
                if pointer_of(value) is None:
                    return value
                parts = self._beside(key, value, 0)
                return None if parts is None else parts[1]
            except (plyvel.Error, OSError) as error:
                raise self._unreadable(error, key, key) from error

    def get_parted(self, key: bytes, at: int) -> tuple[bytes, bytes] | None:
        assert key, "the empty key is the store's own"
        with self._call_guard:
            try:
                return self._beside(key, self._db.get(key, verify_checksums=True), at)
            except (plyvel.Error, OSError) as error:
                raise self._unreadable(error, key, key) from error

    def _beside(self, key: bytes, value: bytes | None, at: int) -> tuple[bytes, bytes] | None:
        """The value under a key, in two parts; follows a pointer into a segment."""
        while (pointer := pointer_of(value)) is not None:
            try:
                if at:
                    return self._segments.read_parted(pointer, at)
                return b"", self._segments.read(pointer)
            except StoreDamaged:
                before, value = value, self._db.get(key, verify_checksums=True)
                if value == before:  # no concurrent write moved or deleted the value
                    raise
        return None if value is None else (value[:at], value[at:])

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        start, stop = max(start, b"\0"), min(stop, OWN)
        with self._call_guard:
            try:
                rows = self._db.iterator(
                    start=start, stop=stop, verify_checksums=True, fill_cache=False
                )
            except (plyvel.Error, OSError) as error:
                raise self._unreadable(error, start, stop) from error
        scan = self._rows(rows, start, stop)
        self._scans.add(scan)
        return scan

    def _rows(self, rows: Any, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Copy rows a chunk at a time; each copy holds the call guard, which delays `close`."""
        count = 1
        try:
            while chunk := self._chunk(rows, count, start, stop):
                start = chunk[-1][0]
                yield from chunk
                size = sum(map(len, map(_value, chunk))) // len(chunk)
                count = max(1, min(2 * count, SCAN_ROWS, SCAN_BYTES // (size + 1)))
        finally:
            rows.close()

    def _chunk(self, rows: Any, count: int, start: bytes, stop: bytes) -> list[tuple[bytes, bytes]]:
        with self._call_guard:
            try:
                return [self._whole(row) for row in islice(rows, count)]
            except (plyvel.Error, OSError) as error:
                raise self._unreadable(error, start, stop) from error

    def _whole(self, row: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        pointer = pointer_of(row[1])
        return row if pointer is None else (row[0], self._segments.read(pointer))

    def _usages(self) -> dict[int, bytes]:
        try:
            rows = self._db.iterator(start=OWN, verify_checksums=True)
            return {int.from_bytes(key[len(OWN) :], "big"): value for key, value in rows}
        except plyvel.Error as error:
            raise self._unreadable(error, b"", None) from error

    def _unreadable(self, error: Exception, start: bytes, stop: bytes | None) -> StoreDamaged:
        where = integrity.find_bad_table(self._path, start, stop)
        return StoreDamaged(f"{where} cannot be read: {error_text(error)}. {RESTORE}")

    def _failed(self, error: Exception) -> StorageError:
        """Refuse every later call; returns the error that explains the refusal."""
        if isinstance(error, plyvel.CorruptionError):
            # A background compaction found the damage; LevelDB reports it at the next write.
            where = integrity.find_bad_table(self._path, b"", None)
            failure: StorageError = StoreDamaged(
                f"{where} cannot be read: {error_text(error)}. {RESTORE}"
            )
        else:
            failure = StorageError(
                f"{self._path}: a write failed: {error_text(error)}. The store accepts "
                "no more writes: free disk space or replace the disk, then start the node again"
            )
        self._call_guard.refuse(failure)
        return failure

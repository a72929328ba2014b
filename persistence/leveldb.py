"""The store on disk: LevelDB through plyvel, with every failure mapped to a Weft error.

The store adds to LevelDB:

- Each write carries a commit number under the empty key. A mark beside LevelDB (`sync_mark`) holds
  the highest synced commit number. Opening the store examines the files first (`integrity`) and
  compares the two numbers. The cost is some 20 bytes and one small write to a cached file per
  write, never an fsync.
- A synced write makes every earlier write durable. LevelDB does not sync a full log when LevelDB
  begins the next log, so after un-synced writes the store syncs the older logs.
- A read verifies LevelDB's checksums, also outside of compactions.
- After a failed write the store refuses every call: LevelDB would continue, and lose writes that
  LevelDB acknowledges.
- Large payloads are stored in `segments`, and LevelDB holds pointers to the payloads.

The store detects the following at open, or when the damaged bytes are read, and raises
StoreDamaged with the name of the file: any changed bit that matters, any missing or shortened file,
any gap in the logs. In detail, for a shortened log or MANIFEST:

| the store was           | detected                                                             |
|-------------------------|----------------------------------------------------------------------|
| closed                  | always                                                               |
| killed                  | always for synced writes; un-synced writes may be missing silently   |
| struck by a power loss  | for writes older than the mark, which the system writes back every   |
|                         | half minute or so; a younger end can be cut off without a trace      |

Not detected: a whole directory restored to an earlier state. Only a replica can detect such a loss.
A power loss in the middle of un-synced writes may also leave a log that LevelDB refuses: opening
then raises StoreDamaged and never opens a store with a gap.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from typing import Any, Final

import plyvel

from weft.errors import StorageError, StoreDamaged
from weft.limits import MIB

from . import integrity, layout
from .call_guard import CallGuard
from .integrity import COMMIT_KEY, RESTORE
from .leveldb_database import (
    error_text,
    folder_bytes,
    give_back_memory,
    make_database,
    open_database,
    sync_logs,
)
from .segment_pointer import Pointer, pointer_of, stands_aside
from .segments import SegmentStore
from .store import Change

#: 0xff bytes appended to a key's kind: the result sorts after every key of the kind.
_KEY_BYTES_PAST: Final = 16
#: A write batch that was larger than this is freed and not reused.
KEPT_BYTES_MAX: Final = 4 * MIB
#: A scan copies up to this many bytes or rows out of LevelDB at a time, and at least one row. Two
#: chunks have too few rows to start Python's cycle collector, which would traverse each row.
SCAN_BYTES: Final = 1 * MIB
SCAN_ROWS: Final = 256
#: Values examined per step while the store empties a segment; other writers run between two steps.
MOVED_AT_ONCE: Final = 16

#: Prefix of the store's own keys, the standings of segments. No other key sorts after the prefix.
_OWN: Final = b"\xff\xff\xff\xff"
#: The kind of key with payloads; large values of this kind move to a segment.
_BODY: Final = layout.BODY

_value = itemgetter(1)


class LevelStore:
    """A Store in one directory. One thread writes; any thread may read, compact or close."""

    def __init__(self, path: str | os.PathLike[str], *, create: bool) -> None:
        """Open the store in ``path``; with ``create``, create the store if ``path`` is empty."""
        self._path = os.fspath(path)
        self._call_guard = CallGuard()
        #: Serializes writes: `compact` writes too, possibly from another thread.
        self._writing = threading.Lock()
        #: The commit number of the newest write.
        self._commit: int
        try:
            if create and not (os.path.isdir(self._path) and os.listdir(self._path)):
                self._db, self._mark = make_database(self._path)
                self._commit = 0
            else:
                self._db, self._mark, self._commit = open_database(self._path)
                give_back_memory()
        except OSError as error:
            raise StorageError(
                f"{self._path} cannot be opened: {error_text(error)}. "
                "Check the disk, and that this user may write there"
            ) from error
        try:
            self._segments = SegmentStore(self._path, self._standings())
        except BaseException:
            self._db.close()
            self._mark.close()
            raise
        #: Scans still in use: such a scan may read values deleted since the scan began.
        self._scans: weakref.WeakSet[Iterator[tuple[bytes, bytes]]] = weakref.WeakSet()
        self._closing = False
        #: Empty write batches, by their sync flag, reused so that their memory need not grow again.
        self._batches: dict[bool, Any] = {}
        #: True if the last write was not synced.
        self._unsynced = False

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
        start, stop = max(start, b"\0"), min(stop, _OWN)
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

    def write(self, changes: list[Change], *, sync: bool) -> None:
        # `close` takes the same lock, so no writer is inside LevelDB when `close` frees LevelDB.
        with self._writing:
            if self._call_guard.refusal is not None:
                self._call_guard.turn_away()
            self._write(changes, sync=sync)

    def _write(self, changes: list[Change], *, sync: bool, moves: bool = False) -> None:
        """Write one batch. With `moves`, sync the segments before LevelDB points there even if the
        batch itself is not synced: after a power loss a moved value exists here or at the old
        place."""
        batch = self._batches.get(sync)
        if batch is None:
            batch = self._batches[sync] = self._db.write_batch(sync=sync)
        commit = self._commit + 1
        batch.put(COMMIT_KEY, commit.to_bytes(8, "big"))
        segments = self._segments
        sync_aside = sync or moves
        size = 0
        try:
            aside: dict[bytes, Pointer | None] = {}
            for key, value in changes:
                assert b"" < key < _OWN, "the empty key and the last ones are the store's own"
                if key[:1] == _BODY and (segments.standing or stands_aside(value)):
                    value = self._aside(key, value, aside, sync=sync_aside)
                if value is None:
                    batch.delete(key)
                else:
                    batch.put(key, value)
                    size += len(value)
            # Also flush values of earlier writes: this sync makes their pointers durable.
            if aside or (sync and segments.unsynced):
                segments.flush(sync=sync_aside)
            if segments.touched:
                self._put_standings(batch)
            batch.write()
            self._commit = commit
            if sync:
                if self._unsynced:
                    sync_logs(self._path)
                self._mark.advance(commit)
            self._unsynced = not sync
            if segments.dead:
                self._remove_dead(keep=sync)
        except (plyvel.Error, OSError) as error:
            raise self._failed(error) from error
        finally:
            if size > KEPT_BYTES_MAX:
                self._batches.clear()
            else:
                batch.clear()

    def _put_standings(self, batch: Any) -> None:
        for number, standing in self._segments.standings():
            if standing is None:
                batch.delete(_standing_key(number))
            else:
                batch.put(_standing_key(number), standing)

    def _aside(
        self, key: bytes, value: bytes | None, aside: dict[bytes, Pointer | None], *, sync: bool
    ) -> bytes | None:
        """The value for LevelDB in place of a large payload. Frees the previous segment value."""
        before = aside[key] if key in aside else pointer_of(self._db.get(key))
        if before is not None:
            self._segments.free(before)
        pointer = None
        if value and stands_aside(value):
            pointer = self._segments.append(key, value, sync=sync)
        if before is not None or pointer is not None:
            aside[key] = pointer
        return value if pointer is None else pointer.packed()

    def _remove_dead(self, *, keep: bool) -> None:
        if self._unsynced:  # otherwise a power loss would bring the pointers back
            self._segments.flush(sync=True)
            sync_logs(self._path)
            self._unsynced = False
        self._segments.remove_dead(scans=bool(self._scans), keep=keep)

    def compact(self, start: bytes, stop: bytes) -> None:
        # LevelDB merges a table only into the level below. LevelDB writes a memtable that overlaps
        # no table to a low level at once, with all dead entries, and leaves the new table as is. So
        # the first pass writes the memtable out, and the second pass merges tombstones, which span
        # the range, down to the last table. (The write also begins the log: LevelDB starts a new
        # log for a compaction, and an empty log before the new one would look like a lost log.)
        ends = start + b"\0", stop[:-1] + bytes([stop[-1] - 1]) + b"\xff" * _KEY_BYTES_PAST
        for _ in range(2):
            self.write([(key, None) for key in ends if self.get(key) is None], sync=False)
            with self._call_guard:
                try:
                    # Pass both bounds: plyvel takes a missing bound for the empty key.
                    self._db.compact_range(start=start, stop=stop)
                except (plyvel.Error, OSError) as error:
                    raise self._failed(error) from error
        if start <= _BODY < stop:
            for number in self._segments.mostly_dead():
                self._empty(number)
            self.shed()
            self._segments.settle()

    def _empty(self, number: int) -> None:
        """Rewrite the live values of a segment, a few at a time; then remove the segment."""
        rows = self._segments.records(number)
        while some := list(islice(rows, MOVED_AT_ONCE)):
            with self._writing, self._call_guard:
                moved = [row for each in some for row in self._alive(number, *each)]
                self._write(moved, sync=False, moves=True)
        with self._writing, self._call_guard:
            self._segments.emptied(number)
            self._write([], sync=False)

    def _alive(self, number: int, key: bytes, offset: int, length: int) -> list[Change]:
        pointer = pointer_of(self._db.get(key, verify_checksums=True))
        if pointer is None or pointer[:3] != (number, offset, length):
            return []
        return [(key, self._segments.read(pointer))]

    def shed(self) -> None:
        with self._writing:
            self._segments.drop_spares()
            if self._segments.end_dead():
                # The file is removed when the write that freed its last value is on disk.
                with self._call_guard:
                    self._write([], sync=True)

    def size_bytes(self) -> int:
        with self._call_guard:
            return max(0, folder_bytes(self._path) - self._segments.spare_bytes)

    def close(self) -> None:
        with self._writing:
            if not self._closing:
                self._closing = True
                self._close()

    def _close(self) -> None:
        failed = self._call_guard.refusal is not None
        self._call_guard.refuse(
            StorageError(f"{self._path}: the store is closed; open it again to use it")
        )
        self._call_guard.drain()
        try:
            try:
                self._segments.close()
            finally:
                self._db.close()
            if not failed:
                sync_logs(self._path)
                self._mark.settle(self._commit)
        except (plyvel.Error, OSError) as error:
            raise self._failed(error) from error
        finally:
            self._mark.close()

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

    def _standings(self) -> dict[int, bytes]:
        try:
            rows = self._db.iterator(start=_OWN, verify_checksums=True)
            return {int.from_bytes(key[len(_OWN) :], "big"): value for key, value in rows}
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
                f"{self._path}: a write failed: {error_text(error)}. Nothing more is written: "
                "make room on the disk or replace it, then start the node again"
            )
        self._call_guard.refuse(failure)
        return failure


def _standing_key(number: int) -> bytes:
    return _OWN + number.to_bytes(4, "big")

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

import ctypes
import os
import threading
import weakref
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from typing import Any, Final

import plyvel

from weft.errors import StorageError, StoreDamaged, StoreLocked
from weft.limits import KIB, MIB

from . import integrity, layout
from .call_guard import CallGuard
from .integrity import COMMIT_KEY, RESTORE
from .segments import Pointer, SegmentStore, pointer_of, stands_aside
from .store import Change
from .sync_mark import SyncMark, sync_folder

#: LevelDB converts a log into a table at this size. A larger value means fewer tables on level 0
#: and so less rewriting, but a restart replays this much and memory holds twice this much.
WRITE_BUFFER_BYTES: Final = 32 * MIB
#: 0xff bytes appended to a key's kind: the result sorts after every key of the kind.
_KEY_BYTES_PAST: Final = 16
#: Tables kept open; each table costs a file descriptor and the memory of the table's index.
OPEN_FILES_MAX: Final = 512
#: Size of one table. Payloads are large: the default of 2 MiB would hold a dozen payloads, and
#: merging would constantly open and close files.
TABLE_BYTES_MAX: Final = 16 * MIB
#: Scans read heads, and payloads are larger than any block: a middle size serves both.
BLOCK_BYTES: Final = 16 * KIB
#: The block cache for reads.
CACHE_BYTES: Final = 32 * MIB
#: Ten bits per key: one in a hundred look-ups of an absent key still reads a table.
BLOOM_BITS: Final = 10
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
                self._db, self._mark = _make(self._path)
                self._commit = 0
            else:
                self._db, self._mark, self._commit = _open(self._path)
                _give_back_memory()
        except OSError as error:
            raise StorageError(
                f"{self._path} cannot be opened: {_text(error)}. "
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
                    _sync_logs(self._path)
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
            _sync_logs(self._path)
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
            return max(0, _folder_bytes(self._path) - self._segments.spare_bytes)

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
                _sync_logs(self._path)
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
        return StoreDamaged(f"{where} cannot be read: {_text(error)}. {RESTORE}")

    def _failed(self, error: Exception) -> StorageError:
        """Refuse every later call; returns the error that explains the refusal."""
        if isinstance(error, plyvel.CorruptionError):
            # A background compaction found the damage; LevelDB reports it at the next write.
            where = integrity.find_bad_table(self._path, b"", None)
            failure: StorageError = StoreDamaged(
                f"{where} cannot be read: {_text(error)}. {RESTORE}"
            )
        else:
            failure = StorageError(
                f"{self._path}: a write failed: {_text(error)}. Nothing more is written: make room "
                "on the disk or replace it, then start the node again"
            )
        self._call_guard.refuse(failure)
        return failure


def _standing_key(number: int) -> bytes:
    return _OWN + number.to_bytes(4, "big")


def _make(path: str) -> tuple[Any, SyncMark]:
    os.makedirs(path, exist_ok=True)
    db = _level(path, create=True)
    try:
        return db, SyncMark(path, create=True)
    except BaseException:
        db.close()
        raise


def _open(path: str) -> tuple[Any, SyncMark, int]:
    if not os.path.exists(path):
        raise StoreDamaged(f"{path} is missing. {RESTORE}")
    mark = SyncMark(path, create=False)
    try:
        empty_logs = integrity.check(path, mark.commit)
        db = _level(path, create=False)
        try:
            # LevelDB has created new files and does not sync the folder after the last one.
            sync_folder(path)
            commit = _read_commit(db, path)
            if commit < mark.commit:
                raise integrity.ends_early(empty_logs, commit, mark.commit)
        except BaseException:
            db.close()
            raise
    except BaseException:
        mark.close()
        raise
    return db, mark, commit


def _read_commit(db: Any, path: str) -> int:
    try:
        return integrity.unpack_commit(db.get(COMMIT_KEY, verify_checksums=True))
    except plyvel.Error as error:
        where = integrity.find_bad_table(path, COMMIT_KEY, COMMIT_KEY)
        raise StoreDamaged(f"{where} cannot be read: {_text(error)}. {RESTORE}") from error


def _level(path: str, *, create: bool) -> Any:
    try:
        return plyvel.DB(
            path,
            create_if_missing=create,
            # Without paranoid_checks LevelDB silently drops unreadable parts of its log.
            paranoid_checks=True,
            # Producers compress large payloads; compressing twice only costs time.
            compression=None,
            write_buffer_size=WRITE_BUFFER_BYTES,
            max_open_files=OPEN_FILES_MAX,
            max_file_size=TABLE_BYTES_MAX,
            block_size=BLOCK_BYTES,
            lru_cache_size=CACHE_BYTES,
            bloom_filter_bits=BLOOM_BITS,
        )
    except plyvel.IOError as error:
        text = _text(error)
        if text.startswith("IO error: lock "):
            raise StoreLocked(
                f"{path} is already open. Stop the process that has it, or give another --data"
            ) from error
        raise OSError(text) from error
    except plyvel.Error as error:
        where = integrity.find_bad_records(path)
        raise StoreDamaged(f"{where} cannot be read: {_text(error)}. {RESTORE}") from error


def _sync_logs(path: str) -> None:
    for log in integrity.log_paths(path):
        try:
            fd = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # LevelDB removes a log once a synced table holds the log's contents.
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _text(error: Exception) -> str:
    """LevelDB's message; plyvel passes the message on as bytes."""
    said = error.args[0] if len(error.args) == 1 else error
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)


def _folder_bytes(path: str) -> int:
    total = 0
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                total += entry.stat().st_size
            except FileNotFoundError:
                continue  # LevelDB removes old files in the background.
    return total


def _give_back_memory() -> None:
    """Return freed memory to the system. During recovery LevelDB reads its log into memory, up to a
    write buffer, and frees the memory. The C library would keep the memory for this thread, but a
    node writes in another thread."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # only glibc has malloc_trim
        trim(0)

"""The store on disk: LevelDB through plyvel, with every failure mapped to a Weft error.

The store adds to LevelDB:

- Each write carries a commit number under the empty key. A mark beside LevelDB (`SyncMark`) holds
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

import fcntl
import mmap
import os
import struct
import threading
from itertools import islice
from typing import Any, Final

import plyvel
import xxhash

from weft.errors import StorageError, StoreDamaged, StoreLocked
from weft.limits import MIB

from . import layout, segment_pointer
from .folder import folder_bytes, sync_folder
from .integrity import COMMIT_KEY, RESTORE
from .leveldb_database import error_text, give_back_memory, make_database, open_database, sync_logs
from .leveldb_reader import OWN, LevelReader
from .segment_pointer import MAGIC, Pointer, pointer_of, stands_aside
from .segments import SegmentStore
from .store import Change

#: 0xff bytes appended to a key's kind: the result sorts after every key of the kind.
_KEY_BYTES_PAST: Final = 16
#: A write batch that was larger than this is freed and not reused.
KEPT_BYTES_MAX: Final = 4 * MIB
#: Values examined per step while the store empties a segment; other writers run between two steps.
MOVED_AT_ONCE: Final = 16

#: The kind of key with payloads; large values of this kind move to a segment.
_BODY: Final = layout.BODY

NAME: Final = "SYNCED"
_SLOT_BYTES: Final = 16
_FILE_BYTES: Final = 2 * _SLOT_BYTES
_slot = struct.Struct(">QQ")


class SyncMark:
    """The mark: the highest synced commit number, kept beside LevelDB in the file ``SYNCED``.

    When a write is known to be on disk, the store puts the write's number into this file, without
    waiting for the disk. So the mark is never ahead of the durable writes, and a store with fewer
    writes than the mark has lost an acknowledged write. The file is mapped into memory, so
    advancing the mark takes no system call. (On a full copy-on-write file system the kernel ends
    the process there, as a failed write would end the node.)

    - A killed process leaves the mark exact: the operating system has the page.
    - A power loss leaves the mark as last written back by the system, typically some seconds old.
    - `settle`, at a clean close, waits for the disk: from then on the mark is exact.

    The store writes two slots in turn, each with a checksum, so one slot is always intact. The file
    is locked (flock) while the store is open, so no process examines files that another writes.
    """

    def __init__(self, folder: str, *, create: bool) -> None:
        """Open the mark in ``folder``; with ``create``, create the mark with value 0."""
        self.path = os.path.join(folder, NAME)
        self._memory: mmap.mmap | None = None
        made = os.O_CREAT | os.O_EXCL if create else 0
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | made, 0o644)
        except FileNotFoundError:
            raise self._unknown("is missing") from None
        try:
            self._lock(folder)
            if create:
                os.pwrite(self._fd, _pack(0) * 2, 0)
                os.fsync(self._fd)
                sync_folder(folder)
            if os.fstat(self._fd).st_size < _FILE_BYTES:
                raise self._unknown("is not readable")
            self._memory = memory = mmap.mmap(self._fd, _FILE_BYTES)
            self._slots = [_unpack(memory, slot) for slot in (0, 1)]
            if self._slots == [None, None]:
                raise self._unknown("is not readable")
        except BaseException:
            self.close()
            raise

    def _lock(self, folder: str) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreLocked(
                f"{folder} is open in another process. Stop that process, or set another --data"
            ) from None

    def _unknown(self, why: str) -> StoreDamaged:
        return StoreDamaged(
            f"{self.path} {why}: this file records how much was synced. "
            "Restore this data directory from a backup or a replica"
        )

    @property
    def commit(self) -> int:
        """The highest commit number known to be on disk; so are all earlier writes."""
        return max(commit for commit in self._slots if commit is not None)

    def advance(self, commit: int) -> None:
        """Record that writes up to ``commit`` are on disk."""
        first, second = self._slots
        # Overwrite the older slot, so the newer slot stays intact if this write is cut off.
        slot = 0 if first is None or (second is not None and first <= second) else 1
        assert self._memory is not None
        _slot.pack_into(self._memory, slot * _SLOT_BYTES, commit, _checksum(commit))
        self._slots[slot] = commit

    def settle(self, commit: int) -> None:
        """Record that writes up to ``commit`` are on disk, and sync the mark itself."""
        self.advance(commit)
        assert self._memory is not None
        self._memory.flush()
        os.fsync(self._fd)

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class LevelStore(LevelReader):
    """A Store in one directory. One thread writes; any thread may read, compact or close."""

    def __init__(self, path: str | os.PathLike[str], *, create: bool) -> None:
        """Open the store in ``path``; with ``create``, create the store if ``path`` is empty."""
        super().__init__(os.fspath(path))
        #: Serializes writes: `compact` writes too, possibly from another thread.
        self._writing = threading.Lock()
        #: The commit number of the newest write.
        self._commit: int
        try:
            if create and not (os.path.isdir(self._path) and os.listdir(self._path)):
                self._db, self._mark, self._commit = _make(self._path)
            else:
                self._db, self._mark, self._commit = _open(self._path)
                give_back_memory()
        except OSError as error:
            raise StorageError(
                f"{self._path} cannot be opened: {error_text(error)}. "
                "Check the disk, and that this user may write there"
            ) from error
        try:
            self._segments = SegmentStore(self._path, self._usages())
        except BaseException:
            self._db.close()
            self._mark.close()
            raise
        self._closing = False
        #: Empty write batches, by their sync flag, reused so that their memory need not grow again.
        self._batches: dict[bool, Any] = {}
        #: True if the last write was not synced.
        self._unsynced = False

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
            large_bytes = segment_pointer.LARGE_BYTES
            for key, value in changes:
                assert b"" < key < OWN, "the empty key and the last ones are the store's own"
                if key[:1] == _BODY and (
                    segments.usage
                    or (value is not None and (len(value) >= large_bytes or value[:8] == MAGIC))
                ):
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
                self._put_usages(batch)
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

    def _put_usages(self, batch: Any) -> None:
        for number, usage in self._segments.usages():
            if usage is None:
                batch.delete(_usage_key(number))
            else:
                batch.put(_usage_key(number), usage)

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


def _usage_key(number: int) -> bytes:
    return OWN + number.to_bytes(4, "big")


def _make(path: str) -> tuple[Any, SyncMark, int]:
    """An empty database with a mark of 0."""
    db = make_database(path)
    try:
        return db, SyncMark(path, create=True), 0
    except BaseException:
        db.close()
        raise


def _open(path: str) -> tuple[Any, SyncMark, int]:
    """The existing database in ``path``, its mark, and the commit number of its newest write."""
    if not os.path.exists(path):
        raise StoreDamaged(f"{path} is missing. {RESTORE}")
    mark = SyncMark(path, create=False)
    try:
        db, commit = open_database(path, mark.commit)
    except BaseException:
        mark.close()
        raise
    return db, mark, commit


def _pack(commit: int) -> bytes:
    return _slot.pack(commit, _checksum(commit))


def _unpack(memory: mmap.mmap, slot: int) -> int | None:
    commit, checksum = _slot.unpack_from(memory, slot * _SLOT_BYTES)
    return int(commit) if checksum == _checksum(commit) else None


def _checksum(commit: int) -> int:
    return xxhash.xxh3_64_intdigest(commit.to_bytes(8, "big"))

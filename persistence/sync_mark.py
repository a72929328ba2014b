"""The mark: the highest synced commit number, kept beside LevelDB in the file ``SYNCED``.

Every write has a commit number, one more than the last. When a write is known to be on disk, the
store puts the write's number into this file, without waiting for the disk. So the mark is never
ahead of the durable writes, and a store with fewer writes than the mark has lost an acknowledged
write. The file is mapped into memory, so advancing the mark takes no system call. (On a full
copy-on-write file system the kernel ends the process there, as a failed write would end the node.)

- A killed process leaves the mark exact: the operating system has the page.
- A power loss leaves the mark as last written back by the system, typically some seconds old.
- `settle`, at a clean close, waits for the disk: from then on the mark is exact.

The store writes two slots in turn, each with a checksum, so one slot is always intact. The file is
locked (flock) while the store is open, so no process examines files that another process writes.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from typing import Final

import xxhash

from weft.errors import StoreDamaged, StoreLocked

NAME: Final = "SYNCED"
_SLOT_BYTES: Final = 16
_FILE_BYTES: Final = 2 * _SLOT_BYTES
_slot = struct.Struct(">QQ")


class SyncMark:
    """The open mark of one store."""

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
                f"{folder} is already open. Stop the process that has it, or give another --data"
            ) from None

    def _unknown(self, why: str) -> StoreDamaged:
        return StoreDamaged(
            f"{self.path} {why}: it says how much was synced. "
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


def sync_folder(path: str) -> None:
    """Sync the folder: make created, renamed and removed entries of ``path`` durable."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _pack(commit: int) -> bytes:
    return _slot.pack(commit, _checksum(commit))


def _unpack(memory: mmap.mmap, slot: int) -> int | None:
    commit, checksum = _slot.unpack_from(memory, slot * _SLOT_BYTES)
    return int(commit) if checksum == _checksum(commit) else None


def _checksum(commit: int) -> int:
    return xxhash.xxh3_64_intdigest(commit.to_bytes(8, "big"))

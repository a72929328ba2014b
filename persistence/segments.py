"""Segments: large values are appended to separate files, and LevelDB stores only pointers.

LevelDB writes a value at least twice, into a log and then into a table, with a checksum in software
each time, although most payloads are acked and deleted by then. The store instead appends a large
payload to a segment, once, and LevelDB keeps a *pointer* under the payload's key
(`segment_pointer`). A segment is removed as soon as no value in the segment is alive;
`LevelStore.compact` empties a segment with few live values.

- Bytes before pointers: a segment is synced before the write that points into the segment. So every
  pointer in LevelDB refers to a complete value, and bytes that a crash left behind the last
  referenced value are garbage.
- Pointers before unlink: a segment is unlinked only when the write that freed the segment's last
  value is on disk.
- For each segment LevelDB has a *usage record*, changed in the same write as the pointers: the
  number of live bytes, and the length of the file. A missing or shorter file is damage, and the
  error names the file.
- The files of some dead segments are recycled as the next segments (*spares*): their blocks are
  allocated and their pages are in memory, so a burst is written faster and no file has to be
  removed. Old contents are never read as a value: pointers refer only to bytes written and synced
  since, no reader goes past the end in the usage record, and a write without a sync first truncates
  the old contents.

A record in a segment: lengths of key and value, the key, the value; the pointer has a checksum.
"""

from __future__ import annotations

import os
import re
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

import xxhash

from weft.errors import StoreDamaged
from weft.limits import MIB

from .file_remover import FileRemover
from .folder import sync_folder
from .segment_pointer import Pointer

#: A segment of this size is full; the next value begins a new segment.
SEGMENT_BYTES: Final = 16 * MIB
#: Files kept for reuse: a burst of 256 MiB. Spares do not count as the store's size but take room
#: on the disk, so the store keeps spares only where four times as much is free.
SPARES_MAX: Final = 16
SPARES_FREE_MIN: Final = 4 * SPARES_MAX * SEGMENT_BYTES
#: Segments kept open for reading.
OPEN_MAX: Final = 64
#: Buffers per system call.
_BUFFERS_MAX: Final = 1000
_RESTORE: Final = "Restore this data directory from a backup or a replica"
_NAME = re.compile(r"([0-9]{6,})\.segment")
_usage = struct.Struct(">QQ")
_record = struct.Struct(">II")


class _Usage:
    __slots__ = ("end", "live")

    def __init__(self, live: int, end: int) -> None:
        self.live = live
        self.end = end


class SegmentStore:
    """All segments of one store. One thread appends; any thread may read."""

    def __init__(self, folder: str, usages: dict[int, bytes]) -> None:
        """Check the files against LevelDB's usage records, and remove files that a crash left."""
        self._folder = folder
        #: The usage record of each segment, by number.
        self.usage = {n: _Usage(*_usage.unpack(one)) for n, one in usages.items()}
        found = {int(name[1]) for name in map(_NAME.fullmatch, os.listdir(folder)) if name}
        #: The segment under append. The file is created with the first value.
        self._current = max(found | self.usage.keys(), default=0)
        #: Segments with a changed usage record, not yet written to LevelDB.
        self.touched = {number for number, one in self.usage.items() if not one.live}
        for number in self.touched:
            del self.usage[number]
        for number, usage in self.usage.items():
            self._check(number, usage)
        for number in found - self.usage.keys():
            os.unlink(self._path(number))
        self._fd = -1
        self._at = 0  # bytes written to the current segment; the file may be longer
        self._size = 0
        #: Numbers of dead segments with a recycled file, and the sizes of the files.
        self._recycled_segments: dict[int, int] = {}
        self._buffers: list[bytes] = []
        self.unsynced: set[int] = set()  # segments with bytes that may not be on disk
        self._made = False  # True if the folder needs a sync, too
        self.dead: list[int] = []  # segments to remove
        self._lock = threading.Lock()  # held while a descriptor of `_open` or `_retired` is in use
        self._open: OrderedDict[int, int] = OrderedDict()
        self._retired: dict[int, int] = {}
        self._file_remover = FileRemover()

    def _check(self, number: int, usage: _Usage) -> None:
        path = self._path(number)
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            raise StoreDamaged(f"{path} is missing: it holds messages. {_RESTORE}") from None
        if size < usage.end:
            raise StoreDamaged(f"{path} ends early, at {size} of {usage.end}. {_RESTORE}")

    # --- writing ---

    def append(self, key: bytes, value: bytes, *, sync: bool) -> Pointer:
        """Buffer a value for the next `flush`; `sync` must equal the `sync` of the `flush`."""
        usage = self.usage.get(self._current)
        if self._fd < 0 or (usage is not None and usage.end >= SEGMENT_BYTES):
            self._begin(sync=sync)
        usage = self.usage[self._current]
        head = _record.pack(len(key), len(value)) + key
        self._buffers += head, value
        found = Pointer(
            self._current, usage.end + len(head), len(value), xxhash.xxh3_64_intdigest(value)
        )
        usage.end += len(head) + len(value)
        usage.live += len(value)
        self.touched.add(self._current)
        self.unsynced.add(self._current)
        return found

    def _begin(self, *, sync: bool) -> None:
        self._put_out(sync=sync)
        before, self._current = self._current, self._current + 1
        if self._fd >= 0:
            self._cut_off()
            os.close(self._fd)
            self._fd = -1
            if not self.usage[before].live:
                self._remove_file(before)
        path = self._path(self._current)
        flags = os.O_WRONLY | os.O_CLOEXEC
        self._at = self._size = 0
        if self._recycled_segments:
            number, self._size = self._recycled_segments.popitem()
            os.rename(self._path(number), path)
            self._forget(number)
        else:
            flags |= os.O_CREAT | os.O_EXCL
        self._fd = os.open(path, flags, 0o644)
        self.usage[self._current] = _Usage(0, 0)
        self._made = True

    def _cut_off(self) -> None:
        """Truncate the rest of a recycled segment behind the end of the current segment."""
        if self._size > self._at:
            os.ftruncate(self._fd, self._at)
            self._size = self._at

    def _forget(self, number: int) -> None:
        """Close a descriptor that a late reader opened after the segment died."""
        with self._lock:
            fd = self._open.pop(number, -1)
            if fd >= 0:
                os.close(fd)

    def free(self, pointer: Pointer) -> None:
        """Release a value: after the current write no pointer refers to the value."""
        usage = self.usage.get(pointer.segment)
        if usage is None:
            return
        usage.live = max(0, usage.live - pointer.length)
        self.touched.add(pointer.segment)
        if not usage.live and pointer.segment != self._current:
            self._remove_file(pointer.segment)

    def _remove_file(self, number: int) -> None:
        del self.usage[number]
        self.touched.add(number)
        self.unsynced.discard(number)
        self.dead.append(number)

    def flush(self, *, sync: bool) -> None:
        """Write the appended values to the files; with `sync`, sync these and all earlier bytes."""
        self._put_out(sync=sync)
        if not (sync and self.unsynced):
            return
        for number in self.unsynced:
            if number == self._current:
                os.fdatasync(self._fd)
            else:
                _sync_file(self._path(number))
        self.unsynced.clear()
        if self._made:
            sync_folder(self._folder)
            self._made = False

    def _put_out(self, *, sync: bool) -> None:
        buffers, self._buffers = self._buffers, []
        if buffers and not sync:
            # A pointer may reach the disk before these bytes. In that case the file must end early,
            # as a new file would, and must not hold old bytes at the pointer's offset.
            self._cut_off()
        for first in range(0, len(buffers), _BUFFERS_MAX):
            some = buffers[first : first + _BUFFERS_MAX]
            left = sum(map(len, some))
            written = os.pwritev(self._fd, some, self._at)
            self._at += written
            if written < left:  # a signal, or a full disk: writing the rest shows which
                rest = memoryview(b"".join(some))[written:]
                while rest:
                    written = os.pwrite(self._fd, rest, self._at)
                    self._at += written
                    rest = rest[written:]

    def usages(self) -> list[tuple[int, bytes | None]]:
        """Usage records changed since the last call, to be written together with the pointers."""
        touched, self.touched = sorted(self.touched), set()
        return [(number, self._packed(number)) for number in touched]

    def _packed(self, number: int) -> bytes | None:
        usage = self.usage.get(number)
        return None if usage is None else _usage.pack(usage.live, usage.end)

    def remove_dead(self, *, scans: bool, keep: bool) -> None:
        """Remove dead segments; the write that freed the values is on disk. With `scans`, an
        earlier scan may still read the segments; otherwise `keep` allows recycling the files."""
        keep = keep and not scans and self._free_bytes() >= SPARES_FREE_MIN
        with self._lock:
            if not scans:
                for fd in self._retired.values():
                    os.close(fd)
                self._retired.clear()
            while self.dead:
                number = self.dead.pop()
                if scans and number not in self._retired:
                    self._retired[number] = self._opened(number)
                    del self._open[number]
                elif number in self._open:
                    os.close(self._open.pop(number))
                path = self._path(number)
                if keep and len(self._recycled_segments) < SPARES_MAX and os.path.exists(path):
                    self._recycled_segments[number] = os.path.getsize(path)
                else:
                    self._file_remover.remove(path)

    def _free_bytes(self) -> int:
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize

    @property
    def spare_bytes(self) -> int:
        """Bytes of the files that belong to no segment."""
        return sum(self._recycled_segments.copy().values()) + max(0, self._size - self._at)

    def drop_spares(self) -> None:
        while self._recycled_segments:
            number, _ = self._recycled_segments.popitem()
            self._forget(number)
            self._file_remover.remove(self._path(number))

    def end_dead(self) -> bool:
        """End the current segment if no value is alive, so that the file can be removed. Returns
        True if the segment ended: a write must follow."""
        usage = self.usage.get(self._current)
        if self._fd < 0 or usage is None or usage.live or self._buffers:
            return False
        os.close(self._fd)
        self._fd = -1
        self._at = self._size = 0
        self._remove_file(self._current)
        return True

    # --- reading ---

    def read(self, pointer: Pointer) -> bytes:
        """The value as written, or StoreDamaged."""
        value = self.read_parted(pointer, 0)[1]
        if xxhash.xxh3_64_intdigest(value) != pointer.checksum:
            raise self._damaged(pointer)
        return value

    def read_parted(self, pointer: Pointer, at: int) -> tuple[bytes, bytes]:
        """The first `at` bytes and the rest, without copying the rest. Checks the length but not
        the checksum: a caller that reads a value in two parts has a checksum inside the value."""
        with self._lock:
            fd = self._retired.get(pointer.segment)
            if fd is None:
                fd = self._opened(pointer.segment)
            first = os.pread(fd, at, pointer.offset) if at else b""
            rest = os.pread(fd, pointer.length - at, pointer.offset + at)
        if len(first) + len(rest) != pointer.length:
            raise self._damaged(pointer)
        return first, rest

    def _damaged(self, pointer: Pointer) -> StoreDamaged:
        return StoreDamaged(
            f"{self._path(pointer.segment)} at byte {pointer.offset} has other data than was "
            f"written. {_RESTORE}"
        )

    def _opened(self, number: int) -> int:
        """A descriptor of a segment. The caller holds the lock."""
        fd = self._open.get(number)
        if fd is not None:
            self._open.move_to_end(number)
            return fd
        path = self._path(number)
        try:
            fd = self._open[number] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise StoreDamaged(f"{path} is missing: it holds messages. {_RESTORE}") from None
        if len(self._open) > OPEN_MAX:
            os.close(self._open.popitem(last=False)[1])
        return fd

    # --- emptying ---

    def mostly_dead(self) -> list[int]:
        """Segments worth emptying, oldest first."""
        return [
            number
            for number, usage in sorted(self.usage.items())
            if number != self._current and 2 * usage.live < usage.end
        ]

    def records(self, number: int) -> Iterator[tuple[bytes, int, int]]:
        """Key, offset and length of every value ever appended to the segment."""
        usage = self.usage.get(number)
        if usage is None:
            return
        with open(self._path(number), "rb") as file:
            size = usage.end
            at = 0
            while at + _record.size <= size:
                file.seek(at)
                key_length, length = _record.unpack(file.read(_record.size))
                at += _record.size + key_length
                yield file.read(key_length), at, length
                at += length

    def emptied(self, number: int) -> None:
        """Remove a segment after all its live values were written elsewhere."""
        if number in self.usage and number != self._current:
            self._remove_file(number)

    def settle(self) -> None:
        """Return when the files of dead segments are removed."""
        self._file_remover.settle()

    def close(self) -> None:
        """Sync all bytes that are not on disk yet, and close the files."""
        try:
            if self._fd >= 0:
                self._cut_off()
                self.flush(sync=True)
            self.drop_spares()
        finally:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
            with self._lock:
                for fd in (*self._open.values(), *self._retired.values()):
                    os.close(fd)
                self._open.clear()
                self._retired.clear()
            self._file_remover.close()

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"{number:06d}.segment")


def _sync_file(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)

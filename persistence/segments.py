"""Segments: large values stand in files of their own, and LevelDB has only where.

LevelDB writes a value at least twice, into its log and then into a table, with a checksum in
software each time, although most payloads are acked and gone by then. A large payload is appended
to a segment instead, once, and under its key LevelDB keeps a *pointer*. A segment is removed as
soon as nothing in it is alive; one of which little lives is emptied by `LevelStore.compact`.

- Bytes before pointers: a segment is synced before the write that points into it. So whatever
  LevelDB has points to something whole, and what a crash left behind it is garbage.
- Pointers before bytes go: a segment is unlinked only when the write that freed its last value is
  on disk.
- For each segment LevelDB has a *standing*, changed in the same write as the pointers: how many
  bytes live, and how long the file was. A file that is missing or shorter is damage, and is named.
- The files of some dead segments are kept, and become the next ones (*spares*): their blocks are
  allocated and their pages in memory, so a burst is written faster, and nothing has to be removed.
  What stood there before is never taken for a value: only what was written and synced since is
  pointed to, nothing looks behind a standing's end, and a write that does not sync first cuts off
  what is old.
- A value that begins as pointers do is put aside whatever its size: so nothing else can be taken
  for a pointer.

A record in a segment: lengths of key and value, the key, the value; the pointer has a checksum.
"""

from __future__ import annotations

import os
import re
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

import xxhash

from weft.errors import StoreDamaged
from weft.limits import KIB, MIB

from .syncmark import sync_folder
from .undertaker import Undertaker

#: Smaller values stay in LevelDB: a second sync costs more than writing them twice.
LARGE_BYTES: Final = 32 * KIB
#: A segment that has grown to this is followed by the next.
SEGMENT_BYTES: Final = 16 * MIB
#: Files that are kept to be written again: a burst of 256 MiB. They are no part of what the store
#: takes, but take room on the disk, so they are kept only where four times as much is free.
SPARES_MAX: Final = 16
SPARES_FREE_MIN: Final = 4 * SPARES_MAX * SEGMENT_BYTES
#: Segments kept open for reading.
OPEN_MAX: Final = 64
#: Buffers that one call of the system takes.
_BUFFERS_MAX: Final = 1000
_RESTORE: Final = "Restore this data directory from a backup or a replica"
_NAME = re.compile(r"([0-9]{6,})\.segment")
_MAGIC: Final = b"\x00\xa5value\xff"
_pointer = struct.Struct(">8sIQIQ")
_standing = struct.Struct(">QQ")
_record = struct.Struct(">II")


class Pointer(NamedTuple):
    segment: int
    #: Where the value begins.
    offset: int
    length: int
    checksum: int

    def packed(self) -> bytes:
        return _pointer.pack(_MAGIC, *self)


def pointer_of(value: bytes | None) -> Pointer | None:
    """What a value in LevelDB points to, if it is a pointer."""
    if value is None or len(value) != _pointer.size or value[:8] != _MAGIC:
        return None
    return Pointer(*_pointer.unpack(value)[1:])


def stands_aside(value: bytes | None) -> bool:
    """Whether a value goes into a segment."""
    return value is not None and (len(value) >= LARGE_BYTES or value[:8] == _MAGIC)


class _Standing:
    __slots__ = ("end", "live")

    def __init__(self, live: int, end: int) -> None:
        self.live = live
        self.end = end


class Segments:
    """All segments of one store. One thread appends; any thread reads."""

    def __init__(self, folder: str, standings: dict[int, bytes]) -> None:
        """Checks the files against what LevelDB says of them, and removes what a crash left."""
        self._folder = folder
        #: What is there, by number.
        self.standing = {n: _Standing(*_standing.unpack(one)) for n, one in standings.items()}
        found = {int(name[1]) for name in map(_NAME.fullmatch, os.listdir(folder)) if name}
        #: The segment that is appended to is made with its first value.
        self._current = max(found | self.standing.keys(), default=0)
        #: Segments whose standing is to be written.
        self.touched = {number for number, one in self.standing.items() if not one.live}
        for number in self.touched:
            del self.standing[number]
        for number, standing in self.standing.items():
            self._check(number, standing)
        for number in found - self.standing.keys():
            os.unlink(self._path(number))
        self._fd = -1
        self._at = 0  # what is written of the current one; its file may be longer
        self._size = 0
        #: Numbers of dead segments whose files are kept, with their sizes.
        self._spares: dict[int, int] = {}
        self._buffers: list[bytes] = []
        self.unsynced: set[int] = set()  # segments with bytes that may not be on disk
        self._made = False  # whether the folder has to be synced, too
        self.dead: list[int] = []  # to be removed
        self._lock = threading.Lock()  # held while a descriptor of these is used
        self._open: OrderedDict[int, int] = OrderedDict()
        self._retired: dict[int, int] = {}
        self._undertaker = Undertaker()

    def _check(self, number: int, standing: _Standing) -> None:
        path = self._path(number)
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            raise StoreDamaged(f"{path} is missing: it holds messages. {_RESTORE}") from None
        if size < standing.end:
            raise StoreDamaged(f"{path} ends early, at {size} of {standing.end}. {_RESTORE}")

    # --- writing ---

    def append(self, key: bytes, value: bytes, *, sync: bool) -> Pointer:
        """Takes a value; it is in its file after a `flush`, which syncs or not as this says."""
        standing = self.standing.get(self._current)
        if self._fd < 0 or (standing is not None and standing.end >= SEGMENT_BYTES):
            self._begin(sync=sync)
        standing = self.standing[self._current]
        head = _record.pack(len(key), len(value)) + key
        self._buffers += head, value
        found = Pointer(
            self._current, standing.end + len(head), len(value), xxhash.xxh3_64_intdigest(value)
        )
        standing.end += len(head) + len(value)
        standing.live += len(value)
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
            if not self.standing[before].live:
                self._bury(before)
        path = self._path(self._current)
        flags = os.O_WRONLY | os.O_CLOEXEC
        self._at = self._size = 0
        if self._spares:
            number, self._size = self._spares.popitem()
            os.rename(self._path(number), path)
            self._forget(number)
        else:
            flags |= os.O_CREAT | os.O_EXCL
        self._fd = os.open(path, flags, 0o644)
        self.standing[self._current] = _Standing(0, 0)
        self._made = True

    def _cut_off(self) -> None:
        """What is left of an earlier segment, behind the end of the current one."""
        if self._size > self._at:
            os.ftruncate(self._fd, self._at)
            self._size = self._at

    def _forget(self, number: int) -> None:
        """Somebody who came late may have opened it since it died."""
        with self._lock:
            fd = self._open.pop(number, -1)
            if fd >= 0:
                os.close(fd)

    def free(self, pointer: Pointer) -> None:
        """A value is not pointed to any more, once the write is done."""
        standing = self.standing.get(pointer.segment)
        if standing is None:
            return
        standing.live = max(0, standing.live - pointer.length)
        self.touched.add(pointer.segment)
        if not standing.live and pointer.segment != self._current:
            self._bury(pointer.segment)

    def _bury(self, number: int) -> None:
        del self.standing[number]
        self.touched.add(number)
        self.unsynced.discard(number)
        self.dead.append(number)

    def flush(self, *, sync: bool) -> None:
        """What was appended is in the files; with `sync`, it and all before is on disk."""
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
            # A pointer may reach the disk before these bytes: then the file shall end early, as a
            # new one does, and not hold something old there.
            self._cut_off()
        for first in range(0, len(buffers), _BUFFERS_MAX):
            some = buffers[first : first + _BUFFERS_MAX]
            left = sum(map(len, some))
            written = os.pwritev(self._fd, some, self._at)
            self._at += written
            if written < left:  # a signal, or the disk: what is left says which
                rest = memoryview(b"".join(some))[written:]
                while rest:
                    written = os.pwrite(self._fd, rest, self._at)
                    self._at += written
                    rest = rest[written:]

    def standings(self) -> list[tuple[int, bytes | None]]:
        """What has changed since the last call, to be written together with the pointers."""
        touched, self.touched = sorted(self.touched), set()
        return [(number, self._packed(number)) for number in touched]

    def _packed(self, number: int) -> bytes | None:
        standing = self.standing.get(number)
        return None if standing is None else _standing.pack(standing.live, standing.end)

    def remove_dead(self, *, scans: bool, keep: bool) -> None:
        """The write that freed them is on disk. A scan that began before may still read them; else
        they may be kept as spares."""
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
                if keep and len(self._spares) < SPARES_MAX and os.path.exists(path):
                    self._spares[number] = os.path.getsize(path)
                else:
                    self._undertaker.remove(path)

    def _free_bytes(self) -> int:
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize

    @property
    def spare_bytes(self) -> int:
        """Of the files, what belongs to no segment."""
        return sum(self._spares.copy().values()) + max(0, self._size - self._at)

    def drop_spares(self) -> None:
        while self._spares:
            number, _ = self._spares.popitem()
            self._forget(number)
            self._undertaker.remove(self._path(number))

    # --- reading ---

    def read(self, pointer: Pointer) -> bytes:
        """As it was written, or StoreDamaged."""
        value = self.read_parted(pointer, 0)[1]
        if xxhash.xxh3_64_intdigest(value) != pointer.checksum:
            raise self._damaged(pointer)
        return value

    def read_parted(self, pointer: Pointer, at: int) -> tuple[bytes, bytes]:
        """The first `at` bytes, and the rest, which is in memory once. All of it is there, but its
        checksum is not compared: who reads a value in two has one of his own in it."""
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
            f"{self._path(pointer.segment)} at byte {pointer.offset} does not hold what was "
            f"written there. {_RESTORE}"
        )

    def _opened(self, number: int) -> int:
        """A descriptor of a segment, the lock being held."""
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
        """Segments that are worth being emptied, oldest first."""
        return [
            number
            for number, standing in sorted(self.standing.items())
            if number != self._current and 2 * standing.live < standing.end
        ]

    def records(self, number: int) -> Iterator[tuple[bytes, int, int]]:
        """Key, offset and length of every value that was ever put there."""
        standing = self.standing.get(number)
        if standing is None:
            return
        with open(self._path(number), "rb") as file:
            size = standing.end
            at = 0
            while at + _record.size <= size:
                file.seek(at)
                key_length, length = _record.unpack(file.read(_record.size))
                at += _record.size + key_length
                yield file.read(key_length), at, length
                at += length

    def emptied(self, number: int) -> None:
        """Every value of it was looked at, and those that lived were written elsewhere."""
        if number in self.standing and number != self._current:
            self._bury(number)

    def settle(self) -> None:
        """Returns when the files of the dead are gone."""
        self._undertaker.settle()

    def close(self) -> None:
        """Syncs what is not yet on disk."""
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
            self._undertaker.close()

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"{number:06d}.segment")


def _sync_file(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)

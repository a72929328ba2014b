"""Block files: parts of bytes with checksums, written once, in a spill folder.

A file is its parts one after the other, then the *index*: for each part the length and the
checksum, then the number of parts. The checksum of the index pins the content: with it a reader
verifies each part on its own, wherever the part comes from. A reader that finds a missing,
truncated or changed file reports the block as lost, and the block is made again. The file appears
under its name when complete.
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import xxhash

_INDEX: Final = struct.Struct("<QQ")
_SIZE: Final = struct.Struct("<I")
#: Parts of one block: the reducers of a map-reduce run, at most.
PARTS_MAX: Final = 1 << 16
INDEX_BYTES_MAX: Final = PARTS_MAX * _INDEX.size
#: Parts of one system call; the kernel takes up to 1,024.
_PARTS: Final = 512


class BlockDamaged(Exception):
    """A block file is missing, truncated or changed."""


class PartPlace(NamedTuple):
    """Where a part is in its open file; the caller closes the handle."""

    handle: int
    index_bytes: bytes
    start: int
    length: int


def index_of(parts: Sequence[bytes]) -> bytes:
    return b"".join(_INDEX.pack(len(each), xxhash.xxh3_64_intdigest(each)) for each in parts)


def checksum_of(index: bytes) -> int:
    return xxhash.xxh3_64_intdigest(index)


def block_frames(parts: Sequence[bytes], index: bytes) -> list[bytes]:
    """The content of the file with these parts."""
    return [*(each for each in parts if each), index, _SIZE.pack(len(parts))]


def write_file(path: str, parts: Sequence[bytes]) -> None:
    """Writes a file of the spill folder; no process sees a part of the file under its name."""
    draft = f"{path}.{secrets.token_hex(4)}"
    try:
        with open(draft, "wb", buffering=0) as file:
            for start in range(0, len(parts), _PARTS):
                _write_all(file.fileno(), parts[start : start + _PARTS])
        os.replace(draft, path)
    except OSError as error:
        error.filename = path  # a failed write names no file
        try:
            os.unlink(draft)
        except OSError:
            pass
        raise


def _write_all(handle: int, parts: Sequence[bytes]) -> None:
    total = sum(map(len, parts))
    done = os.writev(handle, parts)
    if done < total:  # more than 2 GiB, or a disk that is almost full
        view = memoryview(b"".join(parts))
        while done < total:
            done += os.write(handle, view[done:])


def open_part(path: str, part: int, folder: int | None = None) -> PartPlace:
    """Opens a file at a part. `folder` is an open folder for a relative path. Raises
    BlockDamaged. Nothing is verified yet: `check_part` does so, also in another process."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        raise BlockDamaged(f"{path}: {error.strerror}") from None
    try:
        size = os.fstat(handle).st_size
        tail = os.pread(handle, _SIZE.size, max(0, size - _SIZE.size))
        count = _SIZE.unpack(tail)[0] if len(tail) == _SIZE.size else 0
        start = size - _SIZE.size - count * _INDEX.size
        if not 0 <= part < count <= PARTS_MAX or start < 0:
            raise BlockDamaged(f"{path} is truncated")
        index = os.pread(handle, count * _INDEX.size, start)
        lengths = [length for length, _ in _INDEX.iter_unpack(index)]
        if sum(lengths) != start:
            raise BlockDamaged(f"{path} is truncated")
        return PartPlace(handle, index, sum(lengths[:part]), lengths[part])
    except OSError as error:
        os.close(handle)
        raise BlockDamaged(f"{path}: {error.strerror}") from None
    except BaseException:
        os.close(handle)
        raise


def read_part(path: str, part: int, checksum: int) -> bytes:
    """One part of a block file, verified. Raises BlockDamaged."""
    place = open_part(path, part)
    try:
        data = os.pread(place.handle, place.length, place.start) if place.length else b""
        while len(data) < place.length:
            more = os.pread(place.handle, place.length - len(data), place.start + len(data))
            if not more:
                break
            data += more
    except OSError as error:
        raise BlockDamaged(f"{path}: {error.strerror}") from None
    finally:
        os.close(place.handle)
    check_part(path, place.index_bytes, part, checksum, data)
    return data


def check_part(name: str, index: bytes, part: int, checksum: int | None, data: bytes) -> None:
    """Raises BlockDamaged unless the data is the part of the block with the checksum."""
    if checksum is not None and checksum_of(index) != checksum:
        raise BlockDamaged(f"{name} has an index with a wrong checksum")
    length, wanted = _INDEX.unpack_from(index, part * _INDEX.size)
    if len(data) != length or (data and xxhash.xxh3_64_intdigest(data) != wanted):
        raise BlockDamaged(f"{name} has a part with a wrong checksum")

"""Reads LevelDB's record files without LevelDB: ``.log`` and ``MANIFEST`` have the same format.

A file is a sequence of 32 KiB blocks. A record is cut into fragments so that no fragment crosses a
block: ``crc(4) length(2) kind(1) data``, little-endian, with kind 1 for a whole record and 2, 3, 4
for the first, middle and last fragments of a longer record. Fewer than 7 bytes at the end of a
block are filler.

A writer that dies leaves the last record unfinished, so an unfinished end is not an error: the
reader stops before the unfinished record, as LevelDB does. Any other malformed record is damage.
LevelDB silently skips a header of zeros and the rest of the block; here a header of zeros is damage
too, unless only zeros follow.

The checksum is CRC-32C, which Python's standard library lacks. The implementation here works byte
by byte and is far too slow for every start: LevelDB verifies the checksums anyway. But LevelDB does
not report the file with the mismatch, so `first_bad_checksum` finds the file after a failure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from weft.errors import StoreDamaged

BLOCK_BYTES: Final = 32 * 1024
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4

_header = struct.Struct("<IHB")
_POLYNOMIAL: Final = 0x82F63B78
_MASK_DELTA: Final = 0xA282EAD8


def records(data: bytes, path: str) -> Iterator[bytes]:
    """The finished records of a file; raises StoreDamaged naming ``path`` if one is malformed."""
    parts: list[bytes] = []
    for offset, kind, part in _fragments(data, path):
        if (kind in (WHOLE, FIRST)) == bool(parts) or not WHOLE <= kind <= LAST:
            raise _damaged(path, offset, "a record that is cut")
        if kind == WHOLE:
            yield part
            continue
        parts.append(part)
        if kind == LAST:
            yield b"".join(parts)
            parts = []


def first_bad_checksum(data: bytes, path: str) -> int | None:
    """The offset of the first fragment with a wrong checksum."""
    for offset, kind, part in _fragments(data, path):
        if _header.unpack_from(data, offset)[0] != masked(crc32c(bytes([kind]) + part)):
            return offset
    return None


def _fragments(data: bytes, path: str) -> Iterator[tuple[int, int, bytes]]:
    """(offset, kind, data) of each complete fragment."""
    offset, size = 0, len(data)
    while True:
        left = BLOCK_BYTES - offset % BLOCK_BYTES
        if left < _header.size:
            offset += left
            continue
        if offset + _header.size > size:
            return
        _, length, kind = _header.unpack_from(data, offset)
        end = offset + _header.size + length
        if kind == 0 and length == 0:
            if data.count(0, offset) == size - offset:
                return
            raise _damaged(path, offset, "a hole of zeros")
        if end > min(size, offset + left):
            if offset + left <= size:
                raise _damaged(path, offset, "a wrong length")
            return
        yield offset, kind, data[end - length : end]
        offset = end


def _damaged(path: str, offset: int, what: str) -> StoreDamaged:
    return StoreDamaged(
        f"{path} has {what} at byte {offset}. "
        "Restore this data directory from a backup or a replica"
    )


def _table() -> tuple[int, ...]:
    rows = []
    for row in range(256):
        for _ in range(8):
            row = row >> 1 ^ (_POLYNOMIAL if row & 1 else 0)
        rows.append(row)
    return tuple(rows)


_CRC: Final = _table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    table = _CRC
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """LevelDB's stored form of a checksum."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF

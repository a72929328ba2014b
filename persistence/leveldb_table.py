"""Checks LevelDB's tables (``.ldb``) without LevelDB, to find the damaged table.

A table is a sequence of blocks, each followed by a kind byte and a CRC-32C. The last 48 bytes name
the index block, and the entries of the index name the data blocks. LevelDB detects a wrong checksum
when LevelDB reads a block, but does not report the file: `is_damaged` finds the file. The check is
slow, for error paths only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from .leveldb_log import crc32c, masked
from .manifest import varint

_FOOTER_BYTES: Final = 48
_MAGIC: Final = bytes.fromhex("57fb808b247547db")
#: After each block: the kind (0, because Weft never compresses) and the checksum.
_trailer = struct.Struct("<BI")
_u32 = struct.Struct("<I")


def is_damaged(data: bytes) -> bool:
    """True if a data block, the index or the footer differs from the written bytes."""
    if len(data) < _FOOTER_BYTES or data[-len(_MAGIC) :] != _MAGIC:
        return True
    try:
        footer = data[-_FOOTER_BYTES:]
        _, at = _handle(footer, 0)
        index, _ = _handle(footer, at)
        if not _block_is_good(data, index):
            return True
        return not all(_block_is_good(data, block) for block in _entries(data, index))
    except (IndexError, struct.error):
        return True


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """(offset, size) of a block."""
    offset, at = varint(data, at)
    size, at = varint(data, at)
    return (offset, size), at


def _block_is_good(data: bytes, block: tuple[int, int]) -> bool:
    offset, size = block
    kind, checksum = _trailer.unpack_from(data, offset + size)
    return bool(kind == 0 and masked(crc32c(data[offset : offset + size + 1])) == checksum)


def _entries(data: bytes, index: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The blocks named in the index. Each entry: shared, own, value lengths; key; value."""
    block = data[index[0] : index[0] + index[1]]
    restarts = _u32.unpack_from(block, len(block) - _u32.size)[0]
    end = len(block) - _u32.size * (restarts + 1)
    at = 0
    while at < end:
        _, at = varint(block, at)
        own, at = varint(block, at)
        length, at = varint(block, at)
        at += own
        yield _handle(block, at)[0]
        at += length

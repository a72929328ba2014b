"""A handle: all in-memory data of a waiting batch, packed into one integer.

``stamp (54) | partition (16) | lsn (44) | count (13) | size (24)``, most significant first. A
million waiting batches are a million integers of 48 bytes and nothing else; the head and the
payload stay on disk until a pop needs them. The stamp comes first, so handles sort by arrival: a
node's stamps are strictly increasing microseconds, and sorting the handles found on disk restores
a queue's order after a restart.
"""

from __future__ import annotations

from typing import Final

STAMP_BITS: Final = 54
PARTITION_BITS: Final = 16
LSN_BITS: Final = 44
COUNT_BITS: Final = 13
SIZE_BITS: Final = 24

#: Bit offsets of the fields; a restart packs a million handles without a call for each.
COUNT_SHIFT: Final = SIZE_BITS
LSN_SHIFT: Final = COUNT_SHIFT + COUNT_BITS
PARTITION_SHIFT: Final = LSN_SHIFT + LSN_BITS
STAMP_SHIFT: Final = PARTITION_SHIFT + PARTITION_BITS

_KEY_SHIFT: Final = LSN_SHIFT
_KEY_MASK: Final = (1 << (PARTITION_BITS + LSN_BITS)) - 1
_LSN_MASK: Final = (1 << LSN_BITS) - 1
_COUNT_MASK: Final = (1 << COUNT_BITS) - 1
_SIZE_MASK: Final = (1 << SIZE_BITS) - 1


def pack(stamp: int, partition: int, lsn: int, count: int, size: int) -> int:
    assert 0 < stamp < 1 << STAMP_BITS, stamp
    assert 0 < lsn <= _LSN_MASK, lsn
    assert 0 < count <= _COUNT_MASK, count
    assert 0 <= size <= _SIZE_MASK, size
    return (
        stamp << STAMP_SHIFT
        | partition << PARTITION_SHIFT
        | lsn << LSN_SHIFT
        | count << COUNT_SHIFT
        | size
    )


def key(handle: int) -> int:
    """(partition, lsn) as one number: a batch's identity on this node."""
    return handle >> _KEY_SHIFT & _KEY_MASK


def key_of(partition: int, lsn: int) -> int:
    return partition << LSN_BITS | lsn


def split_key(key: int) -> tuple[int, int]:
    """(partition, lsn)."""
    return key >> LSN_BITS, key & _LSN_MASK


def partition(handle: int) -> int:
    return handle >> PARTITION_SHIFT & ((1 << PARTITION_BITS) - 1)


def stamp(handle: int) -> int:
    """When the batch arrived, in microseconds since 1970."""
    return handle >> STAMP_SHIFT


def count(handle: int) -> int:
    return handle >> SIZE_BITS & _COUNT_MASK


def size(handle: int) -> int:
    return handle & _SIZE_MASK


def totals(handles: list[int]) -> tuple[int, int]:
    """The messages and the bytes of many batches, without a Python-level loop."""
    size = sum(map(_SIZE_MASK.__and__, handles))
    both = sum(map(((1 << _KEY_SHIFT) - 1).__and__, handles))
    return (both - size) >> SIZE_BITS, size

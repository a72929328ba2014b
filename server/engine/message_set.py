"""Sets of messages of one batch, as the bits of an integer: bit i is message i.

A batch has at most 4,096 messages, so a set is at most 512 bytes and every set operation is one
step of C, however many messages the set has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def of_range(first: int, count: int) -> int:
    return ((1 << count) - 1) << first


def of_ranges(ranges: Iterable[tuple[int, int]]) -> int:
    mask = 0
    for first, count in ranges:
        mask |= of_range(first, count)
    return mask


def to_bytes(mask: int) -> bytes:
    """The stored form, little-endian."""
    return mask.to_bytes(-(-mask.bit_length() // 8), "little")


def runs(mask: int) -> Iterator[tuple[int, int]]:
    """The (first, count) of each contiguous run, in order."""
    offset = 0
    while mask:
        gap = (mask & -mask).bit_length() - 1
        mask >>= gap
        length = (~mask & (mask + 1)).bit_length() - 1
        yield offset + gap, length
        mask >>= length
        offset += gap + length

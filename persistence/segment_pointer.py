"""The pointer to a value in a segment, and the rule that decides which values go into segments.

LevelDB stores the packed pointer under the key of a value that stands in a segment (`segments`). A
pointer is recognised by its size and its first eight bytes, the pointer magic. Invariant: a value
that begins with the pointer magic goes into a segment regardless of size (`stands_aside`), so no
other value in LevelDB can be mistaken for a pointer.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from weft.limits import KIB

#: Smaller values stay in LevelDB: a second sync costs more than writing a small value twice.
LARGE_BYTES: Final = 32 * KIB
MAGIC: Final = b"\x00\xa5value\xff"
_pointer = struct.Struct(">8sIQIQ")


class Pointer(NamedTuple):
    segment: int
    #: The offset of the value itself, after the record's header and key.
    offset: int
    length: int
    checksum: int

    def packed(self) -> bytes:
        return _pointer.pack(MAGIC, *self)


def pointer_of(value: bytes | None) -> Pointer | None:
    """The pointer in a value from LevelDB; None if the value is not a pointer."""
    if value is None or len(value) != _pointer.size or value[:8] != MAGIC:
        return None
    return Pointer(*_pointer.unpack(value)[1:])


def stands_aside(value: bytes | None) -> bool:
    """True if a value goes into a segment; `LevelStore._write` has the same rule inline."""
    return value is not None and (len(value) >= LARGE_BYTES or value[:8] == MAGIC)

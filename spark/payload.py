"""Converts the bodies of a stored batch from the stored frame to an Arrow array.

A frame is msgpack: an array of three columns, the first an array of byte strings. Decoding creates
an object per body, and Arrow then copies each. If all bodies have one length, as records often do,
the same few marks precede each body: the frame is a table with rows of one width, and the bodies
are all columns but the first few. The code checks this layout and does not assume it.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import pyarrow as pa

from .arrow import Bytes, ends

#: msgpack marks: array of three, larger arrays, nil, byte strings by the size of their length.
_THREE: Final = 0x93
_ARRAY_16: Final = 0xDC
_ARRAY_32: Final = 0xDD
_NO_HEADERS_NO_KEYS: Final = b"\xc0\xc0"
#: The smallest frame: one body of one byte.
_BYTES_MIN: Final = 7
_STRINGS: Final = {0xC4: ">xB", 0xC5: ">xH", 0xC6: ">xI"}


def even_bodies(frame: bytes, count: int) -> pa.Array | None:
    """Returns the bodies of a frame without headers and keys, if all bodies have one length.

    Otherwise returns None, and the caller must decode the frame.
    """
    begin = _begin(frame, count)
    mark = _STRINGS.get(frame[begin]) if 0 < begin < len(frame) else None
    if mark is None or not frame.endswith(_NO_HEADERS_NO_KEYS):
        return None
    head = struct.calcsize(mark)
    if begin + head > len(frame):
        return None
    (size,) = struct.unpack_from(mark, frame, begin)
    width = head + size
    if not size or begin + count * width + len(_NO_HEADERS_NO_KEYS) != len(frame):
        return None
    table: Bytes = np.frombuffer(frame, np.uint8, count * width, begin).reshape(count, width)
    if not (table[:, :head] == table[0, :head]).all():
        return None
    bodies = np.ascontiguousarray(table[:, head:])
    return pa.BinaryArray.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(ends(count, size)), pa.py_buffer(bodies)]
    )


def _begin(frame: bytes, count: int) -> int:
    """Returns the position of the first body in a frame of `count` bodies; 0 for other frames."""
    if len(frame) < _BYTES_MIN or frame[0] != _THREE or not count:
        return 0
    if frame[1] == 0x90 | count and count < 16:
        return 2
    if frame[1] == _ARRAY_16 and struct.unpack_from(">H", frame, 2)[0] == count:
        return 4
    if frame[1] == _ARRAY_32 and struct.unpack_from(">I", frame, 2)[0] == count:
        return 6
    return 0

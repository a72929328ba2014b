"""The bodies of a stored batch, from the frame in which it is stored and sent, as an Arrow array.

A frame is msgpack: an array of three columns, the first an array of byte strings. Decoding makes an
object of each body, and Arrow then copies each. But where all bodies have one length, as records
often do, each has the same few marks before it: the frame is a table with rows of one width, and
its bodies are all columns but the first few. That is checked, not assumed.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import pyarrow as pa

from .arrow import Bytes, ends

#: msgpack's marks: an array of three, of some, nil, and byte strings by the size of their length.
_THREE: Final = 0x93
_ARRAY_16: Final = 0xDC
_ARRAY_32: Final = 0xDD
_NO_HEADERS_NO_KEYS: Final = b"\xc0\xc0"
#: One body of one byte.
_BYTES_MIN: Final = 7
_STRINGS: Final = {0xC4: ">xB", 0xC5: ">xH", 0xC6: ">xI"}


def even_bodies(frame: bytes, count: int) -> pa.Array | None:
    """The bodies of a frame without headers and keys whose bodies have all one length; else None,
    and the frame has to be decoded."""
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
    """Where the first body begins, in a frame that has so many; 0: this is no such frame."""
    if len(frame) < _BYTES_MIN or frame[0] != _THREE or not count:
        return 0
    if frame[1] == 0x90 | count and count < 16:
        return 2
    if frame[1] == _ARRAY_16 and struct.unpack_from(">H", frame, 2)[0] == count:
        return 4
    if frame[1] == _ARRAY_32 and struct.unpack_from(">I", frame, 2)[0] == count:
        return 6
    return 0

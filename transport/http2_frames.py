"""The frames of HTTP/2 (RFC 9113): types, flags, error codes, and the faults of a peer."""

from __future__ import annotations

import struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES: Final = 9

# Frame types (section 6).
DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

# Flags.
END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
HAS_PRIORITY: Final = 0x20

# Error codes (section 7).
NO_ERROR: Final = 0x0
PROTOCOL_ERROR: Final = 0x1
INTERNAL_ERROR: Final = 0x2
FLOW_CONTROL_ERROR: Final = 0x3
STREAM_CLOSED: Final = 0x5
FRAME_SIZE_ERROR: Final = 0x6
REFUSED_STREAM: Final = 0x7
CANCEL: Final = 0x8
COMPRESSION_ERROR: Final = 0x9
ENHANCE_YOUR_CALM: Final = 0xB

# Settings (section 6.5.2).
HEADER_TABLE_SIZE: Final = 1
ENABLE_PUSH: Final = 2
MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5
MAX_HEADER_LIST_SIZE: Final = 6

#: The window that both ends start with.
WINDOW_DEFAULT: Final = 65_535
#: The largest window and the largest stream number.
NUMBER_MAX: Final = (1 << 31) - 1
#: The frame size that every peer must accept; Weft announces and sends no larger one.
FRAME_BYTES_MAX: Final = 16_384
FRAME_SIZE_LIMIT: Final = (1 << 24) - 1

#: Length and type in one number, flags, stream.
frame_header: Final = struct.Struct(">IBI")
uint32: Final = struct.Struct(">I")
setting: Final = struct.Struct(">HI")


class ConnectionFault(Exception):
    """The peer broke the protocol or a limit: the connection ends with a GOAWAY of this code."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class StreamFault(Exception):
    """The peer broke the protocol on one stream: the stream is reset with this code."""

    def __init__(self, number: int, code: int) -> None:
        super().__init__(f"stream {number} is reset with the code {code}")
        self.number = number
        self.code = code


def frame(kind: int, flags: int, number: int, payload: bytes = b"") -> bytes:
    return frame_header.pack(len(payload) << 8 | kind, flags, number) + payload


def goaway(last: int, code: int, why: str) -> bytes:
    return frame(GOAWAY, 0, 0, uint32.pack(last) + uint32.pack(code) + why.encode())


def reset(number: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, number, uint32.pack(code))


def window_update(number: int, size: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, number, uint32.pack(size))


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(setting.pack(*each) for each in values.items()))


SETTINGS_ACK: Final = frame(SETTINGS, ACK, 0)


def unpadded(payload: bytes, flags: int) -> bytes:
    """The payload of HEADERS or DATA without its padding. Raises ConnectionFault."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(PROTOCOL_ERROR, "the padding is longer than the frame")
    return payload[1 : len(payload) - payload[0]]

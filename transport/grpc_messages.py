"""The messages of gRPC in the body of an HTTP/2 stream, and values of its header fields.

A message is one byte (1: compressed), a length of four bytes, and as many bytes. The length is
checked before memory is spent on it, and a compressed message is inflated no further than the
limit.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

#: Before each message: compressed or not, and its length.
prefix: Final = struct.Struct(">BI")
PREFIX_BYTES: Final = prefix.size

#: Numbers of gRPC's status codes for faults of framing (the table of statuses in gRPC's own
#: documentation).
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
RESOURCE_EXHAUSTED: Final = 8

#: zlib's argument for a gzip header.
_GZIP: Final = 31
#: Digits of a timeout (the grammar of gRPC's requests).
_TIMEOUT_DIGITS_MAX: Final = 8
_UNIT_S: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
#: Characters that a status message keeps; all others are percent-encoded, as UTF-8.
_PRINTABLE: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


class MessageFault(Exception):
    """A message that cannot be taken: the call ends with this gRPC status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class MessageReader:
    """Assembles the messages of one stream."""

    __slots__ = ("_bytes_max", "_gzip", "_pieces", "_wanted", "size")

    def __init__(self, bytes_max: int, *, gzip: bool) -> None:
        """`gzip`: the client has announced that it may compress."""
        self._bytes_max = bytes_max
        self._gzip = gzip
        self._pieces: list[bytes] = []
        #: Bytes of the incomplete message, and the size at which the next step is possible.
        self.size = 0
        self._wanted = PREFIX_BYTES

    def feed(self, chunks: Iterable[bytes]) -> list[bytes]:
        """Takes bytes; returns the messages that are complete. Raises MessageFault."""
        self._pieces += chunks
        self.size = sum(map(len, self._pieces))
        if self.size < self._wanted:
            return []
        data = b"".join(self._pieces)
        messages, place = [], 0
        while (left := len(data) - place) >= PREFIX_BYTES:
            compressed, size = prefix.unpack_from(data, place)
            if size > self._bytes_max:
                raise too_long(size, self._bytes_max)
            if left < PREFIX_BYTES + size:
                break
            place += PREFIX_BYTES
            messages.append(self._plain(data[place : place + size], compressed))
            place += size
        self._keep(data[place:])
        return messages

    def _keep(self, rest: bytes) -> None:
        self._pieces = [rest] if rest else []
        self.size = len(rest)
        self._wanted = PREFIX_BYTES
        if self.size >= PREFIX_BYTES:
            self._wanted += prefix.unpack_from(rest)[1]

    def _plain(self, message: bytes, compressed: int) -> bytes:
        if not compressed:
            return message
        if compressed != 1 or not self._gzip:
            raise MessageFault(INTERNAL, "a message is compressed, and its encoding is not gzip")
        inflater = zlib.decompressobj(_GZIP)
        try:
            plain = inflater.decompress(message, self._bytes_max + 1)
        except zlib.error:
            raise MessageFault(INTERNAL, "a message is not what gzip writes") from None
        if len(plain) > self._bytes_max:
            raise too_long(len(plain), self._bytes_max)
        if not inflater.eof:
            raise MessageFault(INTERNAL, "a compressed message is cut off")
        return plain


def too_long(size: int, bytes_max: int) -> MessageFault:
    return MessageFault(
        RESOURCE_EXHAUSTED, f"a message of {size} bytes or more; {bytes_max} are allowed"
    )


def timeout_s(value: bytes) -> float | None:
    """The seconds of a `grpc-timeout`; None if the value is malformed."""
    digits, unit_s = value[:-1], _UNIT_S.get(value[-1:])
    if unit_s is None or not digits.isdigit() or len(digits) > _TIMEOUT_DIGITS_MAX:
        return None
    return int(digits) * unit_s


def status_message(text: str) -> bytes:
    """A text as the value of `grpc-message`."""
    return quote(text, safe=_PRINTABLE).encode("ascii")

"""The client's end of an HTTP/2 connection for tests: frames written by hand, and read back."""

from __future__ import annotations

from typing import NamedTuple

import hpack as reference

from weft.transport import http2_frames as h2
from weft.transport.http2 import Http2Connection
from weft.transport.http2_stream import Http2Stream

REQUEST: list[tuple[bytes, bytes]] = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/some.Service/Method"),
    (b":authority", b"localhost"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
]
HEAD = ((b":status", b"200"), (b"content-type", b"application/grpc"))
TRAILERS = ((b"grpc-status", b"0"),)
LAST = (b"x-request-id", b"some-id")


class Frame(NamedTuple):
    kind: int
    flags: int
    number: int
    payload: bytes

    @property
    def code(self) -> int:
        """The error code of RST_STREAM or GOAWAY."""
        return int.from_bytes(self.payload[-4:] if self.kind == h2.RST_STREAM else
                              self.payload[4:8], "big")  # fmt: skip


def frames(data: bytes) -> list[Frame]:
    found = []
    while data:
        word, flags, number = h2.frame_header.unpack_from(data)
        size = word >> 8
        found.append(Frame(word & 255, flags, number, data[9 : 9 + size]))
        assert len(data) >= 9 + size
        data = data[9 + size :]
    return found


class Http2Client:
    """A connection of the node, with the test in the role of the client."""

    def __init__(self, *, settings: bytes = b"") -> None:
        self.connection = Http2Connection(
            frozenset({b"grpc-timeout"}), [*HEAD, *TRAILERS], [b"x-request-id"]
        )
        self.encoder = reference.Encoder()
        self.decoder = reference.Decoder()
        self.next = 1
        self.send(h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0, settings))
        self.taken()

    def send(self, data: bytes) -> list[Http2Stream]:
        return self.connection.receive(data)

    def taken(self) -> list[Frame]:
        """The frames that the node has written since the last call."""
        output, self.connection.output = self.connection.output, []
        return frames(b"".join(output))

    def head(
        self,
        number: int = 0,
        *,
        fields: list[tuple[bytes, bytes]] | None = None,
        flags: int = h2.END_HEADERS,
    ) -> bytes:
        """HEADERS on the next stream."""
        if not number:
            number, self.next = self.next, self.next + 2
        block = bytes(self.encoder.encode(REQUEST if fields is None else fields))
        return h2.frame(h2.HEADERS, flags, number, block)

    def opened(self) -> Http2Stream:
        (stream,) = self.send(self.head())
        return stream

    def request(self, body: bytes = b"") -> Http2Stream:
        """A whole request."""
        number = self.next
        data = h2.frame(h2.DATA, h2.END_STREAM, number, body)
        (stream,) = self.send(self.head() + data)
        return stream

    def fields(self, frame: Frame) -> list[tuple[bytes, bytes]]:
        return [(bytes(n), bytes(v)) for n, v in self.decoder.decode(frame.payload, raw=True)]

    def ended_with(self) -> int:
        """The code of the GOAWAY with which the node ended the connection."""
        assert self.connection.closing
        last = self.taken()[-1]
        assert last.kind == h2.GOAWAY
        return last.code

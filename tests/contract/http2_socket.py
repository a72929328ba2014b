"""A raw HTTP/2 client on a real socket, frame by frame, for tests of the node's gRPC port."""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import hpack

from tests.unit.http2_client import Frame
from weft.proto import weft_pb2 as pb
from weft.transport import http2_frames as h2
from weft.transport.grpc_messages import prefix

#: Only a hang takes longer.
PATIENCE_S: Final = 60.0


class Http2Socket:
    def __init__(
        self, address: str, *, settings: bytes = b"", tls: ssl.SSLContext | None = None
    ) -> None:
        host, _, port = address.rpartition(":")
        made: socket.socket = socket.create_connection((host, int(port)), PATIENCE_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = made if tls is None else tls.wrap_socket(made, server_hostname=host)
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self.next = 1
        self._rest = b""
        self._arrived: deque[Frame] = deque()
        self.ended = False
        self.send(h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0, settings))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Sends, unless the node has closed the connection."""
        try:
            self.socket.sendall(data)
        except OSError:
            self.ended = True

    def head(self, path: str, **more: str) -> bytes:
        """HEADERS of the next request, without END_STREAM."""
        fields = [(":method", "POST"), (":scheme", "http"), (":path", path), ("te", "trailers"),
                  ("content-type", "application/grpc")]  # fmt: skip
        changed = {name.replace("_", "-"): value for name, value in more.items()}
        fields = [(name, changed.pop(name, value)) for name, value in fields]
        block = bytes(self.encoder.encode([*fields, *changed.items()]))
        number, self.next = self.next, self.next + 2
        return h2.frame(h2.HEADERS, h2.END_HEADERS, number, block)

    def request(self, path: str, message: bytes, **more: str) -> bytes:
        """A whole request with one message."""
        number = self.next
        head = self.head(path, **more)
        return head + h2.frame(h2.DATA, h2.END_STREAM, number, framed(message))

    def pop(self, queue: str, wait_ms: int = 0, limit: int = 1) -> bytes:
        asked = pb.PopRequest(queue=queue, wait_ms=wait_ms, limit=limit)
        return self.request("/weft.v1.Queue/Pop", asked.SerializeToString())

    def read(self) -> list[Frame]:
        """The frames that have arrived; waits for some bytes."""
        try:
            data = self.socket.recv(1 << 20)
        except ConnectionError:
            data = b""
        if not data:
            self.ended = True
        data = self._rest + data
        found, place = [], 0
        while len(data) - place >= h2.HEADER_BYTES:
            word, flags, number = h2.frame_header.unpack_from(data, place)
            end = place + h2.HEADER_BYTES + (word >> 8)
            if end > len(data):
                break
            found.append(Frame(word & 255, flags, number, data[place + h2.HEADER_BYTES : end]))
            place = end
        self._rest = data[place:]
        return found

    def until(self, done: Callable[[Frame], bool]) -> Frame:
        """Reads up to the first frame for which `done` is True."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            while self._arrived:
                frame = self._arrived.popleft()
                if done(frame):
                    return frame
            if self.ended:
                break
            self._arrived += self.read()
        raise AssertionError("the node has closed the connection, or is silent")

    def answered(self, number: int) -> dict[str, str]:
        """The fields of a response, head and trailers in one; its body is dropped."""
        found: dict[str, str] = {}
        while True:
            frame = self.until(lambda each: each.kind == h2.HEADERS)
            fields = {str(name): str(value) for name, value in self.decoder.decode(frame.payload)}
            if frame.number == number:
                found |= fields
                if frame.flags & h2.END_STREAM:
                    return found

    def goaway(self) -> int:
        """The code with which the node ends the connection."""
        return self.until(lambda each: each.kind == h2.GOAWAY).code

    def closed(self) -> bool:
        """Reads until the node closes the connection."""
        while not self.ended:
            self.read()
        return True


def framed(message: bytes, compressed: int = 0) -> bytes:
    return prefix.pack(compressed, len(message)) + message

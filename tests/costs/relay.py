"""A relay between a client and a node that counts the traffic on the wire.

The relay reads ZMTP 3, ZeroMQ's protocol on TCP, of an unencrypted connection: a greeting of 64
bytes, then frames, each with a byte of flags and a length of one or eight bytes. A message is a run
of frames of which all but the last have the "more" flag. Commands (the handshake, heartbeats) are
not counted: the number of heartbeats depends on the clock.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Final, Self

_GREETING_BYTES: Final = 64
_MORE, _LONG, _COMMAND = 1, 2, 4


class Way:
    """Counts of one direction."""

    def __init__(self) -> None:
        self.messages = self.frames = self.bytes = 0


class Parser:
    """Parses the frames of one direction of one connection, in any TCP fragmentation."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._head = bytearray()
        self._skip = _GREETING_BYTES  # bytes of a body, or of the greeting, still to come

    def feed(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if self._skip:
                step = min(self._skip, len(data) - at)
                self._skip -= step
                at += step
                continue
            self._head.append(data[at])
            at += 1
            size = 9 if self._head[0] & _LONG else 2
            if len(self._head) == size:
                self._frame(self._head[0], int.from_bytes(self._head[1:], "big"), size)
                self._head.clear()

    def _frame(self, flags: int, length: int, head: int) -> None:
        self._skip = length
        if not flags & _COMMAND:
            self._way.frames += 1
            self._way.bytes += head + length
            self._way.messages += not flags & _MORE


class Relay:
    """Listens at one address and opens a connection to another for each client."""

    def __init__(self, listen: tuple[str, int], to: tuple[str, int]) -> None:
        self.sent, self.answered = Way(), Way()
        self._to = to
        self._sockets: list[socket.socket] = []
        self._server = socket.create_server(listen)
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in (self._server, *self._sockets):
            with contextlib.suppress(OSError):  # the other end may have closed first
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client = self._server.accept()[0]
                node = socket.create_connection(self._to)
                self._sockets += client, node
                for each in (client, node):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._start(self._carry, client, node, Parser(self.sent))
                self._start(self._carry, node, client, Parser(self.answered))

    def _carry(self, source: socket.socket, to: socket.socket, parser: Parser) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 18):
                parser.feed(data)  # before forwarding: delivered bytes are always counted
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)

    @staticmethod
    def _start(target: object, *arguments: object) -> None:
        assert callable(target)
        threading.Thread(target=target, args=arguments, daemon=True).start()

"""Makes a connection to a node in steps that never block: name, connect, greeting, handshake.

| state | waits for | next |
|---|---|---|
| _IDLE | `start` | _NAMED |
| _NAMED | the address of the host | _CONNECTING |
| _CONNECTING | the TCP connection | _GREETED |
| _GREETED | the node's greeting and handshake | _IDLE: `step` returns `Dialed` |
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from weft.transport import noise_transport, zmtp

from .buffer_pool import POOL
from .client_handshake import ClientHandshake
from .connection import (
    BLINK_MS,
    CONNECT_MS_MAX,
    FRAME_BYTES_MAX,
    RECONNECT_MS,
    RECONNECT_MS_MAX,
)
from .name_lookup import NameLookup
from .tcp_socket import begin_connect, block_for, has_connected

#: Largest message: a pop's answer has many frames.
MESSAGE_BYTES_MAX: Final = 4 * FRAME_BYTES_MAX
#: Timeout for the peer's greeting: a node greets between two rounds, and a round may wait for a
#: disk.
GREETING_MS_MAX: Final = 5_000

_IDLE: Final = 0
_NAMED: Final = 1
_CONNECTING: Final = 2
_GREETED: Final = 3


class Dialed(NamedTuple):
    """A connected socket, how to read and write it, and the READY to send first."""

    socket: socket.socket
    reader: zmtp.FrameReader | noise_transport.SealedReader
    #: None: the bytes leave in plain.
    sealer: noise_transport.Sealer | None
    ready: bytes


class Dialer:
    """One attempt after the other. `epoll` watches the socket of an attempt."""

    def __init__(
        self, key: bytes | None, epoll: select.epoll, on_found: Callable[[], None]
    ) -> None:
        """With the node's public `key`, encrypts the connection and verifies the node."""
        self._key = key
        self._epoll = epoll
        self._lookup = NameLookup(on_found)
        self._host, self._port = "", 0
        self._step = _IDLE
        self._socket: socket.socket | None = None
        self._handshake: ClientHandshake | None = None
        self._pause_s = RECONNECT_MS / 1000
        #: The time.monotonic time by which the current attempt must have ended.
        self.due = 0.0

    def start(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._step = _NAMED
        self.due = time.monotonic() + CONNECT_MS_MAX / 1000
        self._lookup.start(host)

    def stop(self) -> None:
        if self._socket is not None:
            self._socket.close()  # this also removes the socket from the epoll object
        self._socket, self._handshake, self._step = None, None, _IDLE

    def pause_s(self) -> float:
        """The pause after a failed attempt: the next one is twice as long, up to a limit."""
        pause_s, self._pause_s = self._pause_s, min(RECONNECT_MS_MAX / 1000, 2 * self._pause_s)
        return pause_s

    def succeeded(self) -> None:
        """The node has answered READY: the next pause is short again."""
        self._pause_s = RECONNECT_MS / 1000

    def step(self) -> Dialed | None:
        """Takes every step that is possible now; None while the attempt is under way.

        Raises OSError or ProtocolError if the attempt has failed.
        """
        if self._step == _NAMED and (found := self._lookup.take()) is not None:
            name, address = found
            if name == self._host:
                self._connect(address)
            else:  # the connection has moved since
                self.start(self._host, self._port)
        if self._step == _CONNECTING:
            self._greet_if_connected()
        return self._shake() if self._step == _GREETED else None

    def _connect(self, address: str) -> None:
        self._socket = begin_connect(address, self._port) if address else None
        if self._socket is None:
            raise OSError("no address, or no socket")
        self._step = _CONNECTING
        self._epoll.register(self._socket.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _greet_if_connected(self) -> None:
        assert self._socket is not None
        connected = has_connected(self._socket)
        if connected is None:
            return
        if not connected:
            raise OSError("the connection was refused")
        self._step = _GREETED
        self.due = time.monotonic() + GREETING_MS_MAX / 1000
        self._handshake = ClientHandshake(self._key, new_reader())
        # From here on the socket blocks for BLINK_MS at most; non-blocking calls pass a flag.
        block_for(self._socket, BLINK_MS)
        self._epoll.modify(self._socket.fileno(), select.EPOLLIN)
        self._send(self._handshake.opening)

    def _shake(self) -> Dialed | None:
        """Carries out the handshake."""
        handshake, connected = self._handshake, self._socket
        assert connected is not None
        assert handshake is not None
        while True:
            try:
                data = connected.recv(handshake.lacks, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            if not data:
                raise OSError("the node closed the connection")
            answer = handshake.feed(data)
            if handshake.done:
                self._socket, self._handshake, self._step = None, None, _IDLE
                return Dialed(connected, handshake.reader, handshake.sealer, answer)
            if answer:
                self._send(answer)

    def _send(self, data: bytes) -> None:
        assert self._socket is not None
        if self._socket.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL) < len(data):
            raise OSError("an empty buffer does not take a greeting")


def new_reader() -> zmtp.FrameReader:
    return zmtp.FrameReader(MESSAGE_BYTES_MAX, POOL.take)

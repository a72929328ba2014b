"""A connection of ZeroMQ's own library: an encrypted one (see `connection`).

This is the only file of the client that knows the library. With IMMEDIATE set, nothing is taken
while there is no connection; a monitor tells what becomes of it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Final

import zmq
from zmq.utils.monitor import parse_monitor_message

from weft.errors import InvalidArgument
from weft.proto.zmtp import Frame

from . import connection
from .connection import (
    BLINK_MS,
    CHANGED,
    CONNECT_MS_MAX,
    FRAME_BYTES_MAX,
    READABLE,
    RECONNECT_MS,
    RECONNECT_MS_MAX,
    SILENT_EVERY_MS,
    SILENT_MS_MAX,
    UNTAKEN_MS_MAX,
    WRITABLE,
)

#: Requests that wait in the socket; the exchange holds the others.
SEND_QUEUE_MAX: Final = 1_000

_CHANGES: Final = {
    int(zmq.EVENT_HANDSHAKE_SUCCEEDED): connection.UP,
    int(zmq.EVENT_DISCONNECTED): connection.DOWN,
    int(zmq.EVENT_CONNECT_RETRIED): connection.REFUSED,
}
assert (int(zmq.POLLIN), int(zmq.POLLOUT)) == (READABLE, WRITABLE)

_AT_ONCE: Final = int(zmq.NOBLOCK)
_MORE_AT_ONCE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
#: Without the options of other kinds of sockets.
_send: Final = zmq.backend.Socket.send

Context = zmq.Context
#: Another thread ended the context: whoever waits on one of its sockets gets this, and closes it.
ContextEnded = zmq.ContextTerminated


class Dealer:
    """Implements Connection."""

    def __init__(self, context: Context[zmq.Socket[bytes]], address: str, key: str) -> None:
        """The connection is encrypted with the node's `key`, and ends at nobody else."""
        self.address = address
        self._socket = context.socket(zmq.DEALER)
        self._monitor: zmq.Socket[bytes] | None = None
        self._closed = False
        try:
            self._configure()
            self._encrypt(key)
            self._monitor = self._socket.get_monitor_socket(sum(_CHANGES))
            self._connect(address)
        except BaseException:
            self.close(0)
            raise
        self._both = [(self._socket, READABLE), (self._monitor, READABLE)]
        self._both_or_room = [(self._socket, READABLE | WRITABLE), (self._monitor, READABLE)]

    def _configure(self) -> None:
        for option, value in (
            (zmq.IMMEDIATE, 1),
            (zmq.LINGER, 0),
            (zmq.MAXMSGSIZE, FRAME_BYTES_MAX),
            (zmq.SNDHWM, SEND_QUEUE_MAX),
            (zmq.RCVHWM, 0),  # bounded by the calls under way
            (zmq.RCVTIMEO, BLINK_MS),
            (zmq.HEARTBEAT_IVL, SILENT_EVERY_MS),
            (zmq.HEARTBEAT_TIMEOUT, SILENT_MS_MAX),
            (zmq.HEARTBEAT_TTL, SILENT_MS_MAX),
            (zmq.TCP_KEEPALIVE, 1),
            (zmq.TCP_MAXRT, UNTAKEN_MS_MAX),
            (zmq.CONNECT_TIMEOUT, CONNECT_MS_MAX),
            (zmq.RECONNECT_IVL, RECONNECT_MS),
            (zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX),
        ):
            self._socket.setsockopt(option, value)

    def _encrypt(self, key: str) -> None:
        public, secret = zmq.curve_keypair()  # this connection's own: the token says who we are
        self._socket.setsockopt(zmq.CURVE_SERVERKEY, key.encode())
        self._socket.setsockopt(zmq.CURVE_PUBLICKEY, public)
        self._socket.setsockopt(zmq.CURVE_SECRETKEY, secret)

    def _connect(self, address: str) -> None:
        self._socket.setsockopt(zmq.IPV6, 1 if address.startswith("[") else 0)
        try:
            self._socket.connect(f"tcp://{address}")
        except zmq.ZMQError as error:
            raise InvalidArgument(
                f"cannot connect to the address {address!r} ({error}): give HOST:PORT"
            ) from None
        self.address = address

    def move(self, address: str) -> None:
        self._socket.disconnect(f"tcp://{self.address}")
        self._connect(address)

    def send(self, frames: Sequence[bytes]) -> bool:
        socket = self._socket
        try:
            for frame in frames[:-1]:
                _send(socket, frame, _MORE_AT_ONCE)
            _send(socket, frames[-1], _AT_ONCE)
        except zmq.Again:
            return False
        return True

    def answer(self) -> list[Frame] | None:
        return self._receive(0)

    def receive(self) -> list[Frame] | None:
        return self._receive(_AT_ONCE)

    def _receive(self, flags: int) -> list[Frame] | None:
        socket = self._socket
        try:
            frame = socket.recv(flags, False)
        except zmq.Again:
            return None
        frames: list[Frame] = [frame.bytes]
        while frame.more:  # a frame knows it; asking the socket costs more than receiving
            frame = socket.recv(_AT_ONCE, False)
            frames.append(frame.bytes)
        return frames

    def state(self) -> int:
        """Reading it re-arms the edge-triggered descriptor."""
        return int(self._socket.getsockopt(zmq.EVENTS))

    def changed(self) -> bool:
        assert self._monitor is not None
        return bool(int(self._monitor.getsockopt(zmq.EVENTS)) & READABLE)

    def changes(self) -> list[int]:
        assert self._monitor is not None
        seen: list[int] = []
        while self.changed():
            event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            seen.append(_CHANGES[int(event["event"])])
        return seen

    def wait(self, seconds: float, *, for_room: bool) -> int:
        # A millisecond more: waking just before a deadline would mean to poll it away.
        ms = max(0, int(seconds * 1000) + 1)
        state = 0
        for socket, events in zmq.zmq_poll(self._both_or_room if for_room else self._both, ms):
            state |= CHANGED if socket is self._monitor else int(events)
        return state

    def descriptors(self) -> list[int]:
        """The socket's and the monitor's."""
        assert self._monitor is not None
        return [int(self._socket.getsockopt(zmq.FD)), int(self._monitor.getsockopt(zmq.FD))]

    def due(self) -> float:
        return math.inf  # the library has its own clock

    def close(self, linger_ms: int) -> None:
        if self._closed:
            return
        self._closed = True
        if self._monitor is not None:
            with contextlib.suppress(ContextEnded):
                self._socket.disable_monitor()
            self._monitor.close(0)
        self._socket.close(linger_ms)

"""One ZeroMQ socket to one node, and what its connection is doing.

This is the only file of the client that knows ZeroMQ. `send` and `receive` never block: the one
says whether the frames were taken, the other gives what is there. With IMMEDIATE set, nothing is
taken while there is no connection, so a request is never parked where it cannot be seen; what was
taken when a connection broke may be lost, and a monitor tells of that (`changes`), so that the
exchange can send it again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

import zmq
from zmq.utils.monitor import parse_monitor_message

from weft import limits
from weft.errors import InvalidArgument

#: A frame that the client takes: a batch as it is stored, or a full list of lent ranges.
FRAME_BYTES_MAX: Final = 2 * limits.BATCH_BYTES_MAX
#: A peer that is silent for this long is gone: TCP alone takes minutes to notice a pulled cable.
HEARTBEAT_EVERY_MS: Final = 2_000
HEARTBEAT_TIMEOUT_MS: Final = 6_000
#: A restarted node is found again within a blink, and a dead one is not hammered.
RECONNECT_MS: Final = 50
RECONNECT_MS_MAX: Final = 1_000
#: Behind a cut TCP tries less and less often: a connection that is not made, or whose bytes are not
#: taken, is made anew, or a node would stay out of reach for as long again after the cut.
CONNECT_MS_MAX: Final = 1_000
UNTAKEN_MS_MAX: Final = 3_000
#: How long a close waits for the last frames to leave.
CLOSE_MS: Final = 100
#: How long `answer` waits in one go, without an eye on the connection. Most answers are there
#: sooner; a break is noticed by so much later.
BLINK_MS: Final = 20
#: Requests that wait in the socket; the exchange holds the others.
SEND_QUEUE_MAX: Final = 1_000

UP: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED
DOWN: Final = zmq.EVENT_DISCONNECTED
REFUSED: Final = zmq.EVENT_CONNECT_RETRIED

READABLE: Final = int(zmq.POLLIN)
WRITABLE: Final = int(zmq.POLLOUT)
CHANGED: Final = 1 << 16

_AT_ONCE: Final = int(zmq.NOBLOCK)
_MORE_AT_ONCE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
#: Without the options of other kinds of sockets.
_send: Final = zmq.backend.Socket.send

Context = zmq.Context
#: Another thread ended the context: whoever waits on one of its sockets gets this, and closes it.
ContextEnded = zmq.ContextTerminated


class Dealer:
    """A connection that mends itself. Not thread-safe: it belongs to one thread at a time."""

    def __init__(self, context: Context[zmq.Socket[bytes]], address: str, key: str = "") -> None:
        """With the node's `key` the connection is encrypted, and ends at nobody else."""
        self.address = address
        self._socket = context.socket(zmq.DEALER)
        self._monitor: zmq.Socket[bytes] | None = None
        self._closed = False
        try:
            self._configure()
            if key:
                self._encrypt(key)
            self._monitor = self._socket.get_monitor_socket(UP | DOWN | REFUSED)
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
            (zmq.HEARTBEAT_IVL, HEARTBEAT_EVERY_MS),
            (zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS),
            (zmq.HEARTBEAT_TTL, HEARTBEAT_TIMEOUT_MS),
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
        """Connects elsewhere: the node came back on another port."""
        self._socket.disconnect(f"tcp://{self.address}")
        self._connect(address)

    def send(self, frames: Sequence[bytes]) -> bool:
        """Whether the socket took the frames; if not, `state` says when it has room again."""
        socket = self._socket
        try:
            for frame in frames[:-1]:
                _send(socket, frame, _MORE_AT_ONCE)
            _send(socket, frames[-1], _AT_ONCE)
        except zmq.Again:
            return False
        return True

    def answer(self) -> list[bytes] | None:
        """One multipart message, waited for at most BLINK_MS. It costs far less than `wait`."""
        return self._receive(0)

    def receive(self) -> list[bytes] | None:
        """One multipart message, if one is there."""
        return self._receive(_AT_ONCE)

    def _receive(self, flags: int) -> list[bytes] | None:
        socket = self._socket
        try:
            frame = socket.recv(flags, False)
        except zmq.Again:
            return None
        frames = [frame.bytes]
        while frame.more:  # a frame knows it; asking the socket costs more than receiving
            frame = socket.recv(_AT_ONCE, False)
            frames.append(frame.bytes)
        return frames

    def state(self) -> int:
        """READABLE and WRITABLE as bits. Reading it re-arms the edge-triggered descriptor."""
        return int(self._socket.getsockopt(zmq.EVENTS))

    def changes(self) -> list[int]:
        """UP, DOWN and REFUSED, in order, since the last call."""
        assert self._monitor is not None
        seen: list[int] = []
        while int(self._monitor.getsockopt(zmq.EVENTS)) & READABLE:
            event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            seen.append(int(event["event"]))
        return seen

    def wait(self, seconds: float, *, for_room: bool) -> int:
        """Blocks until something can be done: READABLE, WRITABLE and CHANGED, or 0 for the time."""
        # A millisecond more: waking just before a deadline would mean to poll it away.
        ms = max(0, int(seconds * 1000) + 1)
        state = 0
        for socket, events in zmq.zmq_poll(self._both_or_room if for_room else self._both, ms):
            state |= CHANGED if socket is self._monitor else int(events)
        return state

    def descriptors(self) -> list[int]:
        """What an event loop watches: the socket's and the monitor's."""
        assert self._monitor is not None
        return [int(self._socket.getsockopt(zmq.FD)), int(self._monitor.getsockopt(zmq.FD))]

    def close(self, linger_ms: int) -> None:
        """`linger_ms` is for what was just sent; without a connection there is nothing of it."""
        if self._closed:
            return
        self._closed = True
        if self._monitor is not None:
            with contextlib.suppress(ContextEnded):
                self._socket.disable_monitor()
            self._monitor.close(0)
        self._socket.close(linger_ms)

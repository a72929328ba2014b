"""The ZeroMQ edge: one ROUTER socket, used by the node's thread alone, where CURVE encrypts.

ZeroMQ's library encrypts in a thread of its own; without that `direct_edge` is nearer.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import zmq

from weft.limits import MIB
from weft.persistence.keys import Keys
from weft.proto import wire

from . import connections
from .access import Access
from .address import Address
from .admission import DOMAIN, HANDSHAKE_MS, Admission
from .audit import Audit
from .edge import (
    BACKLOG,
    FLUSH_MS,
    FRAME_BYTES_MAX,
    PEER_BYTES_MAX,
    PEER_MESSAGES_MAX,
    ROUND_BYTES_MAX,
    ROUND_MESSAGES_MAX,
    Caller,
    Edge,
    Received,
    cannot_listen,
)
from .log import fields

log = logging.getLogger(__name__)

#: ZeroMQ counts the messages that wait, and not their bytes: those are counted here. Smaller
#: answers are not: as many as may wait are no more than is allowed. That is fewer than on the
#: direct edge.
_ANSWERS_MAX: Final = 4_096
_COUNTED_BYTES_MIN: Final = PEER_BYTES_MAX // _ANSWERS_MAX
_HEARTBEAT_MS: Final = 5000
#: Below this a copy is cheaper than keeping the buffer alive until another thread has sent it.
_COPY_BELOW: Final = MIB
#: Plain numbers: an enum's arithmetic is Python, and a request would pay for it.
_AT_ONCE: Final = int(zmq.NOBLOCK)
_MORE_AT_ONCE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
_READABLE: Final = int(zmq.POLLIN)
#: Without the options of other kinds of sockets.
_send: Final = zmq.backend.Socket.send


class ZmqEdge(Edge[zmq.Frame]):
    def __init__(
        self,
        address: Address,
        access: Access | None,
        keys: Keys,
        audit: Audit | None,
        connections_max: int,
    ) -> None:
        """Every connection is encrypted with the keys; who is at its other end, a token says."""
        super().__init__(access, audit)
        self._context = zmq.Context(io_threads=1)
        self.address = address  # until it is bound
        self.admission = Admission(self._context, connections_max, self._connections)
        #: Large answers that ZeroMQ still holds: (tracker, peer, bytes).
        self._on_way: list[tuple[zmq.MessageTracker, bytes, int]] = []
        #: Whether more than one request may be waiting.
        self._crowded = True
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        self.fd = int(self._socket.getsockopt(zmq.FD))
        for option, value in (
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.MAXMSGSIZE, FRAME_BYTES_MAX),
            (zmq.SNDHWM, _ANSWERS_MAX),
            (zmq.RCVHWM, PEER_MESSAGES_MAX),
            (zmq.HEARTBEAT_IVL, _HEARTBEAT_MS),
            (zmq.HEARTBEAT_TIMEOUT, 3 * _HEARTBEAT_MS),
            (zmq.LINGER, FLUSH_MS),
            (zmq.BACKLOG, BACKLOG),
            (zmq.HANDSHAKE_IVL, HANDSHAKE_MS),
            (zmq.ZAP_DOMAIN, DOMAIN),
            (zmq.IPV6, int(":" in address.host)),
        ):
            self._socket.setsockopt(option, value)
        self._socket.setsockopt(zmq.CURVE_SERVER, 1)
        self._socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret.encode())
        self._socket.copy_threshold = _COPY_BELOW
        host = f"[{address.host}]" if ":" in address.host else address.host
        try:
            self._socket.bind(f"tcp://{host}:{address.port or '*'}")
        except zmq.ZMQError as error:
            self.close()
            raise cannot_listen(address, error.strerror or str(error)) from None
        endpoint = self._socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(endpoint, bytes)
        port = int(endpoint.rstrip(b"\0").rsplit(b":", 1)[1])
        self.address = Address(address.host, port)

    def look(self) -> None:
        """Sees whether requests have come in the meantime: they are taken together then."""
        self._crowded = self.pending()

    def pending(self) -> bool:
        return bool(int(self._socket.getsockopt(zmq.EVENTS)) & _READABLE)

    def tend(self) -> None:
        """ZeroMQ closes what has taken too long."""

    def receive(self) -> list[Received]:
        """What has come, up to a round's worth.

        If nothing had when it was looked last, it is the request that woke the node, and that one
        does not wait while it is looked for others.
        """
        socket = self._socket
        received: list[Received] = []
        size = 0
        for _ in range(ROUND_MESSAGES_MAX):  # refused ones count too: a flood of them is a flood
            if size >= ROUND_BYTES_MAX:
                break
            try:
                peer = socket.recv(_AT_ONCE)
            except zmq.Again:
                break
            frames: list[bytes] = []
            more = True  # a ROUTER puts the peer before at least one frame
            while more:
                frame = socket.recv(_AT_ONCE, copy=False)
                frames.append(frame.bytes)
                more = frame.more  # asking the socket costs more than receiving
            last = not self._crowded
            if not last:
                size += sum(map(len, frames))
                last = not int(socket.getsockopt(zmq.EVENTS)) & _READABLE  # cheaper than Again
            request = self._request(peer, frames, frame)
            if request is not None:
                received.append(request)
            if last:
                break
        self._crowded = True  # unless a look says that nobody is there
        return received

    def send(self, caller: Caller, answer: wire.AnyAnswer, payload: Sequence[bytes]) -> bool:
        """Whether it went out."""
        peer = caller.peer
        assert isinstance(peer, bytes)
        reply = wire.encode(wire.Reply(caller.rid, answer))
        try:
            if not payload:
                _send(self._socket, peer, _MORE_AT_ONCE)
                _send(self._socket, reply, _AT_ONCE)
                return True
            size = sum(map(len, payload))
            frames: list[bytes | zmq.Frame] = [peer, reply, *payload]
            if size >= _COUNTED_BYTES_MIN:
                if self._on_way_bytes(peer) + size > PEER_BYTES_MAX:
                    log.debug("answer not sent", extra=fields(why="the caller does not read"))
                    return False
                # Frames leave in order: when the last one is freed, all have left.
                frames[-1] = last = zmq.Frame(payload[-1], track=True, copy=False, copy_threshold=0)
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=size < _COUNTED_BYTES_MIN)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            log.debug("answer not sent", extra=fields(why=error.strerror))
            return False
        if size >= _COUNTED_BYTES_MIN:
            assert last.tracker is not None
            self._on_way.append((last.tracker, peer, size))
        return True

    def _on_way_bytes(self, peer: bytes) -> int:
        self._on_way = [each for each in self._on_way if not each[0].done]
        return sum(size for _, whose, size in self._on_way if whose == peer)

    def close(self) -> None:
        self._socket.close()
        self._context.term()
        self.admission.join()

    def _connections(self) -> int:
        return connections.count({"": self.address.port})[""]

    def _where(self, origin: zmq.Frame) -> str:
        """The other end, as ZeroMQ knows it."""
        try:
            return str(origin.get("Peer-Address"))
        except zmq.ZMQError:
            return ""

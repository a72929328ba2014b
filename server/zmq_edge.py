"""The ZeroMQ edge: one ROUTER socket, used by the node's thread alone.

Frames are checked while they are decoded; what is not a request is answered with a PROTOCOL failure
and forgotten. An answer that cannot be sent (the caller has gone, or never reads) is not kept: the
caller asks again if it still cares, and what a pop had lent goes back to its queue at once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import zmq

from weft.errors import Refused, Unavailable
from weft.limits import BATCH_BYTES_MAX, MIB, POP_BYTES_MAX
from weft.persistence.keys import Keys
from weft.proto import wire

from . import connections
from .access import Access
from .address import Address
from .admission import DOMAIN, HANDSHAKE_MS, Admission
from .audit import Audit, audited
from .log import fields
from .who import NOBODY, Who

log = logging.getLogger(__name__)

#: Requests that a caller may have waiting here before TCP holds it back, and answers that may wait
#: for it: together with the frame size they bound what one connection can pin.
_PEER_MESSAGES_MAX: Final = 256
#: A batch and its head, with room.
FRAME_BYTES_MAX: Final = BATCH_BYTES_MAX + MIB
#: One round takes at most this much from the network, so that answers stay prompt and the
#: free-space reserve cannot be passed between two looks at the disk.
ROUND_MESSAGES_MAX: Final = 64
ROUND_BYTES_MAX: Final = 16 * MIB
#: Answers on their way to one caller, in bytes. ZeroMQ counts messages only: 256 answers of 8 MiB
#: would be 2 GiB for one caller that never reads.
PEER_BYTES_MAX: Final = 8 * POP_BYTES_MAX
#: Smaller answers are not counted: as many as may wait are no more than this allows.
_COUNTED_BYTES_MIN: Final = PEER_BYTES_MAX // _PEER_MESSAGES_MAX
_HEARTBEAT_MS: Final = 5000
_FLUSH_MS: Final = 500
#: Below this a copy is cheaper than keeping the buffer alive until another thread has sent it.
_COPY_BELOW: Final = MIB
#: Plain numbers: an enum's arithmetic is Python, and a request would pay for it.
_AT_ONCE: Final = int(zmq.NOBLOCK)
_MORE_AT_ONCE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
_READABLE: Final = int(zmq.POLLIN)
#: Without the options of other kinds of sockets.
_send: Final = zmq.backend.Socket.send


class Caller(NamedTuple):
    """Who asked, over ZeroMQ: the connection, and the caller's own number for the request."""

    peer: bytes
    rid: int


class Received(NamedTuple):
    caller: Caller
    request: wire.AnyRequest
    payload: Sequence[bytes]
    who: Who


class ZmqEdge:
    def __init__(
        self,
        address: Address,
        access: Access | None = None,
        keys: Keys | None = None,
        audit: Audit | None = None,
        connections_max: int = 1_000_000,
    ) -> None:
        """With `keys` every connection is encrypted; who is at its other end, a token says."""
        self._access = access
        self._audit = audit
        self._context = zmq.Context(io_threads=1)
        self.address = address  # until it is bound
        self.admission = Admission(self._context, connections_max, self._connections)
        #: Large answers that ZeroMQ still holds: (tracker, peer, bytes).
        self._on_way: list[tuple[zmq.MessageTracker, bytes, int]] = []
        #: Whether more than one request may be waiting.
        self._crowded = True
        self.socket: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        for option, value in (
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.MAXMSGSIZE, FRAME_BYTES_MAX),
            (zmq.SNDHWM, _PEER_MESSAGES_MAX),
            (zmq.RCVHWM, _PEER_MESSAGES_MAX),
            (zmq.HEARTBEAT_IVL, _HEARTBEAT_MS),
            (zmq.HEARTBEAT_TIMEOUT, 3 * _HEARTBEAT_MS),
            (zmq.LINGER, _FLUSH_MS),
            (zmq.BACKLOG, 1024),
            (zmq.HANDSHAKE_IVL, HANDSHAKE_MS),
            (zmq.ZAP_DOMAIN, DOMAIN),
            (zmq.IPV6, int(":" in address.host)),
        ):
            self.socket.setsockopt(option, value)
        if keys is not None:
            self.socket.setsockopt(zmq.CURVE_SERVER, 1)
            self.socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret.encode())
        self.socket.copy_threshold = _COPY_BELOW
        host = f"[{address.host}]" if ":" in address.host else address.host
        try:
            self.socket.bind(f"tcp://{host}:{address.port or '*'}")
        except zmq.ZMQError as error:
            self.close()
            raise Unavailable(
                f"cannot listen on {address} for ZeroMQ: {error.strerror}. Stop what is using it, "
                "or give another address with --zmq-listen"
            ) from None
        endpoint = self.socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(endpoint, bytes)
        port = int(endpoint.rstrip(b"\0").rsplit(b":", 1)[1])
        self.address = Address(address.host, port)

    def look(self) -> None:
        """Sees whether requests have come in the meantime: they are taken together then."""
        self._crowded = bool(int(self.socket.getsockopt(zmq.EVENTS)) & _READABLE)

    def receive(self) -> list[Received]:
        """What has come, up to a round's worth.

        If nothing had when it was looked last, it is the request that woke the node, and that one
        does not wait while it is looked for others.
        """
        socket = self.socket
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
            try:
                call = wire.decode_call(frames[0])
                if call.version != wire.WIRE_VERSION:
                    raise msgspec.ValidationError(
                        f"wire version {call.version}, this node speaks {wire.WIRE_VERSION}"
                    )
            except (*wire.MALFORMED, IndexError) as error:
                self._refuse(peer, f"not a request: {error}")
            else:
                who = self._who(peer, call, frame)
                if who is not None:
                    caller = Caller(peer, call.rid)
                    received.append(Received(caller, call.request, frames[1:], who))
            if last:
                break
        self._crowded = True  # unless a look says that nobody is there
        return received

    def send(self, caller: Caller, answer: wire.AnyAnswer, payload: Sequence[bytes]) -> bool:
        """Whether it went out."""
        reply = wire.encode(wire.Reply(caller.rid, answer))
        try:
            if not payload:
                _send(self.socket, caller.peer, _MORE_AT_ONCE)
                _send(self.socket, reply, _AT_ONCE)
                return True
            size = sum(map(len, payload))
            frames: list[bytes | zmq.Frame] = [caller.peer, reply, *payload]
            if size >= _COUNTED_BYTES_MIN:
                if self._on_way_bytes(caller.peer) + size > PEER_BYTES_MAX:
                    log.debug("answer not sent", extra=fields(why="the caller does not read"))
                    return False
                # Frames leave in order: when the last one is freed, all have left.
                frames[-1] = last = zmq.Frame(payload[-1], track=True, copy=False, copy_threshold=0)
            self.socket.send_multipart(frames, zmq.NOBLOCK, copy=size < _COUNTED_BYTES_MIN)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            log.debug("answer not sent", extra=fields(why=error.strerror))
            return False
        if size >= _COUNTED_BYTES_MIN:
            assert last.tracker is not None
            self._on_way.append((last.tracker, caller.peer, size))
        return True

    def _on_way_bytes(self, peer: bytes) -> int:
        self._on_way = [each for each in self._on_way if not each[0].done]
        return sum(size for _, whose, size in self._on_way if whose == peer)

    def close(self) -> None:
        self.socket.close()
        self._context.term()
        self.admission.join()

    def _connections(self) -> int:
        return connections.count({"": self.address.port})[""]

    def _who(self, peer: bytes, call: wire.Call, frame: zmq.Frame) -> Who | None:
        """None for who was refused. Where from costs more than all else: only if it is noted."""
        request = call.request
        try:
            principal = self._access.check(call.token, request) if self._access else None
        except Refused as error:
            failure = wire.Failure(error.code, error.message, error.retriable)
            self.send(Caller(peer, call.rid), failure, ())
            if self._audit is not None and self._access is not None:
                who = Who(self._access.whose(call.token), _address(frame))
                self._audit.refused(who, request, error)
            return None
        if self._audit is not None and type(request) is not wire.Push and audited(request):
            return Who(principal, _address(frame))
        return Who(principal) if principal is not None else NOBODY

    def _refuse(self, peer: bytes, why: str) -> None:
        self.send(Caller(peer, 0), wire.Failure("PROTOCOL", why, False), ())


def _address(frame: zmq.Frame) -> str:
    """The other end, as ZeroMQ knows it."""
    try:
        return str(frame.get("Peer-Address"))
    except zmq.ZMQError:
        return ""

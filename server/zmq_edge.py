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

from weft.errors import Unavailable
from weft.limits import BATCH_BYTES_MAX, MIB
from weft.proto import wire

from .address import Address
from .log import fields

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
_HEARTBEAT_MS: Final = 5000
_FLUSH_MS: Final = 500
#: Below this a copy is cheaper than keeping the buffer alive until another thread has sent it.
_COPY_BELOW: Final = MIB


class Caller(NamedTuple):
    """Who asked, over ZeroMQ: the connection, and the caller's own number for the request."""

    peer: bytes
    rid: int


class Received(NamedTuple):
    caller: Caller
    request: wire.AnyRequest
    payload: Sequence[bytes]


class ZmqEdge:
    def __init__(self, address: Address) -> None:
        self._context = zmq.Context(io_threads=1)
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
            (zmq.IPV6, int(":" in address.host)),
        ):
            self.socket.setsockopt(option, value)
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

    def receive(self) -> list[Received]:
        """What has come, up to a round's worth."""
        received: list[Received] = []
        size = 0
        while len(received) < ROUND_MESSAGES_MAX and size < ROUND_BYTES_MAX:
            try:
                peer, *frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            size += sum(map(len, frames))
            try:
                call = wire.decode_call(frames[0])
                if call.version != wire.WIRE_VERSION:
                    raise msgspec.ValidationError(
                        f"wire version {call.version}, this node speaks {wire.WIRE_VERSION}"
                    )
            except (msgspec.MsgspecError, IndexError) as error:
                self._refuse(peer, f"not a request: {error}")
            else:
                received.append(Received(Caller(peer, call.rid), call.request, frames[1:]))
        return received

    def send(self, caller: Caller, answer: wire.AnyAnswer, payload: Sequence[bytes]) -> bool:
        """Whether it went out."""
        frames = [caller.peer, wire.encode(wire.Reply(caller.rid, answer)), *payload]
        try:
            if payload and len(payload[0]) >= _COPY_BELOW:
                self.socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
            else:
                self.socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            log.debug("answer not sent", extra=fields(why=error.strerror))
            return False
        return True

    def close(self) -> None:
        self.socket.close()
        self._context.term()

    def _refuse(self, peer: bytes, why: str) -> None:
        self.send(Caller(peer, 0), wire.Failure("PROTOCOL", why, False), ())

"""Limits of the data path, and the decoding and authorisation of a request.

`zmtp_edge` owns the sockets. Frames are checked while they are decoded; a frame that is not a
request is answered with a PROTOCOL failure and discarded. Responses are buffered for a caller that
is slow to read, up to a limit. Past the limit, and after the connection has ended, responses are
discarded: messages leased by a pop go back to their queue at once, and the caller retries if the
response still matters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from weft.errors import Refused, Unavailable
from weft.limits import BATCH_BYTES_MAX, MIB, POP_BYTES_MAX
from weft.proto import wire
from weft.server.address import Address
from weft.server.security.access import Access
from weft.server.security.audit import Audit, audited
from weft.server.security.caller import ANONYMOUS, Caller

#: Basis of the backpressure on a caller: a connection is not read while half as many responses wait
#: for the caller, and TCP then holds back its requests.
PEER_MESSAGES_MAX: Final = 256
#: Responses that may wait for one caller: as many as the caller can have requests in flight. If a
#: thousand pops are answered at once, none may be lost because the others are still unsent.
PEER_ANSWERS_MAX: Final = 65_536
#: A batch and its head, with some room.
FRAME_BYTES_MAX: Final = BATCH_BYTES_MAX + MIB
#: One round takes at most this much from the network, so that responses stay prompt and the node
#: cannot use up the free-space reserve between two checks of the disk.
ROUND_MESSAGES_MAX: Final = 64
ROUND_BYTES_MAX: Final = 16 * MIB
#: Bytes of responses that may wait for one caller: 65,536 responses of 8 MiB would take all memory
#: for one caller that never reads.
PEER_BYTES_MAX: Final = 8 * POP_BYTES_MAX
#: A connection without a complete handshake by then is closed.
HANDSHAKE_MS: Final = 10_000
#: Connections that may wait to be accepted.
BACKLOG: Final = 1024
#: Time for which a stopping node waits for the last responses to leave.
FLUSH_MS: Final = 500


class EdgeCaller(NamedTuple):
    """Address of a response: a connection, by its unique number, and the request's id on it."""

    peer: int
    rid: int


class Received(NamedTuple):
    caller: EdgeCaller
    request: wire.AnyRequest
    payload: Sequence[bytes]
    who: Caller


class Edge(ABC):
    def __init__(self, access: Access | None, audit: Audit | None) -> None:
        self._access = access
        self._audit = audit
        #: The last caller: consecutive requests mostly have the same principal.
        self._who = ANONYMOUS

    @abstractmethod
    def send(self, caller: EdgeCaller, answer: wire.AnyAnswer, payload: Sequence[bytes]) -> bool:
        """True if the response was sent, or is buffered for sending."""

    def _request(self, peer: int, frames: list[bytes], where: str) -> Received | None:
        """Decodes and authorises one request; None if the request was refused and answered."""
        try:
            call = wire.decode_call(frames[0])
            if call.version != wire.WIRE_VERSION:
                raise msgspec.ValidationError(
                    f"wire version {call.version}, this node speaks {wire.WIRE_VERSION}"
                )
        except (*wire.MALFORMED, IndexError) as error:
            failure = wire.Failure("PROTOCOL", f"not a request: {error}", False)
            self.send(EdgeCaller(peer, 0), failure, ())
            return None
        request = call.request
        who = ANONYMOUS
        if self._access is not None:
            try:
                principal = self._access.check(call.token, request)
            except Refused as error:
                if self._audit is not None:  # audit before the caller learns of the refusal
                    whose = Caller(self._access.whose(call.token), where)
                    self._audit.refused(whose, request, error)
                failure = wire.Failure(error.code, error.message, error.retriable)
                self.send(EdgeCaller(peer, call.rid), failure, ())
                return None
            who = self._who
            if who.principal is not principal:
                who = self._who = Caller(principal)
        if self._audit is not None and type(request) is not wire.Push and audited(request):
            who = Caller(who.principal, where)
        return Received(EdgeCaller(peer, call.rid), request, frames[1:], who)


def cannot_listen(address: Address, why: str) -> Unavailable:
    return Unavailable(
        f"cannot listen on {address} for ZeroMQ: {why}. Stop what is using it, or give another "
        "address with --zmq-listen"
    )

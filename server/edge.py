"""The data path's limits, and what a request is before a node sees it.

`direct_edge` has the sockets. Frames are checked while they are decoded; what is not a
request is answered with a PROTOCOL failure and forgotten. Answers wait for a caller that is slow to
read, up to a limit. Past it, and when it has gone, an answer is not kept: what a pop had lent goes
back to its queue at once, and the caller asks again if it still cares.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from weft.errors import Refused, Unavailable
from weft.limits import BATCH_BYTES_MAX, MIB, POP_BYTES_MAX
from weft.proto import wire

from .access import Access
from .address import Address
from .audit import Audit, audited
from .who import NOBODY, Who

#: Requests that a caller may have waiting here before TCP holds it back; as long as so many answers
#: wait for it, no more of its requests are taken.
PEER_MESSAGES_MAX: Final = 256
#: Answers that may wait for one caller: as many as it can have asked for, since one of a thousand
#: pops that are answered at once must not be lost because the others are on their way.
PEER_ANSWERS_MAX: Final = 65_536
#: A batch and its head, with room.
FRAME_BYTES_MAX: Final = BATCH_BYTES_MAX + MIB
#: One round takes at most this much from the network, so that answers stay prompt and the
#: free-space reserve cannot be passed between two looks at the disk.
ROUND_MESSAGES_MAX: Final = 64
ROUND_BYTES_MAX: Final = 16 * MIB
#: The same in bytes: that many answers of 8 MiB would be all of the memory, for one caller that
#: never reads.
PEER_BYTES_MAX: Final = 8 * POP_BYTES_MAX
#: A connection that has not shaken hands by then is closed.
HANDSHAKE_MS: Final = 10_000
#: Connections that wait for the node to look at them.
BACKLOG: Final = 1024
#: How long a node that stops waits for the last answers to leave.
FLUSH_MS: Final = 500


class Caller(NamedTuple):
    """Who asked: a connection, by a name that no other one gets, and its number for the request."""

    peer: int
    rid: int


class Received(NamedTuple):
    caller: Caller
    request: wire.AnyRequest
    payload: Sequence[bytes]
    who: Who


class Edge(ABC):
    def __init__(self, access: Access | None, audit: Audit | None) -> None:
        self._access = access
        self._audit = audit
        #: Who asked last: mostly it is who asks next.
        self._who = NOBODY

    @abstractmethod
    def send(self, caller: Caller, answer: wire.AnyAnswer, payload: Sequence[bytes]) -> bool:
        """Whether it went out."""

    def _request(self, peer: int, frames: list[bytes], where: str) -> Received | None:
        """The request in these frames; None for what was refused, which has been said."""
        try:
            call = wire.decode_call(frames[0])
            if call.version != wire.WIRE_VERSION:
                raise msgspec.ValidationError(
                    f"wire version {call.version}, this node speaks {wire.WIRE_VERSION}"
                )
        except (*wire.MALFORMED, IndexError) as error:
            failure = wire.Failure("PROTOCOL", f"not a request: {error}", False)
            self.send(Caller(peer, 0), failure, ())
            return None
        request = call.request
        who = NOBODY
        if self._access is not None:
            try:
                principal = self._access.check(call.token, request)
            except Refused as error:
                if self._audit is not None:  # before anybody knows of it
                    whose = Who(self._access.whose(call.token), where)
                    self._audit.refused(whose, request, error)
                failure = wire.Failure(error.code, error.message, error.retriable)
                self.send(Caller(peer, call.rid), failure, ())
                return None
            who = self._who
            if who.principal is not principal:
                who = self._who = Who(principal)
        if self._audit is not None and type(request) is not wire.Push and audited(request):
            who = Who(who.principal, where)
        return Received(Caller(peer, call.rid), request, frames[1:], who)


def cannot_listen(address: Address, why: str) -> Unavailable:
    return Unavailable(
        f"cannot listen on {address} for ZeroMQ: {why}. Stop what is using it, or give another "
        "address with --zmq-listen"
    )

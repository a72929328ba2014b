"""Limits of the data path, a received request and the address of its response.

`socket_edge` owns the sockets; `zmtp_edge` decodes and authorises requests. Responses are buffered
for a caller that is slow to read, up to a limit. Past the limit, and after the connection has
ended, responses are discarded: messages leased by a pop go back to their queue at once, and the
caller retries if the response still matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from weft.errors import Unavailable
from weft.limits import BATCH_BYTES_MAX, MIB, POP_BYTES_MAX
from weft.proto import wire
from weft.server.address import Address
from weft.server.security.caller import Caller

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


#: The ticket of a gRPC call in the node's thread: the number of its connection, and below it a
#: number of so many bits. A ticket of another thread is below: its connection is 0.
TICKET_BITS: Final = 48


def ticket_peer(ticket: object) -> int:
    """The connection of a ticket; 0 for the ticket of another thread."""
    return ticket >> TICKET_BITS if isinstance(ticket, int) else 0


class Received(NamedTuple):
    caller: EdgeCaller
    request: wire.AnyRequest
    payload: Sequence[bytes]
    who: Caller


def cannot_listen(address: Address, why: str) -> Unavailable:
    return Unavailable(
        f"cannot listen on {address} for ZeroMQ: {why}. Stop the process that uses the port, or "
        "set another address with --zmq-listen"
    )

"""A client request that waits in the line of its queue (`request_lines.py`). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from weft.limits import KIB
from weft.proto import wire

#: Bytes counted for a request in addition to its payload: decoding, its records and its answer take
#: the rest of a round as much time as so many bytes (`python -m bench.fair --costs`).
REQUEST_BYTES: Final = 2 * KIB
#: Requests that wait in lines. All others run at once: they name no queue or are rare.
HELD: Final = frozenset({
    wire.Push, wire.PushGroup, wire.PushTenant, wire.Pop, wire.Peek, wire.Ack, wire.Nack,
    wire.Extend, wire.PushWaiting,
})  # fmt: skip


class HeldRequest(NamedTuple):
    """A request in a line."""

    to: object
    request: wire.AnyRequest
    payload: Sequence[bytes]
    #: The identity of the caller, for the driver.
    who: object
    #: A plain client knows one node.
    plain: bool
    #: The connection, or 0.
    peer: int
    #: The time of arrival, in microseconds.
    since: int

    @property
    def size(self) -> int:
        return REQUEST_BYTES + sum(map(len, self.payload))

"""Response budget: the backpressure of a node's connections (see `engine/backpressure.py`).

A connection is blocked while its unsent bytes exceed a limit: the bytes buffered in the connection,
plus the bytes promised to it. A response leaves only after its round is written, and until then the
connection does not count the response. A closed connection is never blocked: messages sent to a
closed connection go back to their queue.
"""

from __future__ import annotations

from typing import Final

from weft.limits import POP_BYTES_MAX

from .edge import PEER_BYTES_MAX, EdgeCaller, ticket_peer
from .socket_edge import SocketEdge

#: A connection with fewer unsent bytes gets more. The limit is many times the unsent bytes of a
#: consumer with some pops in flight, so only a flood of pops is ever held back.
HEARS_BYTES_MAX: Final = 2 * POP_BYTES_MAX
assert HEARS_BYTES_MAX + 2 * POP_BYTES_MAX <= PEER_BYTES_MAX, (
    "a connection would end because of what it has asked for"
)


class ResponseBudget:
    """Implements Backpressure."""

    def __init__(self, edge: SocketEdge) -> None:
        self._edge = edge
        #: Bytes of responses that are not sent yet, by caller and by connection.
        self.promised: dict[object, int] = {}
        self._to_come: dict[int, int] = {}

    def blocked_peer(self, to: object) -> int | None:
        peer = to.peer if isinstance(to, EdgeCaller) else ticket_peer(to)
        return None if not peer or self.hears(peer) else peer

    def hears(self, ear: int) -> bool:
        return self._to_come.get(ear, 0) + self._edge.held(ear) < HEARS_BYTES_MAX

    def tell(self, to: object, size: int) -> None:
        peer = to.peer if isinstance(to, EdgeCaller) else ticket_peer(to)
        if peer:
            self.promised[to] = self.promised.get(to, 0) + size  # a request id may be used twice
            self._to_come[peer] = self._to_come.get(peer, 0) + size

    def told(self, to: EdgeCaller | int) -> None:
        """The caller was answered, whether or not the response has the promised size."""
        size = self.promised.pop(to, None)
        if size is not None:
            peer = to.peer if isinstance(to, EdgeCaller) else ticket_peer(to)
            left = self._to_come[peer] - size
            if left:
                self._to_come[peer] = left
            else:
                del self._to_come[peer]

"""Hearing: the ears of a node are its connections (see `engine/ears.py`).

A connection is deaf while it has much to take: what waits in it, and what is promised to it, since
an answer goes out after its round was written and until then its connection knows nothing of it.
One that has gone hears everything: what is sent to it comes back to its queue.
"""

from __future__ import annotations

from typing import Final

from weft.limits import POP_BYTES_MAX

from .direct_edge import DirectEdge
from .edge import PEER_BYTES_MAX, Caller

#: Who has less than this to take is told more. It is many times what a consumer with some pops
#: under way has, so that only a flood of them is ever held back.
HEARS_BYTES_MAX: Final = 2 * POP_BYTES_MAX
assert HEARS_BYTES_MAX + 2 * POP_BYTES_MAX <= PEER_BYTES_MAX, (
    "a connection would end because of what it has asked for"
)


class Hearing:
    """Implements Ears."""

    def __init__(self, edge: DirectEdge) -> None:
        self._edge = edge
        #: Bytes of answers that are not sent yet, by caller and by connection.
        self._promised: dict[Caller, int] = {}
        self._to_come: dict[int, int] = {}

    def deaf(self, to: object) -> int | None:
        if not isinstance(to, Caller) or self.hears(to.peer):
            return None
        return to.peer

    def hears(self, ear: int) -> bool:
        return self._to_come.get(ear, 0) + self._edge.held(ear) < HEARS_BYTES_MAX

    def tell(self, to: object, size: int) -> None:
        if isinstance(to, Caller):
            self._promised[to] = self._promised.get(to, 0) + size  # it may have asked twice
            self._to_come[to.peer] = self._to_come.get(to.peer, 0) + size

    def told(self, to: Caller) -> None:
        """It was answered, whatever became of what it was promised."""
        size = self._promised.pop(to, None)
        if size is not None:
            left = self._to_come[to.peer] - size
            if left:
                self._to_come[to.peer] = left
            else:
                del self._to_come[to.peer]

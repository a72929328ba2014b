"""Hearing: the ears of a node are its connections (see `engine/ears.py`).

A connection is deaf while it is stalled, or while much is promised to it: an answer goes out
after its round was written, and until then its connection knows nothing of it. One that has gone
hears everything: what is sent to it comes back to its queue.
"""

from __future__ import annotations

from typing import Final

from weft.limits import POP_BYTES_MAX

from .connection import AHEAD_BYTES_MAX
from .direct_edge import DirectEdge
from .edge import PEER_BYTES_MAX, Caller

#: What may be promised while a write is under way: less, and a consumer with some pops under way
#: would have nothing to do after each. Without one it is as much as may wait in a connection.
PROMISED_BYTES_MAX: Final = POP_BYTES_MAX
# With the answer that was too much, of each.
assert AHEAD_BYTES_MAX + PROMISED_BYTES_MAX + 2 * POP_BYTES_MAX < PEER_BYTES_MAX, (
    "or a connection would end because of what it has asked for"
)


class Hearing:
    """Implements Ears."""

    def __init__(self, edge: DirectEdge) -> None:
        self._edge = edge
        #: Whether a write is under way, after which answers go out.
        self.writing = False
        #: Bytes of answers that are not sent yet, by caller and by connection.
        self._promised: dict[Caller, int] = {}
        self._to_come: dict[int, int] = {}

    def deaf(self, to: object) -> int | None:
        if not isinstance(to, Caller) or self.hears(to.peer):
            return None
        return to.peer

    def hears(self, ear: int) -> bool:
        most = PROMISED_BYTES_MAX if self.writing else AHEAD_BYTES_MAX
        return self._to_come.get(ear, 0) < most and not self._edge.stalled(ear)

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

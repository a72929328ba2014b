"""One connection to one node, as a link sees it: frames in, frames out, and what became of it.

`Direct` is one: it is read and written by whoever waits for an answer.

`send` and `receive` never block: the one says whether the frames were taken, the other gives what
is there. Nothing is taken while there is no connection, so a request is never parked where it
cannot be seen; what was taken when a connection broke may be lost, and `changes` tells of that, so
that the exchange can send it again. A connection mends itself, and belongs to one thread at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from weft import limits
from weft.proto.zmtp import Frame

#: A frame that the client takes: a batch as it is stored, or a full list of lent ranges.
FRAME_BYTES_MAX: Final = 2 * limits.BATCH_BYTES_MAX
#: A peer that is silent for this long is gone: TCP alone takes minutes to notice a pulled cable.
SILENT_EVERY_MS: Final = 2_000
SILENT_MS_MAX: Final = 6_000
#: A restarted node is found again within a blink, and a dead one is not hammered.
RECONNECT_MS: Final = 50
RECONNECT_MS_MAX: Final = 1_000
#: Behind a cut TCP tries less and less often: a connection that is not made, or whose bytes are not
#: taken, is made anew, or a node would stay out of reach for as long again after the cut.
CONNECT_MS_MAX: Final = 1_000
UNTAKEN_MS_MAX: Final = 3_000
#: How long a close waits for the last frames to leave.
CLOSE_MS: Final = 100
#: How long `answer` waits in one go, without an eye on the connection. Most answers are there
#: sooner; a break is noticed by so much later.
BLINK_MS: Final = 20

#: What has become of a connection (`changes`): it is made, it was lost, it could not be made.
UP: Final = 1
DOWN: Final = 2
REFUSED: Final = 3

#: What can be done (`state`, `wait`), as bits.
READABLE: Final = 1
WRITABLE: Final = 2
CHANGED: Final = 1 << 16


class Ended(Exception):
    """Another thread has ended the connection: whoever waits on it closes it."""


class Connection(Protocol):
    address: str

    def move(self, address: str) -> None:
        """Connects elsewhere: the node came back on another port."""
        ...

    def send(self, frames: Sequence[bytes]) -> bool:
        """Whether the frames were taken; if not, `state` says when there is room again."""
        ...

    def answer(self) -> list[Frame] | None:
        """One message, waited for at most BLINK_MS. It costs far less than `wait`."""
        ...

    def receive(self) -> list[Frame] | None:
        """One message, if one is there."""
        ...

    def state(self) -> int:
        """READABLE and WRITABLE."""
        ...

    def changed(self) -> bool:
        """Whether it is known, without a closer look, that `changes` has something to tell."""
        ...

    def changes(self) -> list[int]:
        """UP, DOWN and REFUSED, in order, since the last call."""
        ...

    def wait(self, seconds: float, *, for_room: bool) -> int:
        """Blocks until something can be done: READABLE, WRITABLE and CHANGED, or 0 for the time.

        Raises Ended.
        """
        ...

    def descriptors(self) -> list[int]:
        """What an event loop watches."""
        ...

    def due(self) -> float:
        """When `changes` must be looked at though no descriptor says so, by time.monotonic."""
        ...

    def close(self, linger_ms: int) -> None:
        """`linger_ms` is for what was just sent; without a connection there is nothing of it."""
        ...

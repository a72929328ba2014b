"""One connection to one node, as a link uses it: frames in, frames out, state changes.

`TcpConnection` implements the protocol: the thread that waits for an answer reads and writes the
socket.

`send` and `receive` never block: `send` returns whether the frames were accepted, `receive` returns
a message that has arrived. While disconnected, a connection accepts no frames, so no request waits
in an invisible queue. Frames accepted before a break may be lost; `changes` reports the break, so
`PendingCalls` can resend them. A connection reconnects by itself and belongs to one thread at a
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from weft import limits
from weft.transport.zmtp import Frame

#: Largest frame that the client accepts: a stored batch, or a full list of leased ranges.
FRAME_BYTES_MAX: Final = 2 * limits.BATCH_BYTES_MAX
#: A peer silent for this long is dead: TCP alone takes minutes to notice a pulled cable.
SILENT_EVERY_MS: Final = 2_000
SILENT_MS_MAX: Final = 6_000
#: Reconnect pauses: the client finds a restarted node quickly and does not flood a dead node.
RECONNECT_MS: Final = 50
RECONNECT_MS_MAX: Final = 1_000
#: During a network partition TCP retries less and less often. A connection that is not established,
#: or has unacknowledged bytes, is therefore opened again. Otherwise a node would stay unreachable
#: after the partition for as long again.
CONNECT_MS_MAX: Final = 1_000
UNTAKEN_MS_MAX: Final = 3_000
#: How long a close waits for the last frames to be sent.
CLOSE_MS: Final = 100
#: How long `answer` blocks without checking the connection state. Most answers arrive sooner; the
#: client notices a break later by this time.
BLINK_MS: Final = 20

#: State changes (`changes`): connected, connection lost, connection attempt failed.
UP: Final = 1
DOWN: Final = 2
REFUSED: Final = 3

#: Bits of `state` and `wait`: the operations that are possible now.
READABLE: Final = 1
WRITABLE: Final = 2
CHANGED: Final = 1 << 16


class ConnectionEnded(Exception):
    """Another thread has ended the connection; the waiting thread closes the connection."""


class NodeConnection(Protocol):
    address: str

    def move(self, address: str) -> None:
        """Connects to another address: the node came back on another port."""
        ...

    def send(self, frames: Sequence[bytes]) -> bool:
        """Returns True if the frames were accepted; if not, `state` reports when there is room."""
        ...

    def gather(self) -> None:
        """Gathers the frames of each `send` until `send_gathered`: one system call for all."""
        ...

    def send_gathered(self) -> None: ...

    def answer(self) -> list[Frame] | None:
        """Returns one message, after at most BLINK_MS. Costs far less than `wait`."""
        ...

    def receive(self) -> list[Frame] | None:
        """Returns one message, or None if none has arrived."""
        ...

    def state(self) -> int:
        """Returns READABLE and WRITABLE bits."""
        ...

    def changed(self) -> bool:
        """Returns True if a change is already known, without reading the socket."""
        ...

    def changes(self) -> list[int]:
        """Returns UP, DOWN and REFUSED changes since the last call, in order."""
        ...

    def wait(self, seconds: float, *, for_room: bool) -> int:
        """Blocks until an operation is possible.

        Returns READABLE, WRITABLE and CHANGED bits, or 0 after `seconds`. Raises ConnectionEnded.
        """
        ...

    def descriptors(self) -> list[int]:
        """The file descriptors for an event loop to watch."""
        ...

    def due(self) -> float:
        """The time.monotonic time to call `changes` even if no descriptor is ready."""
        ...

    def close(self, linger_ms: int) -> None:
        """Closes; waits up to `linger_ms` for sent frames to leave, if there is a connection."""
        ...

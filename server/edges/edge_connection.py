"""The interface of one client connection, for the edge that owns the connection's socket.

`ZmtpConnection` and `GrpcConnection` implement it. A connection never blocks and has no knowledge
of other connections.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sized

from weft.proto import wire


class EdgeConnection(ABC):
    __slots__ = (
        "bulky", "due", "fd", "more", "number", "paused", "requests", "since", "watched", "where",
    )  # fmt: skip

    def __init__(self, fd: int, number: int, where: str, since: float) -> None:
        self.fd = fd
        #: Unique among all connections of the node, never reused.
        self.number = number
        #: The peer's host, and the time of accept.
        self.where = where
        self.since = since
        #: Received requests that are not handled yet, the oldest last. A gRPC connection keeps
        #: none: its calls submit their requests to the edge while they are read.
        self.requests: list[list[bytes]] = []
        #: True if the last read filled its buffer, so more input is likely.
        self.more = False
        # Owned by the edge: `due` is True while the connection is in the read queue, `bulky` is
        # True if the last pop had a large response, `watched` is the epoll event mask.
        self.due = False
        self.bulky = False
        self.watched = 0
        #: Not read, because too many of its requests wait for their turn (`SocketEdge.pause`).
        self.paused = False

    #: True once the handshake is complete.
    welcome: bool
    #: Bytes buffered for the peer.
    held: int
    #: Output that the kernel has not taken; empty for none.
    waiting: Sized

    @property
    @abstractmethod
    def stalled(self) -> bool:
        """True if nothing more is to be read: paused, or so much output is buffered."""

    @abstractmethod
    def greet(self) -> None:
        """Sends the first bytes of a new connection. Raises EOFError if the peer has gone."""

    @abstractmethod
    def read(self) -> int:
        """Reads one piece and returns its length in bytes.

        Raises OSError, EOFError or ProtocolError when the connection ends.
        """

    @abstractmethod
    def flush(self) -> None:
        """Writes buffered output until the kernel refuses. Raises OSError when the peer is gone."""

    @abstractmethod
    def unsent_lent(self) -> list[wire.Lent]:
        """The messages leased by buffered responses, which the edge returns to their queues."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def leave(self) -> None:
        """Closes after the last response; unread input would make the kernel drop that response."""

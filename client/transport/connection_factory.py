"""Opens and ends the connections of one link."""

from __future__ import annotations

import weakref

from .connection import NodeConnection
from .link import NodeAddress
from .tcp_connection import TcpConnection


class ConnectionFactory:
    """Threads may share one factory; each connection belongs to one thread."""

    def __init__(self, place: NodeAddress) -> None:
        self._place = place
        self._made: weakref.WeakSet[TcpConnection] = weakref.WeakSet()

    def connect(self) -> NodeConnection:
        made = TcpConnection(self._place.address, self._place.key)
        self._made.add(made)
        return made

    def end(self) -> None:
        """Wakes every thread that waits on a connection."""
        for made in list(self._made):
            made.end()

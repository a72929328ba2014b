"""What a node waits for: its clients, other nodes, and its own other threads.

ZeroMQ's poller would do, but it asks the kernel several times for what is one question, and a
request that comes alone waits for each of them. A ZeroMQ socket's descriptor only says that
something has happened since the socket was looked at last, so those sockets are looked at before
every wait.
"""

from __future__ import annotations

import select
from typing import Final, Protocol

CLIENTS: Final = 1
PEERS: Final = 2
INBOX: Final = 4


class Source(Protocol):
    """Where requests or messages come from."""

    @property
    def fd(self) -> int:
        """Readable when there is something, or, for ZeroMQ's, when there may be."""
        ...

    def pending(self) -> bool:
        """Whether something is there that the descriptor need not tell of."""
        ...


class Watch:
    def __init__(self, clients: Source, peers: Source, inbox: int) -> None:
        self._poll = select.poll()
        self._bits = {clients.fd: CLIENTS, peers.fd: PEERS, inbox: INBOX}
        for fd in self._bits:
            self._poll.register(fd, select.POLLIN)
        self._clients = clients
        self._peers = peers

    def wait(self, ms: int) -> int:
        """What is ready, as bits, or 0 when the time is over. PEERS may be said for nothing."""
        ready = PEERS if self._peers.pending() else 0
        if self._clients.pending():
            ready |= CLIENTS
        for fd, _ in self._poll.poll(0 if ready else ms):
            ready |= self._bits[fd]
        return ready

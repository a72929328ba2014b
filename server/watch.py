"""What a node waits for: its clients, other nodes, its own other threads, and a write's end.

ZeroMQ's poller would do, but it asks the kernel several times for what is one question, and a
request that comes alone waits for each of them. A ZeroMQ socket's descriptor only says that
something has happened since the socket was looked at last, so the one of other nodes is looked at
before every wait.

Who calls again as soon as he is answered is waited for awake for a moment (`weft.awake`).
"""

from __future__ import annotations

import select
from typing import Final, Protocol

from weft.awake import Awake

CLIENTS: Final = 1
PEERS: Final = 2
INBOX: Final = 4
WRITTEN: Final = 8


class Source(Protocol):
    """Where messages of other nodes come from."""

    @property
    def fd(self) -> int:
        """Readable when there may be something."""
        ...

    def pending(self) -> bool:
        """Whether something is there that the descriptor need not tell of."""
        ...


class Watch:
    def __init__(
        self, clients: int, peers: Source, inbox: int, written: int, awake_us: int
    ) -> None:
        self._poll = select.poll()
        self._bits = {clients: CLIENTS, peers.fd: PEERS, inbox: INBOX, written: WRITTEN}
        for fd in self._bits:
            self._poll.register(fd, select.POLLIN)
        self._peers = peers
        self._awake = Awake(awake_us)

    def wait(self, ms: int, *, soon: bool = False) -> int:
        """What is ready, as bits, or 0 when the time is over. PEERS may be said for nothing.

        `soon`: something is likely to come at once.
        """
        ready = PEERS if self._peers.pending() else 0
        poll = self._poll.poll
        if ready:
            ms = 0
        found = self._awake.wait(lambda: poll(0), lambda: poll(ms)) if soon and ms else poll(ms)
        for fd, _ in found:
            ready |= self._bits[fd]
        return ready

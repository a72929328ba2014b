"""The poller: waits for clients, other nodes, other threads of the node, and the end of a write.

ZeroMQ's poller would do, but makes several system calls for one question, and a request that comes
alone waits for each of them. The descriptor of a ZeroMQ socket only signals an event since the last
check of the socket, so the poller checks the socket of other nodes before every wait.

If the next request is likely to come at once, the poller spins briefly before blocking
(`weft.spin_wait`).
"""

from __future__ import annotations

import select
from typing import Final, Protocol

from weft.spin_wait import SpinWait

CLIENTS: Final = 1
PEERS: Final = 2
INBOX: Final = 4
WRITTEN: Final = 8


class PollSource(Protocol):
    """The source of messages from other nodes."""

    @property
    def fd(self) -> int:
        """Readable when there may be messages."""
        ...

    def pending(self) -> bool:
        """True if there are messages that the descriptor need not signal."""
        ...


class Poller:
    def __init__(
        self, clients: int, peers: PollSource, inbox: int, written: int, awake_us: int
    ) -> None:
        self._poll = select.poll()
        self._bits = {clients: CLIENTS, peers.fd: PEERS, inbox: INBOX, written: WRITTEN}
        for fd in self._bits:
            self._poll.register(fd, select.POLLIN)
        self._peers = peers
        self._awake = SpinWait(awake_us)

    def wait(self, ms: int, *, soon: bool = False) -> int:
        """The ready sources as bits, or 0 after a timeout. PEERS may be set without a message.

        `soon`: a request is likely to come at once.
        """
        ready = PEERS if self._peers.pending() else 0
        poll = self._poll.poll
        if ready:
            ms = 0
        found = self._awake.wait(lambda: poll(0), lambda: poll(ms)) if soon and ms else poll(ms)
        for fd, _ in found:
            ready |= self._bits[fd]
        return ready

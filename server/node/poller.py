"""What the driver gets from outside: events, the time, and random numbers.

The poller waits for clients, other nodes, other threads of the node, and the end of a write.

ZeroMQ's poller would do, but makes several system calls for one question, and a request that comes
alone waits for each of them. The descriptor of a ZeroMQ socket only signals an event since the last
check of the socket, so the poller checks the socket of other nodes before every wait.

If the next request is likely to come at once, the poller spins briefly before blocking
(`weft.spin_wait`).

The clock has the time of day, without steps back and without jumps while the node runs: it
reads the wall time once at start and then follows the monotonic clock, so that setting the
system's time can neither expire every lease at once nor keep a lease for ever.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Iterator
from typing import Final, Protocol

from weft.spin_wait import SpinWait

CLIENTS: Final = 1
PEERS: Final = 2
INBOX: Final = 4
WRITTEN: Final = 8
#: Random numbers taken from the system at a time.
_WORDS: Final = 512


class PollSource(Protocol):
    """The source of messages from other nodes."""

    @property
    def fd(self) -> int:
        """Readable when there may be messages."""
        ...

    @property
    def silent(self) -> bool:
        """True if the descriptor signals every arrival: `pending` need not be called."""
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
        self._awake, self._spins = SpinWait(awake_us), awake_us > 0

    def wait(self, ms: int, *, soon: bool = False) -> int:
        """The ready sources as bits, or 0 after a timeout. PEERS may be set without a message.

        `soon`: a request is likely to come at once.
        """
        ready = PEERS if not self._peers.silent and self._peers.pending() else 0
        poll = self._poll.poll
        if ready:
            ms = 0
        spins = soon and ms and self._spins
        found = self._awake.wait(lambda: poll(0), lambda: poll(ms)) if spins else poll(ms)
        for fd, _ in found:
            ready |= self._bits[fd]
        return ready


class Clock:
    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_us(self) -> int:
        """Microseconds since 1970."""
        return (time.monotonic_ns() + self._offset_ns) // 1000


def random_numbers() -> Iterator[int]:
    """Numbers of 63 random bits. Many at a time: a pop needs one for each lease."""
    while True:
        for word in struct.unpack(f"={_WORDS}Q", os.urandom(8 * _WORDS)):
            yield word >> 1

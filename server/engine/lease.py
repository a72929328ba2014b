"""Leases: what a pop has lent, until it is acked, nacked or overdue.

A lease covers a range of one batch. It is named by a random 63-bit nonce, so that a receipt can be
neither guessed nor reused. Leases live in memory only: a restart voids them all, and what was lent
is delivered again (at-least-once).

An ack or nack may be sent again by a client that did not hear the answer. For that, a lease that
ended is remembered for a while with what was acked and nacked under it: the same word again is
answered "already", the other word, or a word after expiry, "lost".
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from . import handle, mask
from .head import Part
from .timers import Timers

if TYPE_CHECKING:
    from .batch import Batch
    from .queue import Queue

#: Leases at one time on a node; each is about 400 bytes.
LEASES_MAX: Final = 1_000_000
#: Ended leases that are remembered, for retried acks, and for how long: four times as long as a
#: client tries by default. Without it a quiet node would grow for hours, to 20 MiB.
ENDED_MAX: Final = 65_536
ENDED_US: Final = 120_000_000


class Lease:
    __slots__ = ("acked", "batch", "lease_us", "mask", "nacked", "nonce", "part", "queue")

    def __init__(self, nonce: int, queue: Queue, batch: Batch, part: Part, lease_us: int) -> None:
        self.nonce = nonce
        self.queue = queue
        self.batch = batch
        self.part = part
        self.lease_us = lease_us
        self.mask = mask.of_range(part.first, part.count)  # what is still out
        self.acked = 0
        self.nacked = 0

    @property
    def key(self) -> int:
        """(partition, lsn) of its batch, as one number."""
        return handle.key(self.batch.handle)


class Ended(NamedTuple):
    """What was said under a lease that is over."""

    queue_id: int
    key: int
    first: int
    messages: int
    acked: int
    nacked: int
    at: int


class Leases:
    def __init__(self) -> None:
        self.by_nonce: dict[int, Lease] = {}
        #: How many there may be at one time.
        self.most = LEASES_MAX
        self.timers = Timers()
        self.ended: OrderedDict[int, Ended] = OrderedDict()

    def add(self, lease: Lease, expires: int) -> None:
        self.by_nonce[lease.nonce] = lease
        self.timers.set(lease.nonce, expires)
        lease.batch.leases[lease.nonce] = lease

    def forget(self, lease: Lease) -> None:
        """The lease is over, and a word about it is somebody else's to answer."""
        del self.by_nonce[lease.nonce]
        del lease.batch.leases[lease.nonce]
        self.timers.clear(lease.nonce)

    def end(self, lease: Lease, now: int) -> None:
        """The lease is over; what was said under it is remembered."""
        self.forget(lease)
        part = lease.part
        self.ended[lease.nonce] = Ended(
            lease.queue.id, lease.key, part.first, part.count, lease.acked, lease.nacked, now
        )
        if len(self.ended) > ENDED_MAX:
            self.ended.popitem(last=False)

    def tidy(self, now: int) -> None:
        """Nobody asks again about leases that ended so long ago."""
        ended = self.ended
        while ended and next(iter(ended.values())).at < now - ENDED_US:
            ended.popitem(last=False)

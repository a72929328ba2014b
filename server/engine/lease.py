"""Leases: messages lent by a pop, until ack, nack or expiry.

A lease covers a range of one batch. The name of a lease is a random 63-bit nonce, so a receipt can
be neither guessed nor reused. Leases are in memory: a crash ends all leases, and the messages are
delivered again (at-least-once). A planned move of the partition hands the leases over to the next
primary, as records in the partition's log (``lease_records``).

A client may resend an ack or nack after a lost answer. Therefore an ended lease is remembered for
`ENDED_US` with its acked and nacked messages:

| resent request             | answer    |
|----------------------------|-----------|
| the same request           | "already" |
| ack after nack, or reverse | "lost"    |
| ack or nack after expiry   | "lost"    |
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from . import message_set
from .head import Part
from .timers import Timers

if TYPE_CHECKING:
    from .batch import TouchedBatch
    from .queue import QueueState

#: Maximum active leases on a node; each takes about 400 bytes.
LEASES_MAX: Final = 1_000_000
#: Number of ended leases remembered for retried acks, and the time in microseconds: four times as
#: long as a client retries by default. Without the time limit a quiet node would grow for hours, to
#: 20 MiB.
ENDED_MAX: Final = 65_536
ENDED_US: Final = 120_000_000
#: Makes a named tuple without the call of its own constructor.
_new: Final = tuple.__new__


class Lease:
    __slots__ = (
        "acked", "batch", "handed", "lease_us", "mask", "nacked", "nonce", "part", "queue",
        "recorded", "sent",
    )  # fmt: skip

    def __init__(
        self, nonce: int, queue: QueueState, batch: TouchedBatch, part: Part, lease_us: int
    ) -> None:
        self.nonce = nonce
        self.queue = queue
        self.batch = batch
        self.part = part
        self.lease_us = lease_us
        self.mask = message_set.of_range(part.first, part.count)  # messages still leased
        #: Messages handed out to the application: only these count as delivered when the lease
        #: expires. All messages, except for a prefetching pop, which records each hand-out.
        self.handed = self.mask
        self.acked = 0
        self.nacked = 0
        #: A record of the lease is in the store, or in the round's changes.
        self.recorded = False
        #: True if a consumer surely got the lease, because its receipt was used; False for a lease
        #: from a previous primary which may not have sent the answer; None: not in question.
        self.sent: bool | None = None

    @property
    def key(self) -> int:
        """(partition, lsn) of the batch, as one number."""
        return self.batch.key


class EndedLease(NamedTuple):
    """The acks and nacks of an ended lease."""

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
        #: Maximum active leases.
        self.most = LEASES_MAX
        self.timers = Timers()
        self.ended: OrderedDict[int, EndedLease] = OrderedDict()

    def add(self, lease: Lease, expires: int) -> None:
        self.by_nonce[lease.nonce] = lease
        self.timers.set(lease.nonce, expires)
        lease.batch.leases[lease.nonce] = lease

    def forget(self, lease: Lease) -> None:
        """Removes a lease without remembering it: another node answers later acks and nacks."""
        del self.by_nonce[lease.nonce]
        del lease.batch.leases[lease.nonce]
        self.timers.clear(lease.nonce)

    def end(self, lease: Lease, now: int) -> None:
        """Ends a lease and remembers its acks and nacks."""
        self.forget(lease)
        part = lease.part
        acked, nacked = lease.acked, lease.nacked
        facts = lease.queue.id, lease.batch.key, part.first, part.count, acked, nacked, now
        self.remember(lease.nonce, _new(EndedLease, facts))

    def remember(self, nonce: int, ended: EndedLease) -> None:
        self.ended[nonce] = ended
        if len(self.ended) > ENDED_MAX:
            self.ended.popitem(last=False)

    def tidy(self, now: int) -> None:
        """Discards leases ended more than `ENDED_US` ago: no client retries so late."""
        ended = self.ended
        while ended and next(iter(ended.values())).at < now - ENDED_US:
            ended.popitem(last=False)

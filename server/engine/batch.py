"""A touched batch: the head, divided into waiting parts and leases.

A batch which only waits is a handle (see ``handle``). The first pop of a batch creates a
`TouchedBatch`. Invariant: every live message is in exactly one place, either in one of ``parts``,
or in the mask of one of ``leases``. The range of a part is in one list of the queue's MessageId
queue, or in a hold.
"""

from __future__ import annotations

from . import handle, message_set
from .head import Head, Part
from .lease import Lease


class TouchedBatch:
    __slots__ = ("handle", "head", "leases", "parts", "purged")

    def __init__(self, batch_handle: int, head: Head) -> None:
        self.handle = batch_handle
        self.head = head
        self.parts: dict[int, Part] = {part.first: part for part in head.parts}
        self.leases: dict[int, Lease] = {}
        #: Messages, as bits, removed by a purge or a delete since the last write of the head.
        self.purged = 0

    @classmethod
    def load(cls, partition: int, lsn: int, head: Head) -> TouchedBatch:
        return cls(handle.pack(head.stamp, partition, lsn, head.count, head.size), head)

    @property
    def gone(self) -> bool:
        return not self.parts and not self.leases

    def share(self, first: int, count: int) -> int:
        """The bytes of a range: a proportional share; the shares of all ranges add up exactly."""
        head = self.head
        return head.size * (first + count) // head.count - head.size * first // head.count

    def stored(self) -> Head:
        """The current head. Leased messages are stored in their state before the lease."""
        living = list(self.parts.values())
        for lease in self.leases.values():
            living.extend(narrow(lease.part, *run) for run in message_set.runs(lease.mask))
        living.sort(key=_first)
        head = self.head
        return Head(
            head.queue, head.producer, head.batch, head.count, head.size, head.stamp,
            head.priority, head.dedup_key, merge(living),
        )  # fmt: skip


def set_aside(part: Part, hold: int) -> Part:
    """The same part in the hold of this number; 0: in no hold."""
    return Part(
        part.first, part.count, part.queue, part.deliveries, part.due, part.reason, part.origin,
        hold, part.crashes,
    )  # fmt: skip


def split(part: Part, count: int) -> tuple[Part, Part]:
    """The first `count` messages of a part, and the rest."""
    assert 0 < count < part.count
    return (
        narrow(part, part.first, count),
        narrow(part, part.first + count, part.count - count),
    )


def narrow(part: Part, first: int, count: int) -> Part:
    """A range of a part, as a part."""
    return Part(
        first, count, part.queue, part.deliveries, part.due, part.reason, part.origin, part.hold,
        part.crashes,
    )  # fmt: skip


def _first(part: Part) -> int:
    return part.first


def merge(parts: list[Part]) -> list[Part]:
    """Merges neighbours with equal fields except for the range, to keep heads small."""
    merged: list[Part] = []
    for part in parts:
        if merged and _adjoin(merged[-1], part):
            merged[-1] = narrow(part, merged[-1].first, merged[-1].count + part.count)
        else:
            merged.append(part)
    return merged


def _adjoin(left: Part, right: Part) -> bool:
    return (
        left.first + left.count == right.first
        and left.queue == right.queue
        and left.deliveries == right.deliveries
        and left.due == right.due
        and left.reason == right.reason
        and left.origin == right.origin
        and left.hold == right.hold
        and left.crashes == right.crashes
    )

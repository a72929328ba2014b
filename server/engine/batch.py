"""A batch that something has happened to: the head, taken apart into what waits and what is lent.

Batches that only wait are handles (see ``handle``). A batch becomes one of these when a pop first
touches it. Every living message is in exactly one place: in one of ``parts``, and then its range
is in one list of its queue's MessageId queue or in a hold, or in the mask of one of ``leases``.
"""

from __future__ import annotations

from . import handle, mask
from .head import Head, Part
from .lease import Lease


class Batch:
    __slots__ = ("handle", "head", "leases", "parts")

    def __init__(self, batch_handle: int, head: Head) -> None:
        self.handle = batch_handle
        self.head = head
        self.parts: dict[int, Part] = {part.first: part for part in head.parts}
        self.leases: dict[int, Lease] = {}

    @classmethod
    def load(cls, partition: int, lsn: int, head: Head) -> Batch:
        return cls(handle.pack(head.stamp, partition, lsn, head.count, head.size), head)

    @property
    def gone(self) -> bool:
        return not self.parts and not self.leases

    def share(self, first: int, count: int) -> int:
        """The bytes of a range: proportional, and exact when ranges are added up."""
        head = self.head
        return head.size * (first + count) // head.count - head.size * first // head.count

    def stored(self) -> Head:
        """The head as it is now. Lent messages are stored as they were before the lease."""
        living = list(self.parts.values())
        for lease in self.leases.values():
            living.extend(_narrow(lease.part, *run) for run in mask.runs(lease.mask))
        living.sort(key=_first)
        head = self.head
        return Head(
            head.queue, head.producer, head.batch, head.count, head.size, head.stamp,
            head.priority, head.dedup_key, _merge(living),
        )  # fmt: skip


def set_aside(part: Part, hold: int) -> Part:
    """The same part, held by this one, or with 0 by nobody."""
    return Part(
        part.first, part.count, part.queue, part.deliveries, part.due, part.reason, part.origin,
        hold,
    )  # fmt: skip


def split(part: Part, count: int) -> tuple[Part, Part]:
    """The first `count` messages of a part, and the rest."""
    assert 0 < count < part.count
    return (
        _narrow(part, part.first, count),
        _narrow(part, part.first + count, part.count - count),
    )


def _narrow(part: Part, first: int, count: int) -> Part:
    return Part(
        first, count, part.queue, part.deliveries, part.due, part.reason, part.origin, part.hold
    )


def _first(part: Part) -> int:
    return part.first


def _merge(parts: list[Part]) -> list[Part]:
    """Neighbours that differ only in their range become one, so that a head stays small."""
    merged: list[Part] = []
    for part in parts:
        if merged and _adjoin(merged[-1], part):
            merged[-1] = _narrow(part, merged[-1].first, merged[-1].count + part.count)
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
    )

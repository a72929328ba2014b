"""A touched batch: the head, divided into waiting parts and leases; and how it is written.

A batch which only waits is a handle (see `Handle`). The first pop of a batch creates a
`TouchedBatch`. Invariant: every live message is in exactly one place, either in one of ``parts``,
or in the mask of one of ``leases``. The range of a part is in one list of the queue's MessageId
queue, or in a hold, or waits (``parent_counts``).
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from weft.persistence import layout

from . import dedup, head, message_set, purged
from .head import Head, Part
from .lease import Lease
from .message_id_queue import Handle
from .queue import created_of

if TYPE_CHECKING:
    from .state import EngineState


class TouchedBatch:
    __slots__ = ("bodies", "handle", "head", "key", "leases", "parts", "pinned", "purged")

    def __init__(self, batch_handle: int, head: Head) -> None:
        self.handle = batch_handle
        #: (partition, lsn) as one number.
        self.key = Handle.key(batch_handle)
        self.head = head
        #: `head.bodies`, which every pop and every ack needs.
        self.bodies = head.bodies
        parts = head.parts
        self.parts: dict[int, Part] = (
            {parts[0].first: parts[0]} if len(parts) == 1 else {part.first: part for part in parts}
        )
        self.leases: dict[int, Lease] = {}
        #: Messages, as bits, removed by a purge or a delete since the last write of the head.
        self.purged = 0
        #: A job of several rounds refers to the object, so it stays in memory.
        self.pinned = False

    @classmethod
    def load(cls, partition: int, lsn: int, head: Head) -> TouchedBatch:
        return cls(Handle.pack(head.stamp, partition, lsn, head.bodies, head.size), head)

    @property
    def gone(self) -> bool:
        return not self.parts and not self.leases

    def share(self, first: int, count: int) -> int:
        """The bytes of a range: a proportional share; the shares of all ranges add up exactly."""
        size, bodies = self.head.size, self.bodies
        return size * (first + count) // bodies - size * first // bodies

    def stored(self) -> Head:
        """The current head. Leased messages are stored in their state before the lease."""
        living = list(self.parts.values())
        for lease in self.leases.values():
            living.extend(narrow(lease.part, *run) for run in message_set.runs(lease.mask))
        living.sort(key=_first)
        head = self.head
        return Head(
            head.queue, head.producer, head.batch, head.count, head.size, head.stamp,
            head.priority, head.dedup_key, merge(living, self.bodies), head.group, head.queues,
            head.tenant,
        )  # fmt: skip

    def is_set_aside(self, known: Container[int]) -> bool:
        """True if holds have all messages of the batch, so only the holds refer to the self."""
        return not self.leases and all(
            part.hold and part.queue in known for part in self.parts.values()
        )

    def is_reloadable(self, known: Container[int]) -> bool:
        """True if the stored head and the entries of the queues say all of a multicast.

        Every waiting copy is whole, as `eviction` assumes of an entry without a `TouchedBatch`.
        So a slow queue of a topic costs its entries, not an object for each multicast.
        """
        bodies = self.bodies
        return not (self.leases or self.pinned) and all(
            part.count == bodies and part.first % bodies == 0 and part.queue in known
            for part in self.parts.values()
        )


def write_touched(state: EngineState, key: int, batch: TouchedBatch) -> None:
    """Adds a changed batch to the round's writes: the head, or the end of an empty batch."""
    partition, lsn = Handle.split_key(key)
    if batch.purged:
        name = batch.head.producer, batch.head.batch
        purged.write(state.overlay, state.now, partition, *name, batch.purged)
        batch.purged = 0
    if not batch.gone:
        stored = batch.stored()
        state.overlay.put(layout.head(partition, lsn), head.encode(stored))
        if batch.is_set_aside(state.by_id):
            state.touched.pop(key, None)
        elif stored.queues is not None and batch.is_reloadable(state.by_id):
            state.touched.pop(key, None)
            state.remember(key, stored)
        return
    state.touched.pop(key, None)
    state.payloads.drop(key)
    state.overlay.delete(layout.head(partition, lsn))
    state.overlay.delete(layout.body(partition, lsn))
    for number, queue_id in enumerate(batch.head.destinations):
        if (queue := state.by_created.get(created_of(queue_id))) is not None:
            dedup.write_record(state.overlay, state.now, queue, partition, batch.head, number)


def set_aside(part: Part, hold: int) -> Part:
    """The same part in the hold of this number; 0: in no hold."""
    return Part(
        part.first, part.count, part.queue, part.deliveries, part.due, part.reason, part.origin,
        hold, part.crashes, part.waits,
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
        part.crashes, part.waits,
    )  # fmt: skip


def _first(part: Part) -> int:
    return part.first


def merge(parts: list[Part], bodies: int) -> list[Part]:
    """Merges neighbours of one copy with equal fields except for the range, to keep heads small."""
    merged: list[Part] = []
    for part in parts:
        if merged and part.first % bodies and _adjoin(merged[-1], part):
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
        and left.waits == right.waits
    )

"""State of one queue on this node: settings, MessageId queue, dedup windows, waiting pops.

A queue's id is ``created (47) | generation (16)``. A purge increments the generation, a delete
drops the id; either way one small write invalidates all parts with the old id, and a sweep job
removes the parts step by step. Dedup windows belong to ``created``: a purge does not reset a
window.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from weft.limits import DEDUP_IDS_MAX
from weft.proto import wire
from weft.proto.settings import Settings

from .dedup import DedupWindow
from .message_id_queue import MessageIdQueue

GENERATION_BITS: Final = 16
#: Maximum number of waiting pops per queue; each costs memory and a caller's connection.
WAITERS_MAX: Final = 100_000


class QueueRecord(msgspec.Struct, array_like=True, frozen=True):
    """The stored form of a queue, under the queue's name."""

    created: int
    generation: int
    settings: Settings


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(QueueRecord).decode


class Waiter:
    """A pop waiting for messages."""

    __slots__ = ("number", "queue", "request", "to")

    def __init__(self, number: int, queue: QueueState, request: wire.Pop, to: object) -> None:
        self.number = number
        self.queue = queue
        self.request = request
        self.to = to


class QueueState:
    __slots__ = (
        "acked", "bytes", "created", "dead_lettered", "delayed", "delivered",
        "duplicates", "expired_leases", "generation", "held_bytes", "ids", "leased", "name",
        "pushed", "ready", "reserved", "settings", "staged", "waiters", "windows",
    )  # fmt: skip

    def __init__(self, name: str, record: QueueRecord) -> None:
        self.name = name
        self.created = record.created
        self.generation = record.generation
        self.settings = record.settings
        self.ids = MessageIdQueue()
        #: Dedup windows by partition; loaded and discarded with the partition.
        self.windows: dict[int, DedupWindow] = {}
        self.waiters: deque[Waiter] = deque()
        self.ready = self.leased = self.delayed = self.bytes = 0
        #: Messages in holds: reserved by subscriptions, staged by apps; and the bytes of both.
        self.reserved = self.staged = self.held_bytes = 0
        self.pushed = self.delivered = self.acked = self.dead_lettered = 0
        self.expired_leases = self.duplicates = 0

    @property
    def id(self) -> int:
        return self.created << GENERATION_BITS | self.generation

    def window(self, partition: int, partitions: int) -> DedupWindow:
        found = self.windows.get(partition)
        if found is None:
            # Twice a partition's equal share of the queue's limit, because hashing is uneven.
            share = max(1, 2 * DEDUP_IDS_MAX // partitions)
            found = DedupWindow(self.settings.dedup_window_ms, share)
            self.windows[partition] = found
        return found

    @property
    def has_some(self) -> bool:
        """True if a pop would get messages; an ordered queue lends one lot at a time."""
        return self.ready > 0 and not (self.settings.ordered and (self.leased or self.reserved))

    @property
    def messages(self) -> int:
        return self.ready + self.leased + self.delayed + self.reserved + self.staged

    def record(self) -> QueueRecord:
        return QueueRecord(self.created, self.generation, self.settings)

    def info(self, now: int) -> wire.QueueInfo:
        oldest = self.ids.oldest()
        return wire.QueueInfo(
            self.name, self.settings, self.ready, self.leased, self.delayed, self.bytes,
            max(0, now - oldest) // 1000 if oldest else 0, self.pushed, self.delivered, self.acked,
            self.dead_lettered, self.expired_leases, self.duplicates, len(self.waiters),
            self.reserved, self.staged, self.bytes - self.held_bytes,
        )  # fmt: skip


def created_of(queue_id: int) -> int:
    return queue_id >> GENERATION_BITS

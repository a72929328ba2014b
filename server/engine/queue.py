"""One queue as this node has it: settings, its MessageId queue, its dedup windows, who waits.

A queue's id is ``created (47) | generation (16)``. Purging raises the generation, deleting forgets
the id; either way all parts that carry the old id are dead at once, with one small write, and are
swept away little by little. Dedup windows belong to ``created``: a purge does not open them.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from weft.limits import DEDUP_IDS_MAX
from weft.proto import wire
from weft.proto.settings import Settings

from .dedup import DedupWindow
from .idqueue import MessageIdQueue

GENERATION_BITS: Final = 16
#: Pops that may wait at one queue: each holds a place in memory and a caller's connection.
WAITERS_MAX: Final = 100_000


class QueueRecord(msgspec.Struct, array_like=True, frozen=True):
    """A queue as it is stored, under its name."""

    created: int
    generation: int
    settings: Settings


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(QueueRecord).decode


class Waiter:
    """A pop that waits for something to come."""

    __slots__ = ("number", "queue", "request", "to")

    def __init__(self, number: int, queue: Queue, request: wire.Pop, to: object) -> None:
        self.number = number
        self.queue = queue
        self.request = request
        self.to = to


class Queue:
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
        #: What was pushed lately, by partition: it comes and goes with the partition.
        self.windows: dict[int, DedupWindow] = {}
        self.waiters: deque[Waiter] = deque()
        self.ready = self.leased = self.delayed = self.bytes = 0
        #: What holds have: reserved for subscriptions, staged by apps, and the bytes of both.
        self.reserved = self.staged = self.held_bytes = 0
        self.pushed = self.delivered = self.acked = self.dead_lettered = 0
        self.expired_leases = self.duplicates = 0

    @property
    def id(self) -> int:
        return self.created << GENERATION_BITS | self.generation

    def window(self, partition: int, partitions: int) -> DedupWindow:
        found = self.windows.get(partition)
        if found is None:
            # A fair share of what a queue may remember, and as much again: hashing is not even.
            share = max(1, 2 * DEDUP_IDS_MAX // partitions)
            found = DedupWindow(self.settings.dedup_window_ms, share)
            self.windows[partition] = found
        return found

    @property
    def has_some(self) -> bool:
        """Whether a pop would get something: an ordered queue lends one lot at a time."""
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

"""State of one queue on this node: settings, MessageId queue, dedup windows, waiting pops.

A queue's id is ``created (47) | generation (16)``. A purge increments the generation, a delete
drops the id; either way one small write invalidates all parts with the old id, and a sweep job
removes the parts step by step. Dedup windows belong to ``created``: a purge does not reset a
window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec

from weft.proto import wire
from weft.proto.settings import Settings

from .dedup import DedupWindows
from .groups import Describe, GroupQueue
from .message_id_queue import MessageIdQueue
from .node_buffer import NodeBuffer
from .queue_limits import ClusterPart, QueueLimits
from .tenants import TenantQueue

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

    __slots__ = ("number", "queue", "request", "since", "to")

    def __init__(
        self, number: int, queue: QueueState, request: wire.Pop, to: object, since: int
    ) -> None:
        self.number = number
        self.since = since
        self.queue = queue
        self.request = request
        self.to = to


class QueueState:
    __slots__ = (
        "acked", "buffer", "bytes", "charged_total_us", "charged_us", "created", "dead_lettered",
        "delayed", "delivered", "duplicates", "empty_pops", "expired_leases", "generation",
        "groups", "held_bytes", "id", "ids", "leased", "lent_bytes", "limits", "name", "pushed",
        "ready", "reserved", "settings", "staged", "waiters", "waiting", "windows",
    )  # fmt: skip

    def __init__(self, name: str, record: QueueRecord, describe: Describe | None = None) -> None:
        self.name = name
        self.created = record.created
        self.generation = record.generation
        self.id = record.created << GENERATION_BITS | record.generation
        self.settings = record.settings
        #: The groups of a grouped queue, and None for other queues. The same object as `ids`.
        self.groups: GroupQueue | None = None
        if record.settings.grouped:
            assert describe is not None, "a grouped queue looks up the groups of its batches"
            self.groups = GroupQueue(describe)
        #: The limits of a queue with `rate_limit` or `max_in_flight`, and None for other queues.
        self.limits: QueueLimits | None = None
        self.ids = MessageIdQueue() if self.groups is None else self.groups
        #: This node's buffer of a stochastic queue, and None for other queues.
        self.buffer = NodeBuffer() if record.settings.stochastic else None
        self.windows = DedupWindows(record.settings.dedup_window_ms)
        self.waiters: deque[Waiter] = deque()
        self.ready = self.leased = self.delayed = self.bytes = 0
        #: Messages in holds: reserved by subscriptions, staged by apps.
        #: Messages that wait for parents, and the bytes of all three.
        self.reserved = self.staged = self.waiting = self.held_bytes = 0
        self.pushed = self.delivered = self.acked = self.dead_lettered = 0
        self.expired_leases = self.duplicates = self.empty_pops = 0
        #: Bytes of messages that pops have got.
        self.lent_bytes = 0
        #: The recent use of the node's time while queues competed for the time, by this queue and
        #: by all queues, in microseconds.
        self.charged_us = self.charged_total_us = 0

    @property
    def records_leases(self) -> bool:
        """True if every lease has a record; an ordered queue has one record of all its leases."""
        return self.groups is not None or self.settings.keep_leases

    @property
    def has_some(self) -> bool:
        """True if a pop would get messages; an ordered queue lends one lot at a time, a grouped
        queue one lot of each group."""
        if self.limits is not None and not self.limits.allowance(self):
            return False
        if self.groups is not None:
            return self.groups.takeable > 0
        return self.ready > 0 and not (self.settings.ordered and (self.leased or self.reserved))

    @property
    def takeable(self) -> int:
        """The messages that pops could take now."""
        if not self.has_some:
            return 0
        ready = self.ready if self.groups is None else self.groups.takeable
        return ready if self.limits is None else min(ready, self.limits.allowance(self))

    def apply(self, settings: Settings, part: ClusterPart) -> None:
        """Takes new settings; limits that stay keep what they have counted."""
        self.settings = settings
        if not (settings.rate_limit or settings.max_in_flight):
            self.limits = None
        elif self.limits is None:
            self.limits = QueueLimits(part)

    @property
    def messages(self) -> int:
        held = self.reserved + self.staged + self.waiting
        return self.ready + self.leased + self.delayed + held

    def see_tenant(self, describe: Describe) -> None:
        """A message with a tenant is about to be listed: from now on pops divide by tenants."""
        if type(self.ids) is MessageIdQueue and not self.settings.ordered:
            self.ids = TenantQueue(describe, self.ids)

    def record(self) -> QueueRecord:
        return QueueRecord(self.created, self.generation, self.settings)

    def info(self, now: int) -> wire.QueueInfo:
        oldest, buffer = self.ids.oldest(), self.buffer
        info = wire.QueueInfo(
            self.name, self.settings, self.ready, self.leased, self.delayed, self.bytes,
            max(0, now - oldest) // 1000 if oldest else 0, self.pushed, self.delivered, self.acked,
            self.dead_lettered, self.expired_leases, self.duplicates, len(self.waiters),
            self.reserved, self.staged, self.bytes - self.held_bytes,
            charged_us=self.charged_us, charged_total_us=self.charged_total_us,
            waiting=self.waiting,
        )  # fmt: skip
        if buffer is None:
            return info
        return msgspec.structs.replace(
            info, probes=buffer.probes, empty_probes=buffer.empty_probes,
            blocked_pops=buffer.blocked_pops, blocked_us=buffer.blocked_us,
            full_buffers=buffer.full, room_wait_us=buffer.room_wait_us,
        )  # fmt: skip


def created_of(queue_id: int) -> int:
    return queue_id >> GENERATION_BITS


def was_purged(queue_id: int, by_created: Mapping[int, QueueState]) -> bool:
    """True if an unknown queue is an older generation of a known one. Another unknown queue was
    deleted, or is newer than the catalogue of this node."""
    known = by_created.get(created_of(queue_id))
    return known is not None and queue_id < known.id

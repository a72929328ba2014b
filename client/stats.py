"""Statistics of a queue at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from weft.proto import wire
from weft.proto.settings import Settings


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Message counts of a queue; counts from `pushed` on start when the node starts."""

    name: str
    settings: Settings
    #: Messages that a pop would get now.
    ready: int
    #: Messages in flight: leased and not yet acked.
    leased: int
    #: Messages that are not due yet.
    delayed: int
    #: Bytes of the queue's batches.
    bytes: int
    #: Age of the oldest waiting message, in milliseconds; 0 if the queue is empty.
    oldest_ms: int
    #: Messages stored.
    pushed: int
    #: Messages leased by pops.
    delivered: int
    #: Messages acked.
    acked: int
    #: Messages moved to the dead-letter queue.
    dead_lettered: int
    #: Messages whose lease ended without an ack.
    expired_leases: int
    #: Pushes that were already stored.
    duplicates: int
    #: Pops that wait for a message now.
    waiting_pops: int
    #: Messages held for subscriptions.
    reserved: int = 0
    #: Messages staged and not published.
    staged: int = 0
    #: Bytes of messages that are neither reserved nor staged.
    backlog_bytes: int = 0
    #: Partitions missing from the counts; 0 if the counts are complete.
    uncounted_partitions: int = 0
    #: Ids of the nodes that lead the missing partitions and did not answer.
    missing_nodes: list[str] = field(default_factory=list)
    #: The topics that feed the queue.
    topics: list[str] = field(default_factory=list)
    #: Of a stochastic queue: pops that reached a node, and those that found no message there.
    probes: int = 0
    empty_probes: int = 0
    #: Of a stochastic queue: pops that waited at a node, and their waiting time in microseconds.
    blocked_pops: int = 0
    blocked_us: int = 0
    #: Of a stochastic queue: pushes refused by a full buffer, and how long producers waited for
    #: room, in microseconds.
    full_buffers: int = 0
    room_wait_us: int = 0
    #: Time that the nodes spent on this queue, of about the last ten seconds in which queues
    #: competed for the nodes, in microseconds.
    charged_us: int = 0
    #: The same for all queues.
    charged_total_us: int = 0
    #: Tasks of graphs that wait for other tasks: no worker gets them yet.
    waiting: int = 0

    @property
    def share_got(self) -> float | None:
        """The part of the nodes' time that the queue got while queues competed for the nodes, or
        None if none did in the last seconds. `settings.share / 1000` is the part asked for."""
        return self.charged_us / self.charged_total_us if self.charged_total_us else None

    @property
    def partial(self) -> bool:
        """True if some messages are not counted, because nodes are down."""
        return self.uncounted_partitions > 0

    @classmethod
    def of(cls, info: wire.QueueInfo) -> QueueStats:
        return cls(*msgspec.structs.astuple(info))

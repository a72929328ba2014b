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
    ready: int
    leased: int
    delayed: int
    bytes: int
    #: Age of the oldest waiting message, in milliseconds; 0 if the queue is empty.
    oldest_ms: int
    pushed: int
    delivered: int
    acked: int
    dead_lettered: int
    expired_leases: int
    #: Pushes that were already stored.
    duplicates: int
    #: Pops that wait for a message now.
    waiting_pops: int
    #: Messages held for subscriptions; messages staged and not published.
    reserved: int = 0
    staged: int = 0
    #: Bytes of messages that are neither reserved nor staged.
    backlog_bytes: int = 0
    #: Partitions missing from these counts; 0 if the counts are complete.
    uncounted_partitions: int = 0
    #: Ids of the nodes that lead the missing partitions and did not answer.
    missing_nodes: list[str] = field(default_factory=list)

    @property
    def partial(self) -> bool:
        """True if messages exist that are not counted, because nodes are down."""
        return self.uncounted_partitions > 0

    @classmethod
    def of(cls, info: wire.QueueInfo) -> QueueStats:
        return cls(*msgspec.structs.astuple(info))

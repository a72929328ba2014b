"""A queue's figures at one moment."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from weft.proto import wire
from weft.proto.settings import Settings


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Counts of messages; those from `pushed` on are since the node started."""

    name: str
    settings: Settings
    ready: int
    leased: int
    delayed: int
    bytes: int
    #: Age of the oldest waiting message, in milliseconds; 0 when there is none.
    oldest_ms: int
    pushed: int
    delivered: int
    acked: int
    dead_lettered: int
    expired_leases: int
    #: Pushes that had been stored before.
    duplicates: int
    #: Pops that wait for a message now.
    waiting_pops: int
    #: Held for subscriptions, and staged but not published.
    reserved: int = 0
    staged: int = 0
    #: Bytes that are neither.
    backlog_bytes: int = 0

    @classmethod
    def of(cls, info: wire.QueueInfo) -> QueueStats:
        return cls(*msgspec.structs.astuple(info))

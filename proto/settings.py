"""A queue's settings: one struct, validated in one place, the same on both wires and on disk."""

from __future__ import annotations

import msgspec

from weft import limits
from weft.errors import InvalidArgument


class Settings(msgspec.Struct, frozen=True, array_like=True):
    """The arguments of `create_queue`. New fields are only added at the end: nodes store this."""

    #: The lease time of a popped message; after the lease expires, the message is delivered again.
    lease_ms: int = 30_000
    #: Deliveries after which a message moves to `dead_letter`; 0 means never.
    max_deliveries: int = 0
    #: The queue for messages with too many deliveries; "" for none.
    dead_letter: str = ""
    #: Older messages are dropped; 0 keeps messages until acked.
    retention_ms: int = 0
    #: How long a queue remembers a (producer, batch) and a dedup key.
    dedup_window_ms: int = 300_000
    #: A push that would exceed this many messages is refused with QueueFull; 0 for no limit.
    max_messages: int = 0
    #: Deliver messages in push order, and the next messages only when all leased messages are
    #: settled. The whole queue is then on one partition. Fixed when the queue is created.
    ordered: bool = False

    def check(self) -> None:
        limits.check_range("lease_ms", self.lease_ms, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
        limits.check_range("max_deliveries", self.max_deliveries, 0, limits.MAX_DELIVERIES_MAX)
        limits.check_range("retention_ms", self.retention_ms, 0, limits.RETENTION_MS_MAX)
        limits.check_range("dedup_window_ms", self.dedup_window_ms, 0, limits.DEDUP_WINDOW_MS_MAX)
        limits.check_range("max_messages", self.max_messages, 0, 1 << 40)
        if self.dead_letter:
            limits.check_queue_name(self.dead_letter)
        if bool(self.max_deliveries) != bool(self.dead_letter):
            raise InvalidArgument(
                "max_deliveries and dead_letter go together: without a dead letter queue a message "
                "that failed too often would have to be dropped"
            )

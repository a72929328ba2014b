"""A queue's settings: one struct, validated in one place, the same on both wires and on disk."""

from __future__ import annotations

from typing import Final

import msgspec

from weft import limits
from weft.errors import InvalidArgument

#: The kind of queue of paper 1: see `Settings.kind`.
STOCHASTIC: Final = "stochastic"
#: How a consumer of a stochastic queue chooses the node of a probe: all nodes alike; by measured
#: production rates; or nodes of the consumer's zone first.
ACCESS: Final = ("even", "rates", "near")
#: What a client fills in for settings of a stochastic queue that are not given.
STOCHASTIC_DEFAULTS: Final[dict[str, int | str]] = {
    "buffers": 1_000, "max_hops": 3, "access": ACCESS[0],
}  # fmt: skip
#: The whole of a node's time in units of `share`.
SHARE_WHOLE: Final = 1000


#: Settings that came with shares and limits; a node of an older version ignores them.
LIMITS: Final = ("share", "rate_limit", "max_in_flight")


def share_per_mille(share: float) -> int:
    """A share of 0 to 1 as stored. Raises InvalidArgument for anything else, NaN too."""
    if not 0 <= share <= 1:
        raise InvalidArgument(f"share must be 0 to 1, not {share}")
    found = round(share * SHARE_WHOLE)
    if share and not found:
        raise InvalidArgument(f"share must be 0 (none) or at least 0.001, not {share}")
    return found


class Settings(msgspec.Struct, frozen=True, array_like=True):
    """The arguments of `create_queue`. New fields are only added at the end: nodes store this."""

    #: The lease time of a popped message, in milliseconds; after the lease expires, the message is
    #: delivered again.
    lease_ms: int = 30_000
    #: Deliveries after which a message moves to `dead_letter`; 0 means never.
    max_deliveries: int = 0
    #: The queue for messages with too many deliveries; "" for none.
    dead_letter: str = ""
    #: Messages older than this, in milliseconds, are dropped; 0 keeps messages until acked.
    retention_ms: int = 0
    #: How long a queue remembers a (producer, batch) and a dedup key, in milliseconds.
    dedup_window_ms: int = 300_000
    #: A push that would exceed this many messages is refused with QueueFull; 0 for no limit.
    max_messages: int = 0
    #: Deliver messages in push order, and the next messages only when all leased messages are
    #: settled. The whole queue is then on one partition. Fixed when the queue is created.
    ordered: bool = False
    #: Deliver the messages of one group in push order, one lot of a group at a time; groups are
    #: independent. Each push names its group. Fixed when the queue is created.
    grouped: bool = False
    #: Write each lease to the log, so that a failover ends none: receipts stay valid, and no second
    #: consumer gets the messages before the lease ends. A pop then costs a replicated write. Fixed
    #: when the queue is created.
    keep_leases: bool = False
    #: "" or "stochastic": messages stay on the node that took the push, in a bounded buffer, and
    #: consumers probe the nodes. Fixed when the queue is created.
    kind: str = ""
    #: Of a stochastic queue: the ready messages that each node holds, at most.
    buffers: int = 0
    #: Of a stochastic queue: the nodes that a consumer probes; the pop waits at the last of them.
    max_hops: int = 0
    #: Of a stochastic queue: how a consumer chooses nodes, one of ACCESS.
    access: str = ""
    #: Delete the queue with all its messages when no client has used it for this long, in
    #: milliseconds; 0 keeps it. Leased messages, and waiting pops, keep it too.
    expire_idle_ms: int = 0
    #: The queue's share of each node's time, per mille, while other queues have work, too; 0 for
    #: an equal part of what the others do not claim. Shares that add up to more than 1000 are
    #: scaled down.
    share: int = 0
    #: Messages per second that pops get, over the cluster; 0 for no limit. Each node lends its
    #: part, in proportion to the partitions that it leads.
    rate_limit: int = 0
    #: Leased messages at once, over the cluster; 0 for no limit. Each node has its part.
    max_in_flight: int = 0
    #: Messages may wait for others: the queue takes the tasks of graphs. Stays once it is set.
    graphs: bool = False

    @property
    def stochastic(self) -> bool:
        return self.kind == STOCHASTIC

    @property
    def has_limits(self) -> bool:
        """True if a setting is given that a node of a version without shares would ignore."""
        return any(getattr(self, name) for name in LIMITS)

    def check(self) -> None:
        limits.check_range("lease_ms", self.lease_ms, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
        limits.check_range("max_deliveries", self.max_deliveries, 0, limits.MAX_DELIVERIES_MAX)
        limits.check_range("retention_ms", self.retention_ms, 0, limits.RETENTION_MS_MAX)
        limits.check_range("dedup_window_ms", self.dedup_window_ms, 0, limits.DEDUP_WINDOW_MS_MAX)
        limits.check_range("max_messages", self.max_messages, 0, 1 << 40)
        if self.expire_idle_ms:
            low, high = limits.EXPIRE_IDLE_MS_MIN, limits.RETENTION_MS_MAX
            limits.check_range("expire_idle_ms", self.expire_idle_ms, low, high)
        limits.check_range("share", self.share, 0, SHARE_WHOLE)
        limits.check_range("rate_limit", self.rate_limit, 0, limits.RATE_LIMIT_MAX)
        limits.check_range("max_in_flight", self.max_in_flight, 0, limits.QUEUE_IN_FLIGHT_MAX)
        if self.stochastic and (self.rate_limit or self.max_in_flight):
            raise InvalidArgument(
                "a stochastic queue has neither rate_limit nor max_in_flight: its messages are "
                "divided by producers, not by partitions"
            )
        if self.grouped and self.ordered:
            raise InvalidArgument(
                "a queue is grouped or ordered, not both: an ordered queue is one sequence, a "
                "grouped queue has one sequence for each group"
            )
        if self.keep_leases and (self.grouped or self.ordered):
            raise InvalidArgument(
                "the leases of ordered and grouped queues are always kept: leave keep_leases out"
            )
        self._check_kind()
        if self.graphs and (self.grouped or self.ordered or self.stochastic or self.retention_ms):
            raise InvalidArgument(
                "a queue with graphs has no order, no groups, is not stochastic and has no "
                "retention_ms: a task that is dropped would leave its children waiting for ever"
            )
        if self.dead_letter:
            limits.check_queue_name(self.dead_letter)
        if bool(self.max_deliveries) != bool(self.dead_letter):
            raise InvalidArgument(
                "max_deliveries and dead_letter go together: without a dead letter queue a message "
                "that failed too often would have to be dropped"
            )

    def _check_kind(self) -> None:
        if self.kind not in ("", STOCHASTIC):
            raise InvalidArgument(f"kind must be {STOCHASTIC!r} or empty, not {self.kind[:100]!r}")
        if not self.kind:
            for name in ("buffers", "max_hops", "access"):
                if getattr(self, name):
                    raise InvalidArgument(
                        f"{name} is a setting of stochastic queues: create the queue with "
                        f'kind="{STOCHASTIC}", or leave {name} out'
                    )
            return
        if self.keep_leases:
            raise InvalidArgument("a stochastic queue keeps no leases: leave keep_leases out")
        if self.ordered or self.grouped:
            raise InvalidArgument(
                "a stochastic queue is neither ordered nor grouped: its messages stay on the node "
                "that took the push, so the queue has no order"
            )
        limits.check_range("buffers", self.buffers, 1, limits.BUFFERS_MAX)
        limits.check_range("max_hops", self.max_hops, 1, limits.MAX_HOPS_MAX)
        if self.access not in ACCESS:
            raise InvalidArgument(
                f"access must be one of {', '.join(ACCESS)}, not {self.access[:100]!r}"
            )

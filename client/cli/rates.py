"""Per-second rates of queues, from the counters of two samples of a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from weft.proto import wire
from weft.proto.settings import SHARE_WHOLE

if TYPE_CHECKING:
    from weft import Client, QueueStats


@dataclass(frozen=True, slots=True)
class Sample:
    """Queues, nodes and the status of one node at one moment."""

    at_s: float
    queues: list[QueueStats]
    nodes: list[wire.NodeInfo]
    #: Status of the node that answered.
    status: wire.StatusInfo

    @classmethod
    def take(cls, client: Client) -> Sample:
        return cls(time.monotonic(), client.list_queues(), client.view().nodes, client.status())


@dataclass(frozen=True, slots=True)
class Row:
    """One queue: current depths, and rates since the previous sample."""

    name: str
    pushed_per_s: float
    delivered_per_s: float
    acked_per_s: float
    ready: int
    #: Leased and not yet acked.
    in_flight: int
    delayed: int
    oldest_ms: int
    waiting_pops: int
    #: The share of the nodes' time that the queue asked for, 0 for none, and got; None while no
    #: queues compete for the nodes.
    share_asked: float
    share_got: float | None


#: Values of --sort with their sort keys; ties are broken by name.
ORDERS: Final[dict[str, Callable[[Row], float]]] = {
    "rate": lambda row: -(row.pushed_per_s + row.delivered_per_s + row.acked_per_s),
    "ready": lambda row: -row.ready,
    "oldest": lambda row: -row.oldest_ms,
    "name": lambda row: 0,
}


def rows(before: Sample, after: Sample, order: str) -> list[Row]:
    seconds = after.at_s - before.at_s
    assert seconds > 0, "time goes forward"
    known = {queue.name: queue for queue in before.queues}
    found = [_row(known.get(queue.name), queue, seconds) for queue in after.queues]
    key = ORDERS[order]
    return sorted(found, key=lambda row: (key(row), row.name))


def _row(before: QueueStats | None, now: QueueStats, seconds: float) -> Row:
    return Row(
        now.name,
        _rate(before.pushed if before else 0, now.pushed, seconds),
        _rate(before.delivered if before else 0, now.delivered, seconds),
        _rate(before.acked if before else 0, now.acked, seconds),
        now.ready,
        now.leased,
        now.delayed,
        now.oldest_ms,
        now.waiting_pops,
        now.settings.share / SHARE_WHOLE,
        now.share_got,
    )


def _rate(before: int, now: int, seconds: float) -> float:
    """The rate of a counter. A decreased counter was reset to zero by a node or queue restart."""
    return (now - before if now >= before else now) / seconds

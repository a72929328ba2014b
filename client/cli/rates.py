"""Rates: what happened between two looks at a cluster, per second."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from weft.proto import wire

if TYPE_CHECKING:
    from weft import Client, QueueStats


@dataclass(frozen=True, slots=True)
class Sample:
    """A cluster at one moment."""

    at_s: float
    queues: list[QueueStats]
    nodes: list[wire.NodeInfo]
    #: Of the node that answered.
    status: wire.StatusInfo

    @classmethod
    def take(cls, client: Client) -> Sample:
        return cls(time.monotonic(), client.list_queues(), client.view().nodes, client.status())


@dataclass(frozen=True, slots=True)
class Row:
    """One queue: depths as they are now, rates since the look before."""

    name: str
    pushed_per_s: float
    delivered_per_s: float
    acked_per_s: float
    ready: int
    #: Lent and not yet acked.
    in_flight: int
    delayed: int
    oldest_ms: int
    waiting_pops: int


#: How rows can be ordered; ties are broken by name.
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
    )


def _rate(before: int, now: int, seconds: float) -> float:
    """A counter that went back started again from zero: its node did, or its queue."""
    return (now - before if now >= before else now) / seconds

"""Memory: what the node holds for waiting messages, and how long a restart with them takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.errors import StorageError

from . import workload
from .own_node import OwnNode
from .plan import Plan

if TYPE_CHECKING:
    from weft import Client


@dataclass(frozen=True)
class Memory:
    ready: int
    rss_before_bytes: int
    rss_after_bytes: int
    #: From the start of the process until it serves; None for a node that is not our own.
    restart_s: float | None
    #: The same, with nothing to recover.
    empty_start_s: float | None
    rss_restarted_bytes: int | None

    @property
    def bytes_per_message(self) -> float:
        return (self.rss_after_bytes - self.rss_before_bytes) / self.ready


def measure(plan: Plan, client: Client, servers: str, queue: str, own: OwnNode | None) -> Memory:
    """Leaves the messages in the queue, and a restarted node on another port."""
    before = client.status().rss_bytes
    workload.fill(plan, servers, queue, plan.ready)
    after = client.status().rss_bytes
    if own is None:
        return Memory(plan.ready, before, after, None, None, None)
    own.stop()
    restart_s = own.start()
    return Memory(
        plan.ready, before, after, restart_s, own.start_s, _restarted_rss(own, queue, plan.ready)
    )


def _restarted_rss(own: OwnNode, queue: str, count: int) -> int:
    import weft

    with weft.connect(own.servers) as client:
        found = client.queue(queue).stats().ready
        if found != count:
            raise StorageError(f"{count} messages were durable, {found} came back: data was lost")
        return client.status().rss_bytes

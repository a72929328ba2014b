"""The node's memory with waiting messages, and the time of a restart with those messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import weft
from weft.errors import StorageError

from . import workload
from .own_node import OwnNode
from .plan import BenchPlan

if TYPE_CHECKING:
    from weft import Client


@dataclass(frozen=True)
class Memory:
    ready: int
    rss_before_bytes: int
    rss_after_bytes: int
    #: Seconds from process start to serving; None for a node that the benchmark did not start.
    restart_s: float | None
    #: Seconds from process start to serving, with an empty data directory.
    empty_start_s: float | None
    rss_restarted_bytes: int | None

    @property
    def bytes_per_message(self) -> float:
        return (self.rss_after_bytes - self.rss_before_bytes) / self.ready


def measure_running(plan: BenchPlan, client: Client, servers: str, queue: str) -> Memory:
    """Fills a queue of a shared node and compares the node's memory before and after."""
    before = client.status().rss_bytes
    workload.fill(plan, servers, queue, plan.ready)
    return Memory(plan.ready, before, client.status().rss_bytes, None, None, None)


def measure_own(plan: BenchPlan, own: OwnNode, queue: str) -> Memory:
    """Restarts the node before measuring, because a process keeps freed memory.

    The node listens on other ports afterwards.
    """
    own.stop()
    empty_start_s = own.start()
    with weft.connect(own.servers) as client:
        client.create_queue(queue)
        filled = measure_running(plan, client, own.servers, queue)
    own.stop()
    return replace(
        filled,
        empty_start_s=empty_start_s,
        restart_s=own.start(),
        rss_restarted_bytes=_restarted_rss(own, queue, plan.ready),
    )


def _restarted_rss(own: OwnNode, queue: str, count: int) -> int:
    with weft.connect(own.servers) as client:
        found = client.queue(queue).stats().ready
        if found != count:
            raise StorageError(
                f"data loss: {count} messages were durable, {found} remain after the restart"
            )
        return client.status().rss_bytes

"""Throughput: one producer process and one consumer process, everything delivered and acked.

The clock runs from just before the first push to the moment the last ack is confirmed. Both
processes read the same clock (CLOCK_MONOTONIC is the machine's, not the process's).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from weft.errors import ProtocolError

from .child import Child
from .plan import BenchPlan

if TYPE_CHECKING:
    from weft import Client

_WORKER = "weft.client.cli.bench.worker"


@dataclass(frozen=True)
class Throughput:
    """One run. The CPU figures are microseconds for each message."""

    messages: int
    seconds: float
    messages_per_s: float
    server_cpu_us: float
    producer_cpu_us: float
    consumer_cpu_us: float
    #: Synced writes of the node.
    commits: int

    @classmethod
    def median(cls, rounds: list[Throughput]) -> Throughput:
        return cls(
            rounds[0].messages,
            median(one.seconds for one in rounds),
            median(one.messages_per_s for one in rounds),
            median(one.server_cpu_us for one in rounds),
            median(one.producer_cpu_us for one in rounds),
            median(one.consumer_cpu_us for one in rounds),
            int(median(one.commits for one in rounds)),
        )


def measure(
    plan: BenchPlan, client: Client, servers: str, queue: str, on_progress: Callable[[int], None]
) -> Throughput:
    """``on_progress`` is told how many messages were acked so far."""
    with (
        Child(_WORKER, _task("produce", plan, servers, queue)) as producer,
        Child(_WORKER, _task("consume", plan, servers, queue)) as consumer,
    ):
        producer.read()
        consumer.read()
        before = client.status()
        consumer.go()
        producer.go()
        while "end_ns" not in (consumed := consumer.read()):
            on_progress(consumed["done"])
        produced = producer.read()
    after = client.status()
    _check_empty(client, queue)
    count = plan.messages
    seconds = (consumed["end_ns"] - produced["start_ns"]) / 1e9
    return Throughput(
        count,
        seconds,
        count / seconds,
        (after.cpu_us - before.cpu_us) / count,
        produced["cpu_us"] / count,
        consumed["cpu_us"] / count,
        after.commits - before.commits,
    )


def _check_empty(client: Client, queue: str) -> None:
    """Each message was acked once: a second delivery would have been counted for another one."""
    left = client.queue(queue).stats()
    if left.ready or left.leased or left.delayed:
        raise ProtocolError(
            f"{left.ready + left.leased + left.delayed} messages are left, though as many were "
            "acked as were pushed: some came twice, and this run does not count"
        )


def fill(plan: BenchPlan, servers: str, queue: str, count: int) -> None:
    """Pushes so many messages and leaves them there."""
    task = _task("produce", plan, servers, queue) | {"messages": count}
    with Child(_WORKER, task) as producer:
        producer.read()
        producer.go()
        producer.read()


def _task(role: str, plan: BenchPlan, servers: str, queue: str) -> dict[str, str | int]:
    return {
        "role": role,
        "servers": servers,
        "queue": queue,
        "messages": plan.messages,
        "size": plan.size,
        "batch": plan.batch,
    }

"""Throughput: one producer process and one consumer process; every message is delivered and acked.

The measured time starts before the first push and ends when the last ack is confirmed. Both
processes read CLOCK_MONOTONIC, which is common to all processes of a machine.
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
    """One run. CPU times are microseconds per message."""

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
    """Runs one measurement; calls ``on_progress`` with the number of messages acked so far."""
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
    """Raises ProtocolError if messages are left: then a repeated delivery was counted twice."""
    left = client.queue(queue).stats()
    if left.ready or left.leased or left.delayed:
        raise ProtocolError(
            f"{left.ready + left.leased + left.delayed} messages are left, although the numbers of "
            "acked and pushed messages are equal: some were delivered twice; the run is invalid"
        )


def fill(plan: BenchPlan, servers: str, queue: str, count: int) -> None:
    """Pushes ``count`` messages that stay in the queue."""
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

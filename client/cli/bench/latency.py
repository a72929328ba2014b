"""Latency: one synchronous caller, one call at a time, every call timed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from weft.errors import ProtocolError

from .floors import Floors, timed
from .plan import WARM_UP, Plan

if TYPE_CHECKING:
    from weft import Queue


@dataclass(frozen=True)
class Percentiles:
    """Microseconds."""

    p50: float
    p90: float
    p99: float
    p99_9: float

    @classmethod
    def of(cls, taken: list[float]) -> Percentiles:
        ranked = sorted(taken)
        return cls(*(ranked[_rank(len(ranked), share)] for share in (0.5, 0.9, 0.99, 0.999)))

    @classmethod
    def median(cls, rounds: list[Percentiles]) -> Percentiles:
        return cls(
            median(one.p50 for one in rounds),
            median(one.p90 for one in rounds),
            median(one.p99 for one in rounds),
            median(one.p99_9 for one in rounds),
        )


@dataclass(frozen=True)
class Latency:
    push_us: Percentiles
    pop_ack_us: Percentiles


def measure(plan: Plan, queue: Queue) -> Latency:
    """The queue is empty, and is empty again afterwards."""
    body = os.urandom(plan.size)
    warm_up = min(WARM_UP, plan.samples)
    timed(lambda: queue.push(body), warm_up)
    pushes = timed(lambda: queue.push(body), plan.samples)
    timed(lambda: _pop_ack(queue), warm_up)
    pops = timed(lambda: _pop_ack(queue), plan.samples)
    return Latency(Percentiles.of(pushes), Percentiles.of(pops))


def push_floor_us(floors: Floors) -> float | None:
    """What a push is compared with: two raw round trips and one raw put."""
    if floors.leveldb_put_us is None:
        return None
    return 2 * floors.zmq_round_trip_us + floors.leveldb_put_us


def _pop_ack(queue: Queue) -> None:
    message = queue.pop()
    if message is None:
        raise ProtocolError("a message that was pushed is not there: somebody else pops it")
    message.ack()


def _rank(count: int, share: float) -> int:
    """The nearest rank: the smallest sample that is not below this share of all."""
    return max(0, -(-int(count * share * 1000) // 1000) - 1)

"""Latency: one synchronous caller, one call at a time, every call timed."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from weft.errors import ProtocolError

from .call_timer import Call

if TYPE_CHECKING:
    from weft import Queue

PUSH: Final = "push"
POP_ACK: Final = "pop and ack"


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

    @classmethod
    def of(cls, taken: dict[str, list[float]]) -> Latency:
        return cls(Percentiles.of(taken[PUSH]), Percentiles.of(taken[POP_ACK]))

    @classmethod
    def median(cls, rounds: list[Latency]) -> Latency:
        return cls(
            Percentiles.median([one.push_us for one in rounds]),
            Percentiles.median([one.pop_ack_us for one in rounds]),
        )


def calls(size: int, queue: Queue) -> dict[str, Call]:
    """The calls to time; pushes and pops alternate, so the queue ends empty."""
    body = os.urandom(size)
    return {PUSH: lambda: queue.push(body), POP_ACK: lambda: _pop_ack(queue)}


def _pop_ack(queue: Queue) -> None:
    message = queue.pop()
    if message is None:
        raise ProtocolError(
            "a pushed message is missing: another consumer pops from the benchmark's queue"
        )
    message.ack()


def _rank(count: int, share: float) -> int:
    """The index of a percentile by the nearest-rank method."""
    return max(0, math.ceil(round(count * share, 6)) - 1)

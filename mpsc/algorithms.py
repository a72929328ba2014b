"""The queue algorithms by name, and the constructors of their ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from weft.errors import InvalidArgument

from . import amqueue, dltqueue, dltqueue_v2, slotqueue, spsc_queue, sweepqueue
from .queue import Dequeuer, Enqueuer
from .shape import Shape
from .window import Window


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One algorithm: the size of its segments and its two ends."""

    name: str
    segment_bytes: Callable[[Shape, int], int]
    enqueuer: Callable[[Window, Shape], Enqueuer]
    dequeuer: Callable[[Window, Shape], Dequeuer]
    #: Every operation ends in a bounded number of its own steps, independent of the other ranks.
    wait_free: bool = True


_ALL = (
    Algorithm(
        "spsc",
        spsc_queue.segment_bytes,
        spsc_queue.SpscQueueEnqueuer,
        spsc_queue.SpscQueueDequeuer,
    ),
    Algorithm("dltqueue", dltqueue.segment_bytes, dltqueue.DltEnqueuer, dltqueue.DltDequeuer),
    Algorithm(
        "dltqueue2",
        dltqueue_v2.segment_bytes,
        dltqueue_v2.DltV2Enqueuer,
        dltqueue_v2.DltV2Dequeuer,
    ),
    Algorithm("slotqueue", slotqueue.segment_bytes, slotqueue.SlotEnqueuer, slotqueue.SlotDequeuer),
    Algorithm(
        "sweepqueue", sweepqueue.segment_bytes, sweepqueue.SweepEnqueuer, sweepqueue.SweepDequeuer
    ),
    Algorithm(
        "amqueue", amqueue.segment_bytes, amqueue.AmEnqueuer, amqueue.AmDequeuer, wait_free=False
    ),
)
ALGORITHMS: Final[dict[str, Algorithm]] = {algorithm.name: algorithm for algorithm in _ALL}


def algorithm_named(name: str) -> Algorithm:
    if name not in ALGORITHMS:
        raise InvalidArgument(f"no queue algorithm {name!r}: one of {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name]

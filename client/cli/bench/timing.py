"""Timing calls, several kinds in turn.

A shared machine is fast in one second and slow in the next. So kinds that are to be compared take
turns in short slices, and every one of them sees the same good and bad moments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

Call = Callable[[], object]

#: Turns of each kind; more would let a call find the caches cold that its kind keeps warm.
SLICES: Final = 10


def timed(call: Call, samples: int) -> list[float]:
    """How long each of so many calls took, in microseconds."""
    clock = time.perf_counter_ns
    taken = []
    for _ in range(samples):
        start = clock()
        call()
        taken.append((clock() - start) / 1000)
    return taken


def in_turn(calls: Mapping[str, Call], samples: int, warm_up: int) -> dict[str, list[float]]:
    """The times of each kind; the first ``warm_up`` calls of a kind do not count."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        timed(call, warm_up)
    for number in range(SLICES):
        share = samples * (number + 1) // SLICES - samples * number // SLICES
        for name, call in calls.items():
            taken[name] += timed(call, share)
    return taken

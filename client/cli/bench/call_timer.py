"""Timing calls, several kinds in turn.

A shared machine is fast in one second and slow in the next, and one that has just waited for its
disk wakes slower than one that has not: a round trip repeated in a tight loop takes a third of what
it takes between two syncs. So the kinds take turns call by call: every one of them sees the same
good and bad moments, and a floor is measured in the state that a push finds the machine in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

Call = Callable[[], object]


def in_turn(calls: Mapping[str, Call], samples: int, warm_up: int) -> dict[str, list[float]]:
    """Microseconds of each call, by kind; the first ``warm_up`` turns do not count."""
    clock = time.perf_counter_ns
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(warm_up + samples):
        for name, call in calls.items():
            start = clock()
            call()
            taken[name].append((clock() - start) / 1000)
    return {name: times[warm_up:] for name, times in taken.items()}

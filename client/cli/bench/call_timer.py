"""Times several kinds of calls in alternation.

The speed of a shared machine varies from second to second, and a process wakes more slowly after
waiting for a disk: a round trip in a tight loop takes a third of the time of a round trip between
two syncs. Alternating the kinds call by call exposes all of them to the same conditions, so that
floors are measured under the conditions of a push.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

Call = Callable[[], object]


def in_turn(calls: Mapping[str, Call], samples: int, warm_up: int) -> dict[str, list[float]]:
    """Microseconds of each call, by kind, without the first ``warm_up`` turns."""
    clock = time.perf_counter_ns
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(warm_up + samples):
        for name, call in calls.items():
            start = clock()
            call()
            taken[name].append((clock() - start) / 1000)
    return {name: times[warm_up:] for name, times in taken.items()}

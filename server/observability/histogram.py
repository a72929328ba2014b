"""A histogram of durations; an observation costs one search in a short list.

One thread observes and takes no lock. Any thread may read, and may see the sum and the counts
differ by one observation, which is exact enough for a dashboard.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from functools import partial
from typing import Final

#: Upper bounds in seconds: from an fsync into a disk's own cache to a failing disk.
BOUNDS_S: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
_place: Final = partial(bisect_left, BOUNDS_S)


class Histogram:
    __slots__ = ("_counts", "_sum_s", "recent")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0
        #: Durations to count later (`count`), where even a search would delay a request.
        self.recent: list[float] = []

    def count(self) -> None:
        """Observes the recent durations. The observing thread calls this about once a second."""
        recent, self.recent = self.recent, []
        for place, count in Counter(map(_place, recent)).items():
            self._counts[place] += count
        self._sum_s += sum(recent)

    def observe(self, seconds: float) -> None:
        self._counts[_place(seconds)] += 1
        self._sum_s += seconds

    @property
    def sum_s(self) -> float:
        return self._sum_s

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, number of durations up to the bound); the last bound is +Inf."""
        total = 0
        steps: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), list(self._counts), strict=True):
            total += count
            steps.append((bound, float(total)))
        return steps

"""The convoy effect as a histogram: the time from a sequence number to the listed message."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import Final

#: Upper bounds of the buckets, in microseconds; one more bucket is above.
BOUNDS_US: Final = (0, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 500_000, 2_000_000)


class ConvoyHistogram:
    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_US) + 1)
        self.sum_us = 0

    def add(self, waited_us: int) -> None:
        self.counts[bisect_left(BOUNDS_US, waited_us)] += 1
        self.sum_us += waited_us

    @property
    def sum_s(self) -> float:
        return self.sum_us / 1_000_000

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound in seconds, number of waits up to the bound); the last bound is +Inf."""
        bounds = [f"{bound / 1_000_000:g}" for bound in BOUNDS_US]
        return list(zip([*bounds, "+Inf"], accumulate(map(float, self.counts)), strict=True))

    @property
    def count(self) -> int:
        return sum(self.counts)

"""The parameters of a benchmark run, from the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Synchronous calls timed per round, for each floor and each latency.
SAMPLES_DEFAULT: Final = 2_000
#: Untimed calls before the first sample: they establish connections and fill caches.
WARM_UP: Final = 50


@dataclass(frozen=True)
class BenchPlan:
    messages: int
    size: int
    batch: int
    repeat: int
    samples: int
    #: Waiting messages for the memory measurement; 0 skips the measurement.
    ready: int = 0

"""What is to be measured, as the user asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Synchronous calls timed per round, for the floors and for the latencies alike.
SAMPLES_DEFAULT: Final = 2_000
#: Calls made before timing starts: the first ones pay for connections and caches.
WARM_UP: Final = 50


@dataclass(frozen=True)
class BenchPlan:
    messages: int
    size: int
    batch: int
    repeat: int
    samples: int
    #: Messages that wait while the node's memory is read; 0 leaves that part out.
    ready: int = 0

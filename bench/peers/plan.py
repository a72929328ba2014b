"""How much is done: enough for figures that mean something, or just enough to see that it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    repeat: int = 3
    #: Of one throughput measurement; how many messages that is, is found out for each system.
    seconds: float = 4.0
    #: Timed calls of a latency measurement.
    samples: int = 3000
    #: Messages waiting in W7, if filling takes no longer than `fill_s`; less otherwise.
    deep: int = 5_000_000
    fill_s: float = 30.0
    #: Queues of W8.
    queues: int = 1000

    @classmethod
    def quick(cls) -> Plan:
        return cls(repeat=1, seconds=0.5, samples=300, deep=200_000, fill_s=3.0, queues=100)

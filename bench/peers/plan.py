"""The amount of work: enough for meaningful results, or a minimum that only checks function."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    repeat: int = 3
    #: Seconds of one throughput measurement; trials find the number of messages per system.
    seconds: float = 4.0
    #: Timed calls of a latency measurement.
    samples: int = 3000
    #: Messages waiting in W7; fewer if filling would take longer than `fill_s`.
    deep: int = 5_000_000
    fill_s: float = 30.0
    #: Queues of W8.
    queues: int = 1000

    @classmethod
    def quick(cls) -> Plan:
        return cls(repeat=1, seconds=0.5, samples=300, deep=200_000, fill_s=3.0, queues=100)

"""What was measured: single measurements, their medians and spreads, and ratios between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

#: The raw costs of the machine itself, measured in W3's turns.
FLOOR = "floor"


@dataclass(frozen=True)
class Measurement:
    workload: str
    system: str
    repetition: int
    #: By name; rates are per second, times in microseconds, memory in MiB.
    figures: dict[str, float]
    #: Single calls in microseconds, for the latency curves.
    samples: dict[str, list[float]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Failure:
    """A system that did not get through a workload, and why; it is reported, not hidden."""

    workload: str
    system: str
    repetition: int
    reason: str


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        ranked = sorted(values)
        return cls(median(ranked), ranked[0], ranked[-1])


class Results:
    """All measurements of a run."""

    def __init__(self) -> None:
        self.measurements: list[Measurement] = []
        self.failures: list[Failure] = []

    def of(self, workload: str, system: str) -> list[Measurement]:
        return [
            each
            for each in self.measurements
            if each.workload == workload and each.system == system
        ]

    def systems(self, workload: str) -> list[str]:
        """Those with a measurement, in the order of the run."""
        seen = {each.system: None for each in self.measurements if each.workload == workload}
        return list(seen)

    def workloads(self) -> list[str]:
        names = [each.workload for each in self.measurements]
        names += [each.workload for each in self.failures]
        return list(dict.fromkeys(names))

    def spread(self, workload: str, system: str, figure: str) -> Spread | None:
        values = [
            each.figures[figure] for each in self.of(workload, system) if figure in each.figures
        ]
        return Spread.of(values) if values else None

    def ratio(self, over: tuple[str, str, str], under: tuple[str, str, str]) -> Spread | None:
        """One (workload, system, figure) over another, repetition by repetition.

        Both sides of each ratio are of the same minutes, which a ratio of medians is not.
        """
        above, below = self._by_repetition(*over), self._by_repetition(*under)
        ratios = [above[i] / below[i] for i in above.keys() & below.keys() if below[i]]
        return Spread.of(ratios) if ratios else None

    def _by_repetition(self, workload: str, system: str, figure: str) -> dict[int, float]:
        return {
            each.repetition: each.figures[figure]
            for each in self.of(workload, system)
            if figure in each.figures
        }

"""Measurements of a run, with medians, spreads and ratios."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

#: Name of the machine's raw costs, measured in turn with W3.
FLOOR = "floor"


@dataclass(frozen=True)
class Measurement:
    workload: str
    system: str
    repetition: int
    #: Value by name: rates per second, times in microseconds, memory in MiB.
    figures: dict[str, float]
    #: Microseconds of single calls, for the latency curves.
    samples: dict[str, list[float]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Failure:
    """A system that failed in a workload, with the reason; the report lists all failures."""

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
        """The systems with a measurement, in the order of the run."""
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
        """Ratios of one (workload, system, figure) to another, repetition by repetition.

        Both sides of each ratio are from the same minutes, unlike a ratio of medians.
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

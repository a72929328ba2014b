"""The outcome of a run, and its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from tests.total_queue import EXAMPLES_MAX, Event, History, Kind, check

from . import hold
from .journal import acknowledged_at, load_counts
from .scenario import SCENARIOS

#: Upper bound of a failover, for every producer.
PAUSE_S_MAX: Final = 3.0


class Outcome(msgspec.Struct, kw_only=True):
    scenario: str
    seed: int
    #: Why the run itself failed; "" if it completed.
    failure: str = ""
    counts: dict[str, int] = {}
    #: All violations, by the checker's name for them.
    violations: dict[str, list[str]] = {}
    #: The longest time without an acknowledged push, of any producer, from the fault on.
    pause_s: float = 0.0
    #: The same for the producer that uses plain gRPC.
    plain_pause_s: float = 0.0
    #: Errors that an application saw.
    errors: int = 0
    #: From the fault until the cluster was settled again.
    fault_s: float = 0.0
    total_s: float = 0.0
    notes: list[str] = []

    @property
    def ok(self) -> bool:
        return not self.failure and not self.violations

    @property
    def slow(self) -> bool:
        """True if a producer waited for longer than a failover may take."""
        pause_s = max(self.pause_s, self.plain_pause_s)
        scenario = SCENARIOS.get(self.scenario)  # a cycle of the soak is none of them
        return scenario is not None and scenario.failover and pause_s >= PAUSE_S_MAX

    def violated(self, what: str) -> int:
        return len(self.violations.get(what, ()))

    def line(self) -> str:
        said = ("slow" if self.slow else "ok") if self.ok else "FAILED"
        counts = self.counts
        parts = [
            f"{self.scenario:<12} {said:<6} pause {self.pause_s:5.2f} s",
            f"plain {self.plain_pause_s:5.2f} s",
            f"{counts.get('messages', 0)} messages",
            f"{counts.get('delivered', 0)} deliveries",
            f"{self.errors} errors",
            f"mended in {self.fault_s:.1f} s",
            f"seed {self.seed}",
        ]
        lines = ["  ".join(parts)]
        if self.failure:
            lines.append(f"  {self.failure}")
        for what, found in self.violations.items():
            lines.append(f"  {what.upper()} {len(found)}")
            lines += [f"    {example}" for example in found[:EXAMPLES_MAX]]
        if not self.ok or self.slow:
            lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)


def judge(
    outcome: Outcome, history: History, journals: list[Path], disturbed: tuple[float, float]
) -> None:
    """Join all journals and check them.

    While the cluster was `disturbed` (start, end), leads may move at any moment, and leased
    messages may be delivered again.
    """
    joined = History.load(*journals)
    joined.events += history.events
    began, ended = disturbed
    joined.events += [
        Event(event.at, Kind.RESTARTED, "")
        for event in joined.events
        if event.kind is Kind.DELIVERED and began <= event.at <= ended
    ]
    verdict = check(joined)
    outcome.counts = dict(verdict.counts)
    outcome.violations = {what: found for what, found in verdict.violations() if found}
    counts = load_counts(journals)
    scenario = SCENARIOS.get(outcome.scenario)
    if scenario is not None and scenario.holds:
        outcome.violations |= hold.violations(joined.events, counts)
    outcome.errors = counts.pop("errors", 0)
    outcome.counts.update(counts)


def longest_pause(journals: Sequence[Path], began: float, ended: float) -> float:
    """The longest gap between two acknowledged pushes of one producer from `began` to `ended`."""
    longest = 0.0
    for path in journals:
        times = [*acknowledged_at(path), ended]
        for before, after in pairwise(times):
            if after > began and before < ended:
                longest = max(longest, after - before)
    return longest

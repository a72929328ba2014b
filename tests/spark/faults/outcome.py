"""The outcome of a scenario, its verdict, and its presentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from weft.errors import WeftError
from weft.testing import cluster

from .scenario import SCENARIOS, Scenario
from .stage import Stage, Stuck


@dataclass
class Outcome:
    scenario: str
    pushed: int = 0
    #: By sink: rows in the output, missing rows and duplicate rows.
    rows: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    twice: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    #: Messages that the checker read again because of a crash; not an error.
    redelivered: int = 0
    #: Queries started again because a Python worker started too late for Spark; not an error.
    late_workers: int = 0
    failure: str = ""

    @property
    def ok(self) -> bool:
        wrong = (*self.lost.values(), *self.twice.values(), *self.left.values())
        return not self.failure and not any(wrong)

    def line(self) -> str:
        said = "ok" if self.ok else "FAILED"
        sinks = "  ".join(
            f"{sink} {rows}/{self.pushed} ({self.lost[sink]} lost, {self.twice[sink]} twice)"
            for sink, rows in self.rows.items()
        )
        left = {what: count for what, count in self.left.items() if count}
        lines = [f"{self.scenario:<18} {said:<6} {sinks}" + (f"  left: {left}" if left else "")]
        if self.redelivered:
            lines.append(f"{self.redelivered} delivered again after a crash")
        if self.late_workers:
            lines.append(f"{self.late_workers} queries restarted: Spark gave up on a late worker")
        return "\n  ".join([*lines, *self.failure.splitlines()])

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def judged(scenario: Scenario, folder: Path, messages: int) -> Outcome:
    """Run the scenario and check the output."""
    outcome = Outcome(scenario.name)
    with cluster(scenario.nodes) as made:
        if scenario.nodes > 1:
            made.settled()
        stage = Stage(made, folder, messages)
        try:
            scenario.play(stage)
            outcome.pushed = len(stage.pushed)
            for sink, found in stage.results().items():
                _compare(outcome, sink, Counter(stage.pushed), found)
            outcome.redelivered = stage.redelivered
            outcome.left = stage.left_over()
        except (Stuck, WeftError, AssertionError, OSError) as error:
            outcome.failure = f"{type(error).__name__}: {error}"
        finally:
            outcome.late_workers = stage.late_workers
            stage.close()
    return outcome


def _compare(outcome: Outcome, sink: str, pushed: Counter[str], found: Counter[str]) -> None:
    outcome.rows[sink] = found.total()
    outcome.lost[sink] = (pushed - found).total()
    outcome.twice[sink] = (found - pushed).total()


def markdown(outcomes: Sequence[Outcome]) -> str:
    head = ("scenario", "pushed", "through the Weft sink", "through Parquet", "left over")
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for each in outcomes:
        what = SCENARIOS[each.scenario].what
        if each.failure:
            lines.append(f"| {what} | failed | | | |")
            continue
        sinks = (
            f"{each.rows[sink]:,}: {each.lost[sink]} lost, {each.twice[sink]} twice"
            for sink in ("weft", "parquet")
        )
        cells = (what, f"{each.pushed:,}", *sinks, str(sum(each.left.values())))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)

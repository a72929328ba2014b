"""What came out of a scenario, how it is judged, and how it is shown."""

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
    #: By sink: rows that came out, those missing and those that came more than once.
    rows: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    twice: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
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
        return "\n  ".join([*lines, *self.failure.splitlines()])

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def judged(scenario: Scenario, folder: Path, messages: int) -> Outcome:
    """Plays it and looks at what came out."""
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
            outcome.left = stage.left_over()
        except (Stuck, WeftError, AssertionError, OSError) as error:
            outcome.failure = f"{type(error).__name__}: {error}"
        finally:
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

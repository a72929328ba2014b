"""The progress of a run: totals of its tasks, and progress bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

MAP, REDUCE = "map", "reduce"
STAGES: Final = (MAP, REDUCE)
#: Called with the stage, the tasks that have ended, and the tasks of the stage.
ProgressFunction = Callable[[str, int, int], None]


@dataclass
class StageTotals:
    """Sums over the tasks of a run."""

    input_lines: int = 0
    spilled_bytes: int = 0
    output_lines: int = 0
    output_bytes: int = 0
    repaired: int = 0
    show: ProgressFunction = field(default=lambda stage, done, tasks: None)


@contextmanager
def shown(progress: bool | ProgressFunction, totals: StageTotals) -> Iterator[None]:
    """Has the totals call a function, or draw bars on standard error, in the context."""
    if callable(progress):
        totals.show = progress
    if callable(progress) or not progress:
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description:<7}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as bars:
        ids = {stage: bars.add_task(stage, total=None, start=False) for stage in STAGES}

        def show(stage: str, done: int, tasks: int) -> None:
            bars.start_task(ids[stage])
            bars.update(ids[stage], completed=done, total=tasks)

        totals.show = show
        yield

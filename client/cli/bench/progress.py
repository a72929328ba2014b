"""Progress of a run on standard error if that is a terminal; no output otherwise."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class Live:
    """A progress line with the current phase."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[figure]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            # A redraw thread would compete with the timed calls for the processor.
            auto_refresh=False,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task("starting", total=None, figure="")

    def phase(self, text: str, total: int | None = None) -> None:
        self._progress.reset(self._task, total=total, description=text, figure="")
        self._progress.refresh()

    def advance(self, done: int) -> None:
        self._progress.update(self._task, completed=done, figure=f"{done:,} acked")
        self._progress.refresh()

    def __enter__(self) -> Live:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

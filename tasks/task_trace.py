"""Traces of tasks: the span of a delivery is current while the task runs.

With tracing set up (client/tracing.py), a submission puts its context into the headers of the
message. The worker makes the context current for the function, carries the context on in the
function's pushes and submissions, and ends the span when the task is settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from weft.client import tracing

if TYPE_CHECKING:
    from .execution import TaskRun


def traced(message: Any) -> bool:
    """True if the message has brought a context, and this process traces."""
    lease = getattr(message, "_lease", None)  # an inline task has none
    return lease is not None and lease.deliveries is not None


def within(name: str, message: Any) -> AbstractContextManager[Any]:
    """A span of the running task, below the span of its delivery."""
    return tracing.running(name, message) if traced(message) else nullcontext()


def end_spans(runs: Sequence[TaskRun], outcome: str) -> None:
    """Ends the spans of settled tasks."""
    if not tracing.on():
        return
    for run in runs:
        if traced(run.message):
            run.message._lease.deliveries.end([run.message._index], outcome)


def carry(queue: str, headers: dict[str, str] | None) -> dict[str, str] | None:
    """The headers of a push that happens later, with the context of the running task."""
    return dict(tracing.carry(queue, headers) or {}) or None if tracing.on() else headers

"""The end of tasks of graphs, in the commit of a worker: arrivals of children, and new graphs."""

from __future__ import annotations

from collections.abc import Sequence

from weft.client.routing.session import ClientSession
from weft.client.transaction.effects import TransactionEffects
from weft.errors import TaskCancelled, UpstreamFailed

from .execution import TaskRun
from .graph_links import CANCELLED_REASON, ArrivalBook, GraphLinks, shortened
from .graph_record import keys_of
from .graph_submission import record_writes
from .outcome import RESULT_TTL_S, TaskError
from .task import NONE


def links_of(run: TaskRun) -> GraphLinks | None:
    """The links of a task of a graph; None for other tasks."""
    return run.call.graph if run.call is not None else None


def children_of(run: TaskRun) -> int:
    """The batches with children of a task."""
    links = links_of(run)
    return 0 if links is None else len(links.children)


def is_plain(run: TaskRun) -> bool:
    """True for once="none". The end of a task of a graph releases others, in its commit."""
    if run.task is None or run.task.options.once != NONE or links_of(run) is not None:
        return False
    return not (run.effects and run.effects.graphs)


def ttl_of(run: TaskRun) -> int:
    """How long the result is kept: for a task of a graph at least as long as the graph."""
    ttl_ms = run.task.options.ttl_ms if run.task else int(RESULT_TTL_S * 1000)
    links = links_of(run)
    return ttl_ms if links is None else max(ttl_ms, links.ttl_ms)


def add_graph_effects(
    transaction: TransactionEffects, session: ClientSession, runs: Sequence[TaskRun]
) -> None:
    """Adds the ends of tasks of graphs, and the graphs that the tasks have submitted."""
    book: ArrivalBook | None = None
    for run in runs:
        links = links_of(run)
        if links is not None and links.children:
            if book is None:
                book = ArrivalBook()
            book.end(links, reason_of(run))
        for plan in run.effects.graphs if run.effects else ():
            assert run.task is not None
            group = keys_of(session, run.task.app.name, plan.record.number)
            for write in record_writes(group, plan.record):
                transaction.add_write(write)
            transaction.add_waiting([batch.push for batch in plan.batches])
    if book is not None and len(book):
        transaction.add_arrivals(book.arrivals(session.router.partitions))


def failed_by_itself(run: TaskRun) -> bool:
    """False for a task that was not run, because a task before it failed."""
    return not (isinstance(run.outcome, TaskError) and run.outcome.kind == UpstreamFailed.code)


def reason_of(run: TaskRun) -> str:
    """The reason of a failure, for the children: that of the first one; "" for success."""
    outcome = run.outcome
    if not isinstance(outcome, TaskError):
        return ""
    if outcome.kind == TaskCancelled.code:
        return CANCELLED_REASON
    if outcome.kind == UpstreamFailed.code:
        return shortened(outcome.text or "a task before it failed")
    name = run.task.name if run.task is not None else "?"
    return shortened(f"task {run.message.id} ({name}) failed: {outcome.error}: {outcome.text}")

"""A submitted graph: its results, its progress, and its end.

An instance is made by `submit`, or by `app.graph_run(id)` in any process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.client.transport.blocking_link import run
from weft.errors import DeadlineExceeded, TaskCancelled, TaskFailed, UpstreamFailed
from weft.ids import MessageId

from .batch_results import BatchResults
from .cancellation import mark_tasks
from .future import AsyncFuture, Future, deadline_of
from .graph_links import CANCELLED_REASON
from .graph_record import GraphRecord
from .outcome import Outcome, TaskError

if TYPE_CHECKING:
    from .app import App

#: The states of a task, in the order of its life.
WAITING, READY, DONE, FAILED, UPSTREAM, CANCELLED = STATES = (
    "waiting", "ready", "done", "failed", "upstream failed", "cancelled",
)  # fmt: skip
ENDED = (DONE, FAILED, UPSTREAM, CANCELLED)


@dataclass(frozen=True)
class GraphProgress:
    """The states of the tasks at one moment. A ready task waits for a worker, or runs."""

    tasks: int
    #: By state, one of STATES.
    counts: dict[str, int]
    states: list[str]

    @property
    def ended(self) -> int:
        return sum(self.counts.get(state, 0) for state in ENDED)

    @property
    def complete(self) -> bool:
        return self.ended == self.tasks


class GraphRunCore:
    """The common part of both kinds of runs: coroutines over a session."""

    def __init__(self, app: App, record: GraphRecord, ran: Sequence[Future] | None = None) -> None:
        self._app = app
        self.record = record
        self._ran = ran
        self._results: list[BatchResults] | None = None

    @property
    def id(self) -> str:
        """The graph's id: `app.graph_run(id)` makes the run anywhere."""
        return str(self.record.number)

    def __len__(self) -> int:
        return len(self.record.names)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self._app.name}, {len(self)} tasks>"

    def _read_by(self, session: Any) -> list[BatchResults]:
        if self._results is None:
            self._results = [
                BatchResults(
                    session, self._app.name,
                    MessageId.of(batch.partition, batch.producer, batch.batch, 0), None,
                    self._app.pickle,
                )
                for batch in self.record.batches
            ]  # fmt: skip
        return self._results

    async def _wait(self, session: Any, limit_s: float | None) -> None:
        if self._ran is not None:
            return
        deadline = deadline_of(limit_s)
        for batch, results in zip(self.record.batches, self._read_by(session), strict=True):
            if not await results.wait(range(batch.count), deadline):
                missing = batch.count - len(results.found)
                raise DeadlineExceeded(
                    f"{missing} tasks or more of graph {self.id} have no result after {limit_s} s: "
                    f"see weft tasks graph {self._app.name} {self.id}"
                )

    async def _values(self, session: Any, nodes: Sequence[int]) -> list[Any]:
        """The results of nodes that have ended; raises the first failure."""
        values: list[Any] = []
        for node in nodes:
            place, _ = self.record.places[node]
            number = self.record.id_of(node)
            if self._ran is not None:
                values.append(self._ran[node].result())
                continue
            results = self._read_by(session)[place]
            task = self._app.tasks.get(self.record.name_of(node))
            if task is not None:
                results.decode = task.signature.result.decode
            values.append(await results.value(number, number.index))
        return values

    async def _result(self, session: Any, limit_s: float | None) -> Any:
        await self._wait(session, limit_s)
        await self._raise_failure(session)
        sinks = self.record.sinks()
        values = await self._values(session, sinks)
        return values[0] if len(sinks) == 1 else values

    async def _raise_failure(self, session: Any) -> None:
        """Raises the failure of a task that failed by itself, if one did: the others follow."""
        tolerated = self._tolerated()
        worst: TaskFailed | None = None
        for node, outcome in enumerate(self._outcomes(session)):
            if isinstance(outcome, TaskError) and node not in tolerated:
                error = outcome.exception(self.record.id_of(node))
                if not isinstance(error, UpstreamFailed):
                    raise error
                worst = worst or error
        if worst is not None:
            raise worst

    def _tolerated(self) -> set[int]:
        """Tasks that may fail: all their children run anyway."""
        tolerant = set(self.record.tolerant)
        children = self.record.children()
        return {
            node for node, own in enumerate(children) if own and tolerant.issuperset(own)
        }  # fmt: skip

    def _outcomes(self, session: Any) -> Iterator[Outcome | None]:
        if self._ran is not None:
            for future in self._ran:
                yield future._batch.found.get(future.index)
            return
        results = self._read_by(session)
        for place, index in self.record.places:
            yield results[place].found.get(index)

    async def _progress(self, session: Any) -> GraphProgress:
        if self._ran is None:
            for batch, results in zip(self.record.batches, self._read_by(session), strict=True):
                if len(results.found) < batch.count:
                    await results.scan()
        states: list[str] = []
        for outcome in self._outcomes(session):
            states.append(WAITING if outcome is None else _state_of(outcome))
        for node, state in enumerate(states):
            if state == WAITING and self._is_ready(node, states):
                states[node] = READY
        counts = {state: states.count(state) for state in STATES}
        return GraphProgress(len(states), counts, states)

    def _is_ready(self, node: int, states: list[str]) -> bool:
        parents = [states[parent] for parent in self.record.parents[node]]
        bad = any(state in ENDED and state != DONE for state in parents)
        if bad and node not in self.record.tolerant:
            return True
        return all(state in ENDED for state in parents)

    async def _cancel(self, session: Any) -> int:
        from .graph_submission import release, release_all

        before = await self._progress(session)
        if before.complete or self._ran is not None:
            return 0
        record = self.record
        arrivals = release_all(session, record.batches, CANCELLED_REASON)
        await release(session, record.number.partition, arrivals)
        after = await self._progress(session)
        open_ = [node for node, state in enumerate(after.states) if state not in ENDED]
        await mark_tasks(session, self._app.name, [record.id_of(node) for node in open_])
        return len(open_)


class GraphRun(GraphRunCore):
    """A submitted graph.

    run = g.submit()
    print(run.id, run.result(timeout=60))
    """

    def result(self, timeout: float | None = None) -> Any:
        """Waits for the whole graph, and returns the result of its last task.

        The last tasks are those without children; the results of several are a list, in the order
        of `add`. Raises the TaskFailed of a task that failed, and DeadlineExceeded.
        """
        return run(self._result(self._session, timeout))

    def wait(self, timeout: float | None = None) -> GraphProgress:
        """Waits until every task has ended, with or without success. Raises DeadlineExceeded."""
        run(self._wait(self._session, timeout))
        return self.progress()

    def progress(self) -> GraphProgress:
        """The states of the tasks now."""
        return run(self._progress(self._session))

    def cancel(self) -> int:
        """Cancels the tasks that have not ended; returns their number.

        Waiting tasks end without running, running ones are interrupted. Calling again is safe.
        """
        return run(self._cancel(self._session))

    def futures(self) -> list[Future]:
        """The futures of all tasks, in the order of `add`."""
        if self._ran is not None:
            return list(self._ran)
        app, record = self._app, self.record
        batches = self._read_by(self._session)
        return [
            Future(app, batches[record.places[node][0]], record.id_of(node))
            for node in range(len(self))
        ]

    def follow(self, interval: float = 0.5) -> Iterator[GraphProgress]:
        """Yields the progress again and again, until the graph is complete."""
        while True:
            progress = self.progress()
            yield progress
            if progress.complete:
                return
            time.sleep(interval)

    @property
    def _session(self) -> Any:
        return None if self._ran is not None else self._app.session


class AsyncGraphRun(GraphRunCore):
    """A submitted graph on an event loop: the same methods, awaited; see `GraphRun`."""

    async def result(self, timeout: float | None = None) -> Any:  # noqa: ASYNC109
        return await self._result(await self._app.aio_session(), timeout)

    async def wait(self, timeout: float | None = None) -> GraphProgress:  # noqa: ASYNC109
        await self._wait(await self._app.aio_session(), timeout)
        return await self.progress()

    async def progress(self) -> GraphProgress:
        return await self._progress(await self._app.aio_session())

    async def cancel(self) -> int:
        return await self._cancel(await self._app.aio_session())

    async def futures(self) -> list[AsyncFuture]:
        app, record = self._app, self.record
        batches = self._read_by(await app.aio_session())
        return [
            AsyncFuture(app, batches[record.places[node][0]], record.id_of(node))
            for node in range(len(self))
        ]


def _state_of(outcome: Outcome) -> str:
    if not isinstance(outcome, TaskError):
        return DONE
    if outcome.kind == TaskCancelled.code:
        return CANCELLED
    return UPSTREAM if outcome.kind == UpstreamFailed.code else FAILED

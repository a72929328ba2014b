"""Tasks that run in the submitting thread, for tests: no node, no worker, the same encodings."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weft.errors import TaskFailed
from weft.ids import MessageId

from .execution import TaskRun, execute, execute_async, prepared
from .future import AsyncFuture, Future
from .outcome import Outcome, PickledResult, TaskError
from .pickled_result import unpickle_result
from .signature import plain_result
from .task_context import ContextSlot, EffectPush, EffectWrite, slot

if TYPE_CHECKING:
    from .app import App

#: Tasks may submit tasks: deeper is a mistake.
DEPTH_MAX: Final = 100


class InlineMessage:
    """The part of a message for `TaskRun`."""

    def __init__(self, number: MessageId, body: bytes) -> None:
        self.id = number
        self.body = body
        self.deliveries = 1
        self.dead_reason = self.dead_origin = ""


class InlineResults:
    """The result of one inline task, as a future reads it."""

    def __init__(
        self,
        outcome: Outcome,
        number: MessageId,
        result: msgspec.msgpack.Decoder[Any] | None,
        app: App,
    ) -> None:
        self._app = app
        self.prefix = f"inline/{number}/"
        self.found = {number.index: outcome}
        #: There is no cluster: an inline task has no progress to look up.
        self.session = None
        self.decode = result.decode if result else plain_result

    async def wait(self, indexes: Collection[int], deadline: float | None) -> bool:
        return True

    async def scan(self) -> None:
        """All is there."""

    async def value(self, task_id: MessageId, index: int) -> Any:
        outcome = self.found[index]
        if isinstance(outcome, TaskError):
            raise outcome.exception(task_id)
        if isinstance(outcome, PickledResult):
            return unpickle_result(self._app.name, task_id, outcome.data, self._app.pickle)
        assert isinstance(outcome, msgspec.Raw)
        return self.decode(outcome)


class InlineRunner:
    """Runs each submission at once. The effects of tasks are in `pushed` and `written`."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._numbers = itertools.count(1)
        self._depth = 0
        self.pushed: list[EffectPush] = []
        self.written: list[EffectWrite] = []
        #: The data of blocks by name.
        self.blocks: dict[str, bytes] = {}

    def run(self, body: bytes) -> Future:
        number = MessageId.of(0, 0, next(self._numbers), 0)
        message = InlineMessage(number, body)
        if self._depth >= DEPTH_MAX:
            raise RecursionError(f"inline tasks submit each other {DEPTH_MAX} levels deep")
        self._depth += 1
        try:
            outcome, task = self._attempts(message)
        finally:
            self._depth -= 1
        results: Any = InlineResults(outcome, number, task and task.signature.result, self._app)
        return Future(self._app, results, number)

    async def run_async(self, body: bytes) -> AsyncFuture:
        """`run` for an event loop, which goes on meanwhile."""
        future = await asyncio.to_thread(self.run, body)
        return AsyncFuture(self._app, future._batch, future._number)

    def _attempts(self, message: InlineMessage) -> tuple[Outcome, Any]:
        while True:
            run = prepared(message, self._app.tasks)
            if run.unknown:
                raise TaskFailed(f"the app {self._app.name} has no task {run.unknown!r}")
            if run.ready:
                self._execute(run)
            assert run.outcome is not None
            if run.retry_ms < 0:
                self._take_effects(run)
                return run.outcome, run.task
            message.deliveries += 1

    def _execute(self, run: TaskRun) -> None:
        here = ContextSlot()
        token = slot.set(here)
        try:
            if run.task is not None and run.task.is_async:
                _run_coroutine(execute_async(run, here, asyncio.to_thread))
            else:
                execute(run, here)
        finally:
            slot.reset(token)

    def _take_effects(self, run: TaskRun) -> None:
        if run.effects is None:
            return
        queues = {task.queue for task in self._app.tasks.values()}
        self.written += run.effects.writes
        for push in run.effects.pushes:
            if push.queue in queues:
                self.run(push.body)
            else:
                self.pushed.append(push)


def _run_coroutine(work: Coroutine[Any, Any, None]) -> None:
    """Runs the coroutine to its end; in a thread if an event loop runs in this one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(work)
        return
    with ThreadPoolExecutor(1) as thread:
        thread.submit(copy_context().run, asyncio.run, work).result()

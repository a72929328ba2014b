"""The loop of a worker with `async def` tasks: many tasks at once on one event loop.

Up to `coroutines` tasks run at once; synchronous tasks of the same queues run one at a time in a
thread. Tasks with a common end are settled together. A coroutine without an await blocks
the event loop and delays all others; `time_limit` cannot end such a coroutine.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from functools import partial
from typing import Any, Final

from weft.client.async_client import AsyncClient
from weft.client.consumer.message import AsyncMessage
from weft.client.lease_ticket import give_back, nonce_of, tickets
from weft.client.queue_core import QueueCore
from weft.client.routing.session import pause_s
from weft.errors import QueueNotFound, WeftError

from .app import App
from .cancellation import Marks
from .execution import TaskRun, execute_async, lost_error, prepared
from .lease_keeper import Keeper
from .lease_loop import WAIT_MS, claim
from .running_slots import RunningSlots
from .settlement import TaskSettlement, log_unsettled
from .sites.worker_site import placements_of
from .submission import create_queue
from .task import START
from .task_context import ContextSlot, slot
from .worker_options import WorkerOptions

log = logging.getLogger("weft.tasks")

#: Runs settled by one call.
_SETTLED_MAX: Final = 4_096


class AsyncLeaseLoop:
    """Belongs to the event loop on which `run` is called."""

    def __init__(
        self,
        app: App,
        client: AsyncClient,
        keeper: Keeper,
        options: WorkerOptions,
        queues: Sequence[str],
        slots: RunningSlots | None = None,
    ) -> None:
        self._app = app
        self._session = client._session
        self._keeper = keeper
        self._options = options
        self._queues = queues
        self.settlement = TaskSettlement(self._session, app.name)
        self._placements = placements_of(app, self._session, AsyncMessage, options.site, queues)
        self.settlement.placements = list(self._placements.values())
        self._free = options.coroutines
        self._slots = slots or RunningSlots(-1, options.coroutines)
        self._changed = asyncio.Condition()
        self._tasks: dict[asyncio.Task[None], AsyncMessage] = {}
        self._ended: list[TaskRun] = []
        self._ended_event = asyncio.Event()
        self._left: Counter[int] = Counter()
        self._stopping = asyncio.Event()
        #: Cancelled tasks.
        self.marks = Marks()
        self._thread = ThreadPoolExecutor(1, "weft-sync-tasks")
        self._sync = asyncio.Lock()
        #: The running tasks are given back: nothing of them is settled.
        self._given_back = False
        self._idle_since = time.monotonic()

    def stop(self) -> None:
        """Ends the loop when the running tasks have ended."""
        self._stopping.set()

    def cancel(self, numbers: Sequence[int]) -> None:
        """Cancels tasks: running ones at their next await, others when their turn comes."""
        self.marks.add(numbers)
        for task, message in list(self._tasks.items()):
            if message.id in self.marks:
                task.cancel()

    async def run(self) -> None:
        """Runs until `stop`, or until the worker has been idle for its limit."""
        settler = asyncio.create_task(self._settle_all())
        pops = [asyncio.create_task(self._serve(queue)) for queue in self._queues]
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([stop, *pops], return_when=asyncio.FIRST_COMPLETED)
            self._stopping.set()
            await asyncio.gather(*pops)
            if self._tasks:
                await asyncio.wait(self._tasks)
            self._ended_event.set()
            await settler
        finally:
            for task in (stop, settler, *pops, *self._tasks):
                task.cancel()
            self._thread.shutdown(wait=False)

    async def _serve(self, queue: str) -> None:
        core = QueueCore(self._session, queue, AsyncMessage)
        failures = 0
        while not self._stopping.is_set():
            async with self._changed:
                await self._changed.wait_for(lambda: self._free > 0 or self._stopping.is_set())
            if self._stopping.is_set():
                return
            # The queues share the free places: together the queues take at most all places.
            limit = max(1, self._free // len(self._queues))
            self._free -= limit
            messages: list[AsyncMessage] = []
            try:
                placement = self._placements.get(queue)
                pop = core.pop_many if placement is None else placement.pop
                messages = await pop(limit, wait_ms=WAIT_MS)
                failures = 0
            except QueueNotFound:
                await create_queue(self._session, queue)
            except WeftError as error:
                log.warning("the worker waits for %s: %s", queue, error.message)
                if not error.retriable:
                    raise
                await asyncio.sleep(pause_s(failures))
                failures += 1
            finally:
                self._free += limit - len(messages)
            if messages:
                self._start(messages)
            elif self._is_idle():
                self._stopping.set()

    def _is_idle(self) -> bool:
        if self._tasks:
            self._idle_since = time.monotonic()
        return 0 < self._options.max_idle_s < time.monotonic() - self._idle_since

    def _start(self, messages: list[AsyncMessage]) -> None:
        self._idle_since = time.monotonic()
        self._keeper.hold(tickets(messages))
        self._left.update(map(nonce_of, messages))
        for message in messages:
            task = asyncio.create_task(self._one(message))
            self._tasks[task] = message
            task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        message = self._tasks.pop(task, None)
        self._free += 1
        if message is not None and task.cancelled():  # before its first step
            one = prepared(message, self._app.tasks)
            one.give_up(asyncio.CancelledError())
            self._end(one)
        wake = asyncio.ensure_future(self._wake())
        wake.add_done_callback(lambda _: None)

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _one(self, message: AsyncMessage) -> None:
        """Runs the task of a message. However it ends, the message is settled: a message that is
        not would keep its lease as long as this process lives."""
        one = prepared(message, self._app.tasks)
        try:
            if self._is_cancelled(message):
                one.cancel()
            if one.ready and await self.settlement.inputs.ready(one) and await self._claimed(one):
                await self._execute(one)
        except asyncio.CancelledError as error:  # before the function, or after its end
            one.give_up(error)
        except Exception as error:
            log.exception("task %s was not run: it is delivered again", message.id)
            one.give_up(error)
        self._end(one)

    def _end(self, one: TaskRun) -> None:
        if self._given_back:
            return
        if one.retry_ms >= 0 and self._is_cancelled(one.message):
            one.retry_ms = -1
            one.cancel()
        self._ended.append(one)
        self._ended_event.set()

    def _is_cancelled(self, message: AsyncMessage) -> bool:
        return bool(self.marks) and message.id in self.marks

    async def _execute(self, one: TaskRun) -> None:
        here = ContextSlot(self._session.router.partitions)
        slot.set(here)
        assert one.task is not None
        # The time limit of a synchronous task does not count its wait for the thread.
        async with nullcontext() if one.task.is_async else self._sync:
            began = time.monotonic()
            mark = self._mark(one.message) if one.task.is_async else -1
            try:
                await execute_async(one, here, partial(self._call_sync, one.message))
            finally:
                self._slots.end(mark)
            self.settlement.busy_s += time.monotonic() - began

    async def _claimed(self, one: TaskRun) -> bool:
        task = one.task
        if task is None or task.options.once != START:
            return True
        try:
            if await claim(self._session, self._app.name, one):
                return True
            one.outcome = lost_error(task, 1)
        except WeftError as error:
            log.warning("task %s was not claimed: %s", one.message.id, error.message)
            one.give_up(error)
        return False

    def _mark(self, message: AsyncMessage) -> int:
        return self._slots.begin(nonce_of(message), message._index)

    async def _call_sync(
        self, message: AsyncMessage, function: Any, *args: Any, **kwargs: Any
    ) -> Any:
        context = copy_context()

        def call() -> Any:
            mark = self._mark(message)
            try:
                return context.run(function, *args, **kwargs)
            finally:
                self._slots.end(mark)

        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def _settle_all(self) -> None:
        """Settles the ended tasks; tasks of the meantime are settled with the next call."""
        while True:
            await self._ended_event.wait()
            self._ended_event.clear()
            await asyncio.sleep(0)  # tasks of the same step go together
            while self._ended:
                runs, self._ended = self._ended[:_SETTLED_MAX], self._ended[_SETTLED_MAX:]
                try:
                    await self.settlement.settle(runs)
                except Exception as error:
                    log_unsettled(len(runs), error)
                self._drop([run.message for run in runs])
            if self._stopping.is_set() and not self._tasks:
                return

    def _drop(self, messages: Sequence[AsyncMessage]) -> None:
        self._left.subtract(map(nonce_of, messages))
        over = [nonce for nonce, count in self._left.items() if count <= 0]
        for nonce in over:
            del self._left[nonce]
        if over:
            self._keeper.drop(over)

    async def give_back_all(self) -> None:
        """The grace is over: cancels the running tasks and returns the messages, uncounted."""
        self._given_back = True
        left = dict(self._tasks)
        for task in left:
            task.cancel()
        by_queue: dict[str, list[AsyncMessage]] = {}
        for message in left.values():
            by_queue.setdefault(message.queue, []).append(message)
        for queue, some in by_queue.items():
            await give_back(QueueCore(self._session, queue, AsyncMessage), some)

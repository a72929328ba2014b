"""The threads of a synchronous worker; its worker loop runs on the client's background loop.

A thread cannot be killed. A handler that runs past its time limit is *abandoned*: the worker nacks
its message, starts another thread, and drops the late result; an ack by the abandoned handler
raises AlreadySettled. When the number of abandoned threads reaches the worker's concurrency, the
worker stops: only a new process gets rid of the threads.
"""

from __future__ import annotations

import asyncio
import queue as queues
import threading
from collections.abc import Callable
from typing import Any

from weft.client.background import Background
from weft.client.consumer.async_consumer import Front
from weft.client.consumer.prefetcher import ConsumerOptions, Prefetcher
from weft.client.consumer.sync_message import Message
from weft.client.queue_core import QueueCore
from weft.errors import DeadlineExceeded, UsageError

from .handler_check import check_handler
from .loop import WorkLoop, WorkOptions
from .signals import stopping
from .worker_stats import WorkerStats


class _Job:
    __slots__ = ("abandoned", "arguments", "function", "future")

    def __init__(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments
        self.future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.abandoned = False


class _Threads:
    """Daemon threads that run jobs: an abandoned thread must not keep the process alive."""

    def __init__(
        self, count: int, background: Background, on_abandoned: Callable[[], None]
    ) -> None:
        self._background = background
        self._on_abandoned = on_abandoned
        self._count = count
        self._jobs: queues.SimpleQueue[_Job | None] = queues.SimpleQueue()
        for _ in range(count):
            self._add()

    def _add(self) -> None:
        threading.Thread(target=self._work, name="weft-worker", daemon=True).start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            result, error = None, None
            try:
                result = job.function(*job.arguments)
            except BaseException as raised:
                error = raised
            if job.abandoned:
                return
            try:
                self._background.post(_end, job, result, error)
            except UsageError:  # the client is closed: nothing awaits the result
                return

    async def call(self, function: Callable[..., object], *arguments: Any) -> object:
        job = _Job(function, arguments)
        self._jobs.put(job)
        try:
            result = await job.future
        except asyncio.CancelledError:
            job.abandoned = True
            self._add()
            self._on_abandoned()
            raise
        if isinstance(result, _Raised):
            raise result.error
        return result

    def close(self) -> None:
        for _ in range(self._count):
            self._jobs.put(None)


class _Raised:
    """An error as a value: a future does not accept every exception."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _end(job: _Job, result: object, error: BaseException | None) -> None:
    if not job.future.done():
        job.future.set_result(result if error is None else _Raised(error))


class ThreadWorker:
    """The part of `Worker` that has no asyncio form: handlers in threads, a loop in another."""

    def __init__(
        self,
        background: Background,
        direct: QueueCore[Message],
        handler: Callable[[Message], object],
        options: WorkOptions,
        add: Callable[[Prefetcher[Message]], None],
        discard: Callable[[Prefetcher[Message]], None],
    ) -> None:
        check_handler("handler", handler, awaits=False)
        if options.on_error is not None:
            check_handler("on_error", options.on_error, awaits=False)
        self._background = background
        self._direct = direct
        self._handler = handler
        self._options = options
        self._add = add
        self._discard = discard
        self.stats = WorkerStats(direct.name)
        self._loop: WorkLoop[Message] | None = None
        self._stopped: bool | None = None
        self._stuck = False

    def _work(self) -> None:
        with stopping(self._request_stop):
            fatal = self._background.wait(self._run())
        if fatal is not None:
            raise fatal
        if self._stuck:
            raise DeadlineExceeded(
                f"{self.stats.abandoned} handlers of {self._direct.name} still run past the time "
                "limit, and threads cannot be ended: restart this process"
            )

    def _request_stop(self, now: bool) -> None:
        self._stopped = now or bool(self._stopped)
        if self._loop is not None:
            self._background.post(self._loop.stop, now)

    async def _run(self) -> BaseException | None:
        queue = QueueCore(self._background.session, self._direct.name, Message)
        threads = _Threads(self._options.concurrency, self._background, self._abandoned)
        self._loop = WorkLoop(
            queue, self._open, self._handler, threads.call, self._options, self.stats
        )
        if self._stopped is not None:
            self._loop.stop(self._stopped)
        try:
            await self._loop.run()
        finally:
            threads.close()
        return self._loop.fatal

    def _open(self, options: ConsumerOptions) -> Front[Message]:
        queue = QueueCore(self._background.session, self._direct.name, Message)
        post = self._background.post
        front = Front(queue, self._direct, options, post, self._discard)
        self._add(front.prefetcher)
        return front

    def _abandoned(self) -> None:
        self.stats.abandoned += 1
        if self.stats.abandoned >= self._options.concurrency and self._loop is not None:
            stopping_already = self._loop.is_stopping
            self._stuck = self._stuck or not stopping_already
            self._loop.stop()

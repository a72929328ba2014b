"""The asyncio worker: each handler is a task of the application's own event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from weft.client import arguments
from weft.client.consumer.async_consumer import Front, at_once
from weft.client.consumer.message import AsyncMessage
from weft.client.consumer.prefetcher import ConsumerOptions, Prefetcher
from weft.client.queue_core import QueueCore

from .handler_check import check_handler
from .loop import WorkLoop, WorkOptions
from .signals import stopping
from .worker_stats import WorkerStats


class AsyncWorker:
    """A worker of one queue: await `run`; call `stop` on the same event loop.

    worker = orders.worker(handle, concurrency=8)
    asyncio.get_running_loop().call_later(60, worker.stop)
    print((await worker.run()).summary())
    """

    def __init__(
        self,
        queue: QueueCore[AsyncMessage],
        handler: Callable[[AsyncMessage], Awaitable[object]],
        options: WorkOptions,
        inboxes: set[Prefetcher[AsyncMessage]],
    ) -> None:
        check_handler("handler", handler, awaits=True)
        self._queue = queue
        self._inboxes = inboxes
        self.stats = WorkerStats(queue.name)
        self._loop = WorkLoop(queue, self._front, handler, _call, options, self.stats)

    async def run(self) -> WorkerStats:
        """Works until stopped by `stop`, SIGTERM or SIGINT (in the main thread); returns the stats.

        With `idle_ms` the worker also ends when no message came for that time.

        Raises SystemExit or KeyboardInterrupt if a handler raised it. If the task that awaits `run`
        is cancelled, the worker cancels its handlers too and returns their messages.
        """
        await self._work()
        return self.stats

    def stop(self, now: bool = False) -> None:
        """Stops fetching and lets the handlers end; with `now`, waits for no handler."""
        arguments.check_flag("now", now)
        self._request_stop(now)

    async def _work(self) -> None:
        self._running = asyncio.get_running_loop()
        with stopping(self._signalled):
            await self._loop.run()
        if self._loop.fatal is not None:
            raise self._loop.fatal

    def _request_stop(self, now: bool) -> None:
        self._loop.stop(now)

    def _signalled(self, now: bool) -> None:
        # A signal may come at any instruction: the loop handles the stop between two callbacks.
        self._running.call_soon_threadsafe(self._loop.stop, now)

    def _front(self, options: ConsumerOptions) -> Front[AsyncMessage]:
        front = Front(self._queue, self._queue, options, at_once, self._inboxes.discard)
        self._inboxes.add(front.prefetcher)
        return front


async def _call(function: Callable[..., object], *arguments: Any) -> object:
    result = function(*arguments)
    return await result if inspect.isawaitable(result) else result

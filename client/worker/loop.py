"""The worker loop: a handler for each message, with retries, a time limit and a drain.

The loop runs on an event loop in both clients: asyncio handlers run there as tasks, synchronous
handlers run in threads (`thread_worker`). At most `concurrency` handlers run at once, and a message
is handed out only when a handler is free. The outcome of the handler decides about the message:

| the handler | the message |
|---|---|
| returns | is acked, with others, unless the handler settled it |
| raises | is nacked with the pause of `retry`; after the last attempt it becomes a dead letter |
| raises RetryLater, Reject | is nacked with that pause; becomes a dead letter at once |
| runs past `time_limit_s` | as if it had raised; a task is cancelled, a thread is abandoned |
| raises SystemExit or KeyboardInterrupt | is nacked, the worker drains, `run` raises it |
| loses its lease | is delivered again elsewhere; its result is dropped and reported |

A message that the node marks `alone` runs with no other handler beside it (see `hand_out`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic

from weft import limits
from weft.client import arguments
from weft.client.consumer import lease as leases
from weft.client.consumer.async_consumer import Front
from weft.client.consumer.lease import Claim
from weft.client.consumer.message import M
from weft.client.consumer.prefetcher import PREFETCH_MAX, ConsumerOptions
from weft.client.queue_core import QueueCore
from weft.errors import DeadlineExceeded, LeaseLost, Refused, WeftError

from .handler_check import check_result
from .retry_policy import RETRY, Reject, Retry, RetryLater
from .worker_stats import WorkerStats

log = logging.getLogger("weft.worker")

CONCURRENCY_MAX: Final = 10_000

#: Runs a function of the application with its arguments: on the loop, or in a thread.
Call = Callable[..., Awaitable[object]]


@dataclass(frozen=True)
class WorkOptions:
    concurrency: int = 8
    retry: Retry = field(default_factory=Retry)
    time_limit_s: float | None = None
    on_error: Callable[[Any, BaseException], object] | None = None
    #: Messages held in addition to those in handlers; None: as many as `concurrency`.
    prefetch: int | None = None
    lease_ms: int = 0
    idle_ms: int | None = None
    drain_s: float = 30

    def __post_init__(self) -> None:
        arguments.check_integer("concurrency", self.concurrency, 1, CONCURRENCY_MAX)
        if not isinstance(self.retry, Retry):
            raise arguments.wrong_type("retry", "a weft.Retry", self.retry)
        if self.time_limit_s is not None:
            low = 1 / limits.SECOND_MS
            arguments.check_number("time_limit_s", self.time_limit_s, low, arguments.WAIT_S_MAX)
        arguments.check_callback("on_error", self.on_error)
        arguments.check_number("drain_s", self.drain_s, 0, arguments.WAIT_S_MAX)
        if self.prefetch is not None:
            arguments.check_integer("prefetch", self.prefetch, 1, PREFETCH_MAX)
        self.consumer(lambda _: None)  # checks lease_ms and idle_ms

    def consumer(self, lost: Callable[[list[Any]], None]) -> ConsumerOptions:
        prefetch = self.concurrency if self.prefetch is None else self.prefetch
        batch = max(1, prefetch // 2)
        return ConsumerOptions(
            prefetch, batch, lease_ms=self.lease_ms, idle_ms=self.idle_ms, on_lost=lost
        )


class Stopped(Exception):
    """The worker stopped before the handler had finished."""


class WorkLoop(Generic[M]):
    """Belongs to the event loop on which `run` is called."""

    def __init__(
        self,
        queue: QueueCore[M],
        open_front: Callable[[ConsumerOptions], Front[M]],
        handler: Callable[[M], object],
        call: Call,
        options: WorkOptions,
        stats: WorkerStats,
    ) -> None:
        self._queue = queue
        self._open_front = open_front
        self._handler = handler
        self._call = call
        self._options = options
        self._stats = stats
        stats.queue = queue.name
        self._tasks: dict[asyncio.Task[None], M] = {}
        self._free = asyncio.Event()
        self._idle = asyncio.Event()
        self._free.set()
        self._idle.set()
        self._stopping = asyncio.Event()
        self._now = asyncio.Event()
        self._stop_task: asyncio.Task[None] | None = None
        self._front: Front[M] | None = None
        #: SystemExit or KeyboardInterrupt of a handler, for the worker's caller to raise.
        self.fatal: BaseException | None = None
        self._dead_letter, self._ordered, self._most = True, False, 0
        #: The last task of each group: handlers of one group run one after the other.
        self._last: dict[str | None, asyncio.Task[None]] = {}
        #: Leases of groups in which a message failed: the messages behind it are given back, and
        #: come again after it.
        self._broken: set[int] = set()

    def stop(self, now: bool = False) -> None:
        """Stops fetching; with `now`, waits for no handler either."""
        self._stopping.set()
        self._free.set()  # the loop no longer waits for a free handler
        if now:
            self._now.set()
        if self._front is not None and self._stop_task is None:
            self._stop_task = asyncio.ensure_future(self._front.prefetcher.stop())

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    async def run(self) -> None:
        await self._read_settings()
        front = self._front = self._open_front(self._options.consumer(self._lost))
        front.prefetcher.idle = self._is_idle
        try:
            if not self._stopping.is_set():
                await self._take(front)
        except asyncio.CancelledError:
            self._now.set()
            raise
        finally:
            await self._finish(front)
            log.info("%s", self._stats.summary())

    async def _read_settings(self) -> None:
        try:
            settings = (await self._queue.stats()).settings
        except Refused:  # a token that may only consume
            return
        self._dead_letter, self._ordered = bool(settings.dead_letter), settings.ordered
        self._most = settings.max_deliveries

    async def _take(self, front: Front[M]) -> None:
        while True:
            await self._free.wait()
            message = None if self.is_stopping else await front.next()
            if message is None:
                return
            self._start(message)

    def _start(self, message: M) -> None:
        self._stats.started += 1
        self._stats.in_flight += 1
        task = asyncio.ensure_future(self._handle(message, self._last.get(message.group)))
        self._tasks[task] = message
        if message.group is not None:
            self._last[message.group] = task
        self._idle.clear()
        if len(self._tasks) >= self._options.concurrency:
            self._free.clear()
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        group = self._tasks.pop(task).group
        if self._last.get(group) is task:
            del self._last[group]
        self._stats.in_flight -= 1
        self._free.set()
        if not self._tasks:
            self._idle.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a worker of %s failed", self._queue.name, exc_info=error)

    async def _is_idle(self) -> None:
        await self._idle.wait()

    async def _finish(self, front: Front[M]) -> None:
        """Waits for the handlers, and gives up on those that take too long."""
        self.stop()
        await front.prefetcher.stop()
        waits = [asyncio.ensure_future(event.wait()) for event in (self._idle, self._now)]
        await asyncio.wait(
            waits, timeout=self._options.drain_s, return_when=asyncio.FIRST_COMPLETED
        )
        for wait in waits:
            wait.cancel()
        left = list(self._tasks)
        for task in left:
            task.cancel("stopped")
        await asyncio.gather(*left, return_exceptions=True)
        await front.prefetcher.close()

    def _lost(self, ids: list[Any]) -> None:
        """Counts lost leases.

        A running handler is counted when it ends. The other messages were counted as successes, but
        their acks came too late.
        """
        running = {message.id for message in self._tasks.values()}
        late = sum(each not in running for each in ids)
        self._stats.succeeded -= late
        self._stats.lost += late

    # --- one message ---

    async def _handle(self, message: M, before: asyncio.Task[None] | None = None) -> None:
        if before is not None:
            try:
                await asyncio.wait([before])
            except asyncio.CancelledError:  # the worker stops, and the handler has not begun
                await self._give_back(message)
                return
        if message._lease.lent.nonce in self._broken:
            await self._give_back(message)
            return
        began = time.monotonic()
        error = await self._invoke(message)
        self._stats.took(time.monotonic() - began)
        self._stop_if_fatal(error)
        try:
            error = await self._settle(message, error)
        except WeftError as failed:
            self._stats.lost += 1
            error = failed
        if error is not None:
            log.warning("%s failed: %s", message, _reason(error))
            await self._report(message, error)

    def _stop_if_fatal(self, error: BaseException | None) -> None:
        if isinstance(error, SystemExit | KeyboardInterrupt):
            self.fatal = self.fatal or error
            self.stop()

    async def _invoke(self, message: M) -> BaseException | None:
        limit = asyncio.timeout(self._options.time_limit_s)
        try:
            async with limit:
                result = await self._call(self._handler, message)
        except TimeoutError as error:
            if not limit.expired():
                return error
            self._stats.timed_out += 1
            return DeadlineExceeded(f"the time limit of {self._options.time_limit_s} s is over")
        except asyncio.CancelledError as error:
            stopped = error.args == ("stopped",)
            return Stopped("the worker stopped before the handler ended") if stopped else error
        except BaseException as error:
            return error
        return check_result(result)

    async def _settle(self, message: M, error: BaseException | None) -> BaseException | None:
        """Acks or nacks the message; returns the error to report."""
        stats, lease = self._stats, message._lease
        if message.settled:  # settled by the handler
            stats.succeeded += 1
            return error
        if lease.lost:
            stats.lost += 1
            return leases.lost_error([Claim(lease, [message._index])])
        if error is None:
            await lease.owner.ack_many([message])
            stats.succeeded += 1
            return None
        attempt = message.deliveries
        final = isinstance(error, Reject) or attempt >= self._options.retry.attempts
        if isinstance(error, RetryLater):
            delay_ms = int(error.delay_s * 1000)
        elif isinstance(error, Stopped | SystemExit | KeyboardInterrupt):
            delay_ms, final = 0, False
        else:
            delay_ms = self._pause_ms(attempt)
        dead = self._dead_letter and (final or 0 < self._most <= attempt)
        if message.group is not None and not dead and self._front is not None:
            prefetcher = self._front.prefetcher
            self._broken &= prefetcher.leases_of(None)
            self._broken |= prefetcher.leases_of(message.group)
        await self._nack(message, delay_ms, _reason(error), final)
        if dead:
            stats.dead += 1
        else:
            stats.retried += 1
        return error

    def _pause_ms(self, attempt: int) -> int:
        """The pause of `retry`. If the application's backoff fails, the message still returns."""
        try:
            return self._options.retry.delay_ms(attempt)
        except Exception:
            log.exception("the backoff of a worker of %s failed", self._queue.name)
            return RETRY.delay_ms(attempt)

    async def _give_back(self, message: M) -> None:
        """Returns a message that must wait for an older one of its group; uncounted."""
        self._stats.started -= 1
        try:
            await self._queue.give_back([Claim(message._lease, [message._index])])
        except WeftError as failed:
            log.warning("%s was not given back: %s", message, failed.message)

    async def _nack(self, message: M, delay_ms: int, reason: str, final: bool) -> None:
        if self._ordered and delay_ms:
            # An ordered queue delivers a nacked message next, without delay: so pause while holding
            # the lease.
            if not final:
                wait = asyncio.ensure_future(self._stopping.wait())
                await asyncio.wait([wait], timeout=delay_ms / 1000)
                wait.cancel()
            delay_ms = 0
        await self._queue.nack_many([message], delay_ms=delay_ms, reason=reason, final=final)

    async def _report(self, message: M, error: BaseException) -> None:
        if self._options.on_error is None:
            return
        try:
            await self._call(self._options.on_error, message, error)
        except asyncio.CancelledError:
            raise
        except BaseException as failed:
            # A SystemExit that left this task would end the event loop, and with it the client.
            self._stop_if_fatal(failed)
            log.exception("on_error of a worker of %s failed", self._queue.name)


def _reason(error: BaseException) -> str:
    """Returns the reason stored with a dead letter, cut to the node's limit."""
    says = isinstance(error, LeaseLost | Reject)
    try:
        text = str(error) if says else f"{type(error).__name__}: {error}"
    except Exception:  # the application's own __str__ failed: the message must return all the same
        text = type(error).__name__
    return text.encode(errors="replace")[: limits.REASON_BYTES_MAX].decode(errors="ignore")

"""A queue for asyncio callers, with its producers, consumers and workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from weakref import WeakSet

from weft import limits
from weft.errors import WeftError

from . import arguments
from .consumer.ack_batcher import OnLost
from .consumer.async_consumer import AsyncConsumer, at_once
from .consumer.message import AsyncMessage
from .consumer.prefetcher import ConsumerOptions, Prefetcher
from .kv_watch import AsyncKvWatch, WatchOptions
from .producer.accumulator import BUFFER_BYTES, ProducerOptions
from .producer.async_producer import AsyncProducer
from .producer.batch import Body, Headers
from .queue_core import QueueCore
from .reply_queue import CallAnswer, CallArguments, ReplyQueue
from .routing.session import ClientSession
from .worker.async_worker import AsyncWorker
from .worker.loop import WorkOptions
from .worker.retry_policy import RETRY, Retry
from .worker.worker_stats import WorkerStats


class AsyncQueue(QueueCore[AsyncMessage]):
    """A handle for a queue, by name. The constructor sends no request; each method does."""

    def __init__(self, session: ClientSession, name: str, open_: Open) -> None:
        super().__init__(session, name, AsyncMessage)
        self._open = open_

    async def call(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        key: str | None = None,
        priority: int = 0,
        group: str | None = None,
        timeout_ms: int | None = None,
    ) -> CallAnswer:
        """Pushes a question and waits for its answer, up to `timeout_ms` milliseconds.

            answer = await orders.call(b"question", timeout_ms=1000)

        A consumer of the queue answers with `message.reply`. Raises CallTimedOut (the question may
        still be answered; a late answer is dropped), ReplyQueueLost, and the errors of `push`. More
        in docs/how-to/request-and-reply.md.
        """
        question = CallArguments(body, headers, key, priority, group, timeout_ms)
        return await self._open.call(self, question)

    def producer(
        self,
        *,
        linger_ms: float = 5,
        batch_count: int = 1000,
        batch_bytes: int = limits.MIB,
        in_flight: int = 8,
        buffer_bytes: int = BUFFER_BYTES,
        timeout_ms: int | None = None,
    ) -> AsyncProducer:
        """Opens a producer, which pushes batches in the background: for many messages.

            async with orders.producer(linger_ms=5) as producer:
                await producer.send(b"one")

        A batch leaves when it has `batch_count` messages or `batch_bytes` bytes, or after
        `linger_ms` milliseconds; up to `in_flight` batches are in flight. Sending waits while more
        than `buffer_bytes` bytes are not stored yet. Raises InvalidArgument for a value out of
        range.
        """
        options = ProducerOptions(
            linger_ms, batch_count, batch_bytes, in_flight, buffer_bytes, timeout_ms
        )
        return self._open.producer(self, options)

    def consume(
        self,
        *,
        prefetch: int = 1000,
        batch: int = 500,
        wait_ms: int = 5_000,
        lease_ms: int = 0,
        ack_linger_ms: float = 10,
        stop_when_empty: bool = False,
        idle_ms: int | None = None,
        renew_for_ms: int = 3600 * limits.SECOND_MS,
        on_lost: OnLost | None = None,
    ) -> AsyncConsumer:
        """Opens a consumer, which iterates over the queue's messages without end by default.

            async with orders.consume(prefetch=100) as consumer:
                async for message in consumer:
                    await message.ack()

        The client holds up to `prefetch` messages in addition to those handed out, and fetches up
        to `batch` messages at a time; a message counts as delivered only when it is handed out. The
        client renews leases of unsettled messages for `renew_for_ms` milliseconds at most. Acks are
        sent together after `ack_linger_ms` milliseconds at most; `consumer.flush()` waits for the
        answers and raises LeaseLost for acks that came too late, or calls `on_lost` with the ids of
        the messages. With `stop_when_empty` the iteration ends when the queue is empty, with
        `idle_ms` when no message came for that time.
        """
        arguments.check_flag("stop_when_empty", stop_when_empty)
        options = ConsumerOptions(
            prefetch, batch, wait_ms, lease_ms, ack_linger_ms,
            0 if stop_when_empty else idle_ms, renew_for_ms, on_lost,
        )  # fmt: skip
        return self._open.consumer(self, options)

    async def work(
        self,
        handler: Callable[[AsyncMessage], Awaitable[object]],
        *,
        concurrency: int = 8,
        retry: Retry = RETRY,
        time_limit_s: float | None = None,
        on_error: Callable[[AsyncMessage, BaseException], object] | None = None,
        prefetch: int | None = None,
        lease_ms: int = 0,
        idle_ms: int | None = None,
        drain_s: float = 30,
    ) -> WorkerStats:
        """Runs `handler` for each message until stopped; returns statistics of the run.

            await orders.work(handle, concurrency=8, retry=weft.Retry(attempts=5))

        At most `concurrency` handlers run at once. If a handler returns, its message is acked. If a
        handler raises, or runs longer than `time_limit_s` seconds, the message is retried after the
        pause of `retry`, and becomes a dead letter after its last attempt. `on_error` is called
        with the message and the error. Leases are renewed while handlers run. On SIGTERM or SIGINT
        the worker fetches no more messages and waits up to `drain_s` seconds for the handlers; a
        second signal ends the worker at once. With `idle_ms` the worker ends when no message came
        for that time in milliseconds.

        Raises InvalidArgument, and any error that ends a consumer. More in docs/workers.md.
        """
        worker = self.worker(
            handler, concurrency=concurrency, retry=retry, time_limit_s=time_limit_s,
            on_error=on_error, prefetch=prefetch, lease_ms=lease_ms, idle_ms=idle_ms,
            drain_s=drain_s,
        )  # fmt: skip
        return await worker.run()

    def worker(
        self,
        handler: Callable[[AsyncMessage], Awaitable[object]],
        *,
        concurrency: int = 8,
        retry: Retry = RETRY,
        time_limit_s: float | None = None,
        on_error: Callable[[AsyncMessage, BaseException], object] | None = None,
        prefetch: int | None = None,
        lease_ms: int = 0,
        idle_ms: int | None = None,
        drain_s: float = 30,
    ) -> AsyncWorker:
        """Like `work`, as an object with `run`, `stop` and `stats`, to stop by other means.

            worker = orders.worker(handle, concurrency=8)
            stats = await worker.run()

        Raises InvalidArgument for a value out of range.
        """
        arguments.check_function("handler", handler)
        options = WorkOptions(
            concurrency, retry, time_limit_s, on_error, prefetch, lease_ms, idle_ms, drain_s
        )
        return self._open.worker(self, handler, options)


class Open:
    """The open producers, consumers and watches of a client."""

    def __init__(self) -> None:
        self._watches: WeakSet[AsyncKvWatch] = WeakSet()
        self._producers: set[AsyncProducer] = set()
        self.inboxes: set[Prefetcher[AsyncMessage]] = set()
        self._replies: ReplyQueue | None = None

    async def call(self, queue: AsyncQueue, question: CallArguments) -> CallAnswer:
        if self._replies is None:
            self._replies = ReplyQueue(queue._session)
        return await self._replies.call(queue.name, question)

    def producer(self, queue: AsyncQueue, options: ProducerOptions) -> AsyncProducer:
        discard = self._producers.discard
        producer = AsyncProducer(queue._session, queue.name, options, at_once, discard)
        self._producers.add(producer)
        return producer

    def consumer(self, queue: AsyncQueue, options: ConsumerOptions) -> AsyncConsumer:
        consumer = AsyncConsumer(queue, options, self.inboxes.discard)
        self.inboxes.add(consumer.prefetcher)
        return consumer

    def worker(
        self,
        queue: AsyncQueue,
        handler: Callable[[AsyncMessage], Awaitable[object]],
        options: WorkOptions,
    ) -> AsyncWorker:
        return AsyncWorker(queue, handler, options, self.inboxes)

    def watch(self, session: ClientSession, options: WatchOptions) -> AsyncKvWatch:
        watch = AsyncKvWatch(session, options, self._watches.discard)
        self._watches.add(watch)
        return watch

    async def close(self) -> None:
        """Closes all, then raises the first error of a producer or a consumer."""
        if self._replies is not None:
            await self._replies.close()
        for watch in list(self._watches):
            await watch.close()
        failures = []
        for producer in list(self._producers):
            try:
                await producer.close()
            except WeftError as error:
                failures.append(error)
        for prefetcher in list(self.inboxes):
            try:
                await prefetcher.end()
            except WeftError as error:
                failures.append(error)
        if failures:
            raise failures[0]

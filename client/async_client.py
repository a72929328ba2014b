"""The asyncio client. A client belongs to the event loop on which it was connected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from types import TracebackType
from typing import Final, Unpack

from weft import limits
from weft.errors import WeftError
from weft.proto import wire

from . import arguments
from .admin.queues import AdminCore, QueueSettings
from .consumer.ack_batcher import OnLost
from .consumer.async_consumer import AsyncConsumer
from .consumer.message import AsyncMessage
from .consumer.prefetcher import ConsumerOptions, Prefetcher
from .kv_core import KvCore
from .pipeline.stage import Published, StageCore, StagingCore, Winner
from .pipeline.subscription import SubscriptionCore, SubscriptionStats
from .producer.accumulator import BUFFER_BYTES, ProducerOptions
from .producer.async_producer import AsyncProducer
from .queue_core import QueueCore
from .routing.discovery import Discovery, parse_servers
from .routing.router import Router
from .routing.session import TIMEOUT_MS, ClientSession
from .stats import QueueStats
from .transport.credentials import Credentials, Tls
from .transport.runtime import AsyncRuntime
from .worker.async_worker import AsyncWorker
from .worker.loop import WorkOptions
from .worker.retry_policy import RETRY, Retry
from .worker.worker_stats import WorkerStats

#: How long `connect` searches for a node: a mistyped address fails within 5 seconds.
CONNECT_MS: Final = 5_000


class AsyncQueue(QueueCore[AsyncMessage]):
    """A handle for a queue, by name. The constructor sends no request; each method does."""

    def __init__(self, session: ClientSession, name: str, open_: Open) -> None:
        super().__init__(session, name, AsyncMessage)
        self._open = open_

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
        return self._open.producer(self._session, self.name, options)

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
        client renews leases of unsettled messages (for `renew_for_ms` milliseconds at most). Acks
        are sent together after `ack_linger_ms` milliseconds at most; `consumer.flush()` waits for
        the answers and raises LeaseLost for acks that came too late. If `on_lost` is given, the
        client calls it with the ids of those messages instead. With `stop_when_empty` the iteration
        ends when the queue is empty, with `idle_ms` when no message came for that time. For a whole
        worker loop see `work`.
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

        Raises InvalidArgument for a value out of range, and any error that ends a consumer, such as
        QueueNotFound. More in docs/workers.md.
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
        """Like `work`, as an object with `run`, `stop` and `stats`, to stop by other means."""
        options = WorkOptions(
            concurrency, retry, time_limit_s, on_error, prefetch, lease_ms, idle_ms, drain_s
        )
        return AsyncWorker(self, handler, options, self._open)


class AsyncSubscription(SubscriptionCore):
    """A handle for a subscription, by name. The constructor sends no request."""


class AsyncStage(StageCore):
    """One attempt at one partition of a batch. Several may be open at once, in any process."""


class Open:
    """The open producers and consumers of a client."""

    def __init__(self) -> None:
        self._producers: set[AsyncProducer] = set()
        self.inboxes: set[Prefetcher[AsyncMessage]] = set()

    def producer(
        self, session: ClientSession, queue: str, options: ProducerOptions
    ) -> AsyncProducer:
        producer = AsyncProducer(session, queue, options, self._producers.discard)
        self._producers.add(producer)
        return producer

    def consumer(self, queue: AsyncQueue, options: ConsumerOptions) -> AsyncConsumer:
        consumer = AsyncConsumer(queue, options, self.inboxes.discard)
        self.inboxes.add(consumer.prefetcher)
        return consumer

    async def close(self) -> None:
        """Closes all, then raises the first error of a producer or a consumer."""
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


class AsyncClient:
    """One connection to Weft. Close the client, or use `async with`.

    async with weft.aio.connect("127.0.0.1:7700") as client:
        await client.queue("orders").push(b"one")
    """

    def __init__(self, discovery: Discovery, timeout_ms: int) -> None:
        self._router = Router(AsyncRuntime(), discovery)
        self._session = ClientSession(self._router, timeout_ms)
        self._admin = AdminCore(self._session)
        self._staging = StagingCore(self._session)
        self._open = Open()
        self.kv = KvCore(self._session)

    def queue(self, name: str) -> AsyncQueue:
        """Returns a handle; the queue itself may not exist yet."""
        return AsyncQueue(self._session, name, self._open)

    def subscription(self, queue: str, name: str, *, epoch: int | None = None) -> AsyncSubscription:
        """Returns a handle without a request. `epoch`: act as the holder opened with that epoch."""
        return AsyncSubscription(self._session, queue, name, epoch)

    async def create_queue(
        self, name: str, *, update: bool = False, **settings: Unpack[QueueSettings]
    ) -> bool:
        """Creates a queue; returns True if the queue did not exist.

            await client.create_queue("orders", lease_ms=60_000, update=True)

        A queue that exists with exactly these settings stays unchanged. If the queue exists with
        other settings, the call raises QueueExists; with `update` the call changes the given
        settings instead and keeps the others. `ordered` cannot be changed: InvalidArgument.
        """
        return await self._admin.create_queue(name, settings, update=update)

    async def update_queue(self, name: str, **changes: Unpack[QueueSettings]) -> None:
        """Changes the named settings and keeps the others."""
        await self._admin.update_queue(name, changes)

    async def delete_queue(self, name: str) -> int:
        """Deletes a queue with all its messages; returns the number of messages."""
        return await self._admin.delete_queue(name)

    async def list_queues(self, prefix: str = "") -> list[QueueStats]:
        return await self._admin.list_queues(prefix)

    async def delete_subscription(self, queue: str, name: str) -> int:
        """Deletes a subscription; returns its reserved messages to the queue, and their number."""
        return await self._admin.delete_subscription(queue, name)

    async def list_subscriptions(self, queue: str) -> list[SubscriptionStats]:
        return await self._admin.list_subscriptions(queue)

    def stage(self, queue: str, app: str, batch: int, partition: int, attempt: int) -> AsyncStage:
        """Opens a stage: holds the output of one attempt at one partition of a batch.

        The output stays invisible until the batch is published with this attempt among the winners.
        """
        return AsyncStage(self._session, queue, app, batch, partition, attempt)

    async def publish(
        self,
        queue: str,
        app: str,
        batch: int,
        winners: Iterable[Winner],
        *,
        timeout_ms: int | None = None,
    ) -> Published:
        """Makes all messages staged by the winners visible, once; drops the other attempts.

        A winner is (partition, attempt), or the `winner` of a stage. The call does nothing if this
        or a later batch of the app is already published.
        """
        return await self._staging.publish(queue, app, batch, winners, timeout_ms)

    async def abort(
        self, queue: str, app: str, batch: int, *, timeout_ms: int | None = None
    ) -> int:
        """Drops the stages of an unpublished batch; returns the number of messages."""
        return await self._staging.abort(queue, app, batch, timeout_ms)

    async def last_published(
        self, queue: str, app: str, *, timeout_ms: int | None = None
    ) -> int | None:
        """Returns the last published batch of an app, or None."""
        return await self._staging.last_published(queue, app, timeout_ms)

    async def view(self) -> wire.ViewInfo:
        """Returns the cluster view: members and partitions."""
        return await self._admin.view()

    async def status(self) -> wire.StatusInfo:
        """Returns the stats of one node."""
        return await self._admin.status()

    async def close(self) -> None:
        """Flushes the producers, closes the consumers, and ends calls in flight."""
        try:
            await self._open.close()
        finally:
            self._router.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class Connecting:
    """The result of `connect`: await it for a Client, or use `async with`."""

    def __init__(
        self,
        servers: str | Sequence[str] | None,
        credentials: Credentials,
        timeout_ms: int,
        connect_timeout_ms: int,
    ) -> None:
        arguments.check_timeout(timeout_ms)
        arguments.check_integer("connect_timeout_ms", connect_timeout_ms, 0, limits.DAY_MS)
        self._discovery = Discovery(parse_servers(servers), credentials)
        self._timeout_ms = timeout_ms
        self._connect_s = connect_timeout_ms / 1000
        self._client: AsyncClient | None = None

    async def _connect(self) -> AsyncClient:
        await asyncio.to_thread(self._discovery.find, self._connect_s)
        return AsyncClient(self._discovery, self._timeout_ms)

    def __await__(self) -> Generator[None, None, AsyncClient]:
        return self._connect().__await__()

    async def __aenter__(self) -> AsyncClient:
        self._client = await self._connect()
        return self._client

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._client is not None, "entered before"
        await self._client.close()


def connect(
    servers: str | Sequence[str] | None = None,
    *,
    token: str | None = None,
    tls: Tls | str | bool | None = None,
    timeout_ms: int = TIMEOUT_MS,
    connect_timeout_ms: int = CONNECT_MS,
) -> Connecting:
    """Connects to a cluster through any of its nodes.

        async with weft.aio.connect("127.0.0.1:7700") as client:
            await client.queue("orders").push(b"one")

    `servers` are gRPC addresses, HOST:PORT: a list, or a comma-separated text; the default is
    WEFT_SERVERS, then 127.0.0.1:7700. `token` is for nodes that require one (default: WEFT_TOKEN,
    or WEFT_TOKEN_FILE). `tls` is the PEM file of the authority of the nodes' certificates, True for
    the system's authorities, or a `weft.Tls` (default: WEFT_TLS, "system" for the system's
    authorities). Every call ends within `timeout_ms` milliseconds unless the call has its own
    timeout. `connect_timeout_ms` limits the search for a node. Raises InvalidArgument for bad
    arguments and ConnectionLost if no node answers.
    """
    return Connecting(servers, Credentials.of(token, tls), timeout_ms, connect_timeout_ms)

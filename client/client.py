"""The asyncio client. It belongs to the event loop on which it was connected."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Sequence
from types import TracebackType
from typing import Final, Unpack

from weft import limits
from weft.errors import WeftError
from weft.proto import wire

from .acks import OnLost
from .admin import AdminCore, QueueSettings
from .carrier import AsyncCarrier
from .consumer import Consumer
from .credentials import Credentials, Tls
from .discovery import Discovery, parse_servers
from .inbox import ConsumerOptions, Inbox
from .kv import KvCore
from .message import AsyncMessage
from .outbox import BUFFER_BYTES, ProducerOptions
from .producer import Producer
from .queue import QueueCore
from .router import Router
from .session import TIMEOUT_MS, Session, check_timeout
from .staging import Published, StageCore, StagingCore, Winner
from .stats import QueueStats
from .subscription import SubscriptionCore, SubscriptionStats

#: How long `connect` looks for a node: a typing error should not take half a minute to show.
CONNECT_MS: Final = 5_000


class Queue(QueueCore[AsyncMessage]):
    """A queue by name. Nothing is asked of the node until a verb is called."""

    def __init__(self, session: Session, name: str, open_: Open) -> None:
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
    ) -> Producer:
        """Pushes in the background, in batches: for many messages from many places.

        A batch leaves when it has `batch_count` messages or `batch_bytes`, or after `linger_ms`;
        `in_flight` are under way at once. Sending waits when `buffer_bytes` are not stored yet.
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
    ) -> Consumer:
        """Iterates the queue's messages, for ever unless told when to stop.

        Up to `prefetch` messages are fetched ahead, `batch` at a time, and leases are renewed while
        messages are unsettled (for `renew_for_ms` at most). Acks are gathered for `ack_linger_ms`;
        `on_lost` is called with the ids of those that came too late. With `stop_when_empty` it ends
        when there is nothing, with `idle_ms` when nothing came for that long.
        """
        options = ConsumerOptions(
            prefetch, batch, wait_ms, lease_ms, ack_linger_ms,
            0 if stop_when_empty else idle_ms, renew_for_ms, on_lost,
        )  # fmt: skip
        return self._open.consumer(self, options)


class Subscription(SubscriptionCore):
    """A subscription by name. Nothing is asked of the cluster until a verb is called."""


class Stage(StageCore):
    """One attempt at one partition of a batch. Several may be open at once, in any process."""


class Open:
    """The producers and consumers of a client that are not closed."""

    def __init__(self) -> None:
        self._producers: set[Producer] = set()
        self._inboxes: set[Inbox[AsyncMessage]] = set()

    def producer(self, session: Session, queue: str, options: ProducerOptions) -> Producer:
        producer = Producer(session, queue, options, self._producers.discard)
        self._producers.add(producer)
        return producer

    def consumer(self, queue: Queue, options: ConsumerOptions) -> Consumer:
        consumer = Consumer(queue, options, self._inboxes.discard)
        self._inboxes.add(consumer.inbox)
        return consumer

    async def close(self) -> None:
        """Closes them all; the first error of a producer is raised when that is done."""
        failures = []
        for producer in list(self._producers):
            try:
                await producer.close()
            except WeftError as error:
                failures.append(error)
        for inbox in list(self._inboxes):
            await inbox.close()
        if failures:
            raise failures[0]


class Client:
    """One connection to Weft. Use it with `async with`, or close it."""

    def __init__(self, discovery: Discovery, timeout_ms: int) -> None:
        self._router = Router(AsyncCarrier(), discovery)
        self._session = Session(self._router, timeout_ms)
        self._admin = AdminCore(self._session)
        self._staging = StagingCore(self._session)
        self._open = Open()
        self.kv = KvCore(self._session)

    def queue(self, name: str) -> Queue:
        """A handle; the queue itself may not exist yet."""
        return Queue(self._session, name, self._open)

    def subscription(self, queue: str, name: str, *, epoch: int | None = None) -> Subscription:
        """A handle; nothing is asked yet. `epoch`: as the holder that opened it with that."""
        return Subscription(self._session, queue, name, epoch)

    async def create_queue(self, name: str, **settings: Unpack[QueueSettings]) -> bool:
        """Makes a queue. False if it was there with these settings; with others: QueueExists."""
        return await self._admin.create_queue(name, settings)

    async def update_queue(self, name: str, **changes: Unpack[QueueSettings]) -> None:
        """Changes the named settings; the others stay."""
        await self._admin.update_queue(name, changes)

    async def delete_queue(self, name: str) -> int:
        """Drops a queue with all its messages; says how many."""
        return await self._admin.delete_queue(name)

    async def list_queues(self, prefix: str = "") -> list[QueueStats]:
        return await self._admin.list_queues(prefix)

    async def delete_subscription(self, queue: str, name: str) -> int:
        """Forgets a subscription; what it had reserved goes back to the queue. Says how many."""
        return await self._admin.delete_subscription(queue, name)

    async def list_subscriptions(self, queue: str) -> list[SubscriptionStats]:
        return await self._admin.list_subscriptions(queue)

    def stage(self, queue: str, app: str, batch: int, partition: int, attempt: int) -> Stage:
        """A place for what one attempt at one partition of a batch has to say: nobody sees it
        before the batch is published with this attempt among the winners."""
        return Stage(self._session, queue, app, batch, partition, attempt)

    async def publish(
        self,
        queue: str,
        app: str,
        batch: int,
        winners: Iterable[Winner],
        *,
        timeout_ms: int | None = None,
    ) -> Published:
        """Makes what the winners staged visible, all of it, once; the other attempts are dropped.

        A winner is (partition, attempt), or a stage's own `winner`. It does nothing when this or a
        later batch of the app is published already.
        """
        return await self._staging.publish(queue, app, batch, winners, timeout_ms)

    async def abort(
        self, queue: str, app: str, batch: int, *, timeout_ms: int | None = None
    ) -> int:
        """Drops the stages of a batch, if it is not published; says how many messages that were."""
        return await self._staging.abort(queue, app, batch, timeout_ms)

    async def last_published(
        self, queue: str, app: str, *, timeout_ms: int | None = None
    ) -> int | None:
        """The last batch of an app that was published; None when none was."""
        return await self._staging.last_published(queue, app, timeout_ms)

    async def view(self) -> wire.ViewInfo:
        """Who is in the cluster."""
        return await self._admin.view()

    async def status(self) -> wire.StatusInfo:
        """A node's own figures."""
        return await self._admin.status()

    async def close(self) -> None:
        """Flushes its producers, closes its consumers, ends what is under way."""
        try:
            await self._open.close()
        finally:
            self._router.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class Connecting:
    """What `connect` gives: await it for a Client, or enter it with `async with`."""

    def __init__(
        self,
        servers: str | Sequence[str] | None,
        credentials: Credentials,
        timeout_ms: int,
        connect_timeout_ms: int,
    ) -> None:
        check_timeout(timeout_ms)
        limits.check_range("connect_timeout_ms", connect_timeout_ms, 0, limits.DAY_MS)
        self._discovery = Discovery(parse_servers(servers), credentials)
        self._timeout_ms = timeout_ms
        self._connect_s = connect_timeout_ms / 1000
        self._client: Client | None = None

    async def _connect(self) -> Client:
        await asyncio.to_thread(self._discovery.find, self._connect_s)
        return Client(self._discovery, self._timeout_ms)

    def __await__(self) -> Generator[None, None, Client]:
        return self._connect().__await__()

    async def __aenter__(self) -> Client:
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

    `servers` are gRPC addresses, HOST:PORT: a list, or a text with commas; without them
    WEFT_SERVERS counts, then 127.0.0.1:7700. `token` is for nodes that want one (WEFT_TOKEN, or
    WEFT_TOKEN_FILE); `tls` is the PEM file of the authority of their certificates, True for the
    system's own, or a `weft.Tls` (WEFT_TLS, "system" for the system's own). Every call ends within
    `timeout_ms` unless it is given its own.
    """
    return Connecting(servers, Credentials.of(token, tls), timeout_ms, connect_timeout_ms)

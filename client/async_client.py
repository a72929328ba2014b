"""The asyncio client. A client belongs to the event loop on which it was connected."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Unpack

from weft import limits
from weft.ids import MessageId
from weft.proto import wire

from . import arguments
from .admin.queues import AdminCore, QueueSettings
from .async_kv import AsyncKv
from .async_queue import AsyncQueue, Open
from .pipeline.stage import Published, StageCore, StagingCore, Winner
from .pipeline.subscription import SubscriptionCore, SubscriptionStats
from .producer.batch import Body, Headers
from .producer.multicast import MulticastCore, TopicCore
from .routing.discovery import Discovery, parse_servers
from .routing.router import Router
from .routing.session import TIMEOUT_MS, ClientSession
from .stats import QueueStats
from .transaction.async_transaction import AsyncTransaction
from .transport.credentials import Credentials, Tls
from .transport.runtime import AsyncRuntime

#: How long `connect` searches for a node: a mistyped address fails within 5 seconds.
CONNECT_MS: Final = 5_000


class AsyncSubscription(SubscriptionCore):
    """A handle for a subscription, by name. The constructor sends no request."""


class AsyncStage(StageCore):
    """One attempt at one partition of a batch. Several may be open at once, in any process."""


class AsyncTopic(TopicCore):
    """A handle for a topic, by name. The constructor sends no request; each method does."""


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
        self._multicasts = MulticastCore(self._session)
        self._open = Open()
        self.kv = AsyncKv(self._session, self._open)

    def queue(self, name: str) -> AsyncQueue:
        """Returns a handle; the queue may not exist yet. InvalidArgument for a malformed name."""
        return AsyncQueue(self._session, name, self._open)

    def transaction(self) -> AsyncTransaction:
        """Starts a transaction: acks, pushes and table writes, all or nothing.

        async with client.transaction() as tx:
            tx.ack(message)
            tx.push("next", body)
        """
        return AsyncTransaction(self._session, self._session.home_numbers)

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
        """Changes the named settings; keeps the others. Raises QueueNotFound, InvalidArgument."""
        await self._admin.update_queue(name, changes)

    async def delete_queue(self, name: str) -> int:
        """Deletes a queue with all its messages; returns the number of messages.

        Raises QueueNotFound, and QueueInUse if it is the dead-letter queue of another queue.
        """
        return await self._admin.delete_queue(name)

    async def list_queues(self, prefix: str = "") -> list[QueueStats]:
        """Returns the statistics of all queues whose names begin with `prefix`, by name."""
        return await self._admin.list_queues(prefix)

    def topic(self, name: str) -> AsyncTopic:
        """Returns a handle; the topic may not exist yet. InvalidArgument for a malformed name."""
        return AsyncTopic(self._session, name)

    async def multicast(
        self,
        body: Body,
        *,
        queues: Iterable[str],
        headers: Headers | None = None,
        key: str | None = None,
        delay_ms: int = 0,
        priority: int = 0,
        dedup_key: str | None = None,
        conflict_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> dict[str, MessageId]:
        """Pushes one message to several queues: all of them store it, or none.

            ids = await client.multicast(b"one", queues=["billing", "audit"])

        Returns the id of the message in each queue. The queues consume independently; the body is
        stored once on each partition. Messages with equal `conflict_key`, or without one, have the
        same order in all ordered and grouped queues; the key is the group in grouped queues.
        `dedup_key` works in each queue as it does for a push, within one partition. Raises
        QueueNotFound, QueueFull or PermissionDenied if one of the queues refuses, and
        InvalidArgument for queues that one multicast cannot reach together
        (docs/how-to/topics-and-multicast.md); nothing is stored then.
        """
        return await self._multicasts.multicast(
            body, queues, headers, key, delay_ms, priority, dedup_key, conflict_key, timeout_ms
        )

    async def create_topic(self, name: str) -> bool:
        """Creates a topic; returns True if the topic did not exist.

        await client.create_topic("prices")
        """
        return await self._admin.create_topic(name)

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic. Its queues keep their messages. Raises TopicNotFound."""
        await self._admin.delete_topic(name)

    async def bind(
        self,
        topic: str,
        queue: str,
        *,
        headers: Mapping[str, str] | None = None,
        prefixes: Mapping[str, str] | None = None,
    ) -> bool:
        """Adds a queue to a topic: every later push to the topic reaches the queue.

            await client.bind("prices", "audit", headers={"region": "eu"})

        With `headers`, the queue gets only messages that have all these headers; with `prefixes`,
        only messages with headers that begin so. Replaces the filter of a queue that is bound.
        Returns True if the queue was not bound. Raises TopicNotFound and QueueNotFound.
        """
        return await self._admin.bind(topic, queue, headers, prefixes)

    async def unbind(self, topic: str, queue: str) -> bool:
        """Removes a queue from a topic; returns False if it was not bound.

        The queue keeps its messages. Raises TopicNotFound.
        """
        return await self._admin.unbind(topic, queue)

    async def list_topics(self, prefix: str = "") -> list[wire.TopicInfo]:
        """Returns the topics whose names begin with `prefix`, with their queues, by name."""
        return await self._admin.list_topics(prefix)

    async def delete_subscription(self, queue: str, name: str) -> int:
        """Deletes a subscription; returns its reserved messages to the queue, and their number."""
        return await self._admin.delete_subscription(queue, name)

    async def list_subscriptions(self, queue: str) -> list[SubscriptionStats]:
        """Returns the statistics of all subscriptions of a queue. Raises QueueNotFound."""
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

            await client.publish("results", "clicks", batch, [stage.winner for stage in stages])

        A winner is (partition, attempt), or the `winner` of a stage. The call does nothing if this
        or a later batch of the app is already published. Raises InvalidArgument for a winner that
        was not closed.
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
        """Flushes the producers, closes the consumers, and ends all calls in flight."""
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

    def __init__(self, discovery: Discovery, timeout_ms: int, connect_s: float) -> None:
        self._discovery = discovery
        self._timeout_ms = timeout_ms
        self._connect_s = connect_s
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
    arguments.check_timeout(timeout_ms)
    arguments.check_integer("connect_timeout_ms", connect_timeout_ms, 0, limits.DAY_MS)
    discovery = Discovery(parse_servers(servers), Credentials.of(token, tls))
    return Connecting(discovery, timeout_ms, connect_timeout_ms / 1000)

"""The synchronous client; threads may share a client.

`make facade` generates this module from `client/async_client.py`: do not edit it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Unpack

from weft import limits
from weft.ids import MessageId
from weft.proto import wire

from . import arguments
from .admin.queues import AdminCore, QueueSettings
from .async_client import CONNECT_MS
from .background_workers import BackgroundWorkers
from .pipeline.stage import Published, StagingCore, Winner
from .pipeline.subscription import SubscriptionStats
from .pipeline.sync_subscription import Stage, Subscription
from .producer.batch import Body, Headers
from .producer.multicast import MulticastCore
from .producer.sync_topic import Topic
from .routing.discovery import Discovery, parse_servers
from .routing.router import Router
from .routing.session import TIMEOUT_MS, ClientSession
from .stats import QueueStats
from .sync_kv import Kv
from .sync_queue import Queue
from .transaction.sync_transaction import Transaction
from .transport.blocking_link import run
from .transport.credentials import Credentials, Tls
from .transport.runtime import BlockingRuntime


class Client:
    """One client of Weft, for any number of threads. Close the client, or use `with`.

    with weft.connect("127.0.0.1:7700") as client:
        client.queue("orders").push(b"one")
    """

    def __init__(self, discovery: Discovery, timeout_ms: int) -> None:
        self._router = Router(BlockingRuntime(), discovery)
        self._session = ClientSession(self._router, timeout_ms)
        self._admin = AdminCore(self._session)
        self._staging = StagingCore(self._session)
        self._multicasts = MulticastCore(self._session)
        self._open = BackgroundWorkers(discovery, timeout_ms)
        self.kv = Kv(self._session, self._open)

    def queue(self, name: str) -> Queue:
        """Returns a handle; the queue may not exist yet. InvalidArgument for a malformed name."""
        return Queue(self._session, name, self._open)

    def transaction(self) -> Transaction:
        """Starts a transaction: acks, pushes and table writes, all or nothing.

        with client.transaction() as tx:
            tx.ack(message)
            tx.push("next", body)
        """
        return Transaction(self._session, self._session.home_numbers)

    def subscription(self, queue: str, name: str, *, epoch: int | None = None) -> Subscription:
        """Returns a handle without a request. `epoch`: act as the holder opened with that epoch."""
        return Subscription(self._session, queue, name, epoch)

    def create_queue(
        self, name: str, *, update: bool = False, **settings: Unpack[QueueSettings]
    ) -> bool:
        """Creates a queue; returns True if the queue did not exist.

            client.create_queue("orders", lease_ms=60_000, update=True)

        A queue that exists with exactly these settings stays unchanged. If the queue exists with
        other settings, the call raises QueueExists; with `update` the call changes the given
        settings instead and keeps the others. `ordered` cannot be changed: InvalidArgument.
        """
        return run(self._admin.create_queue(name, settings, update=update))

    def update_queue(self, name: str, **changes: Unpack[QueueSettings]) -> None:
        """Changes the named settings; keeps the others. Raises QueueNotFound, InvalidArgument."""
        run(self._admin.update_queue(name, changes))

    def delete_queue(self, name: str) -> int:
        """Deletes a queue with all its messages; returns the number of messages.

        Raises QueueNotFound, and QueueInUse if it is the dead-letter queue of another queue.
        """
        return run(self._admin.delete_queue(name))

    def list_queues(self, prefix: str = "") -> list[QueueStats]:
        """Returns the statistics of all queues whose names begin with `prefix`, by name."""
        return run(self._admin.list_queues(prefix))

    def topic(self, name: str) -> Topic:
        """Returns a handle; the topic may not exist yet. InvalidArgument for a malformed name."""
        return Topic(self._session, name)

    def multicast(
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

            ids = client.multicast(b"one", queues=["billing", "audit"])

        Returns the id of the message in each queue. The queues consume independently; the body is
        stored once on each partition. Messages with equal `conflict_key`, or without one, have the
        same order in all ordered and grouped queues; the key is the group in grouped queues.
        `dedup_key` works in each queue as it does for a push, within one partition. Raises
        QueueNotFound, QueueFull or PermissionDenied if one of the queues refuses, and
        InvalidArgument for queues that one multicast cannot reach together
        (docs/how-to/topics-and-multicast.md); nothing is stored then.
        """
        return run(
            self._multicasts.multicast(
                body, queues, headers, key, delay_ms, priority, dedup_key, conflict_key, timeout_ms
            )
        )

    def create_topic(self, name: str) -> bool:
        """Creates a topic; returns True if the topic did not exist.

        client.create_topic("prices")
        """
        return run(self._admin.create_topic(name))

    def delete_topic(self, name: str) -> None:
        """Deletes a topic. Its queues keep their messages. Raises TopicNotFound."""
        run(self._admin.delete_topic(name))

    def bind(
        self,
        topic: str,
        queue: str,
        *,
        headers: Mapping[str, str] | None = None,
        prefixes: Mapping[str, str] | None = None,
    ) -> bool:
        """Adds a queue to a topic: every later push to the topic reaches the queue.

            client.bind("prices", "audit", headers={"region": "eu"})

        With `headers`, the queue gets only messages that have all these headers; with `prefixes`,
        only messages with headers that begin so. Replaces the filter of a queue that is bound.
        Returns True if the queue was not bound. Raises TopicNotFound and QueueNotFound.
        """
        return run(self._admin.bind(topic, queue, headers, prefixes))

    def unbind(self, topic: str, queue: str) -> bool:
        """Removes a queue from a topic; returns False if it was not bound.

        The queue keeps its messages. Raises TopicNotFound.
        """
        return run(self._admin.unbind(topic, queue))

    def list_topics(self, prefix: str = "") -> list[wire.TopicInfo]:
        """Returns the topics whose names begin with `prefix`, with their queues, by name."""
        return run(self._admin.list_topics(prefix))

    def delete_subscription(self, queue: str, name: str) -> int:
        """Deletes a subscription; returns its reserved messages to the queue, and their number."""
        return run(self._admin.delete_subscription(queue, name))

    def list_subscriptions(self, queue: str) -> list[SubscriptionStats]:
        """Returns the statistics of all subscriptions of a queue. Raises QueueNotFound."""
        return run(self._admin.list_subscriptions(queue))

    def stage(self, queue: str, app: str, batch: int, partition: int, attempt: int) -> Stage:
        """Opens a stage: holds the output of one attempt at one partition of a batch.

        The output stays invisible until the batch is published with this attempt among the winners.
        """
        return Stage(self._session, queue, app, batch, partition, attempt)

    def publish(
        self,
        queue: str,
        app: str,
        batch: int,
        winners: Iterable[Winner],
        *,
        timeout_ms: int | None = None,
    ) -> Published:
        """Makes all messages staged by the winners visible, once; drops the other attempts.

            client.publish("results", "clicks", batch, [stage.winner for stage in stages])

        A winner is (partition, attempt), or the `winner` of a stage. The call does nothing if this
        or a later batch of the app is already published. Raises InvalidArgument for a winner that
        was not closed.
        """
        return run(self._staging.publish(queue, app, batch, winners, timeout_ms))

    def abort(self, queue: str, app: str, batch: int, *, timeout_ms: int | None = None) -> int:
        """Drops the stages of an unpublished batch; returns the number of messages."""
        return run(self._staging.abort(queue, app, batch, timeout_ms))

    def last_published(self, queue: str, app: str, *, timeout_ms: int | None = None) -> int | None:
        """Returns the last published batch of an app, or None."""
        return run(self._staging.last_published(queue, app, timeout_ms))

    def view(self) -> wire.ViewInfo:
        """Returns the cluster view: members and partitions."""
        return run(self._admin.view())

    def status(self) -> wire.StatusInfo:
        """Returns the stats of one node."""
        return run(self._admin.status())

    def close(self) -> None:
        """Flushes the producers, closes the consumers, and ends all calls in flight."""
        try:
            self._open.close()
        finally:
            self._router.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def connect(
    servers: str | Sequence[str] | None = None,
    *,
    token: str | None = None,
    tls: Tls | str | bool | None = None,
    timeout_ms: int = TIMEOUT_MS,
    connect_timeout_ms: int = CONNECT_MS,
) -> Client:
    """Connects to a cluster through any of its nodes.

        with weft.connect("127.0.0.1:7700") as client:
            client.queue("orders").push(b"one")

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
    discovery.find(connect_timeout_ms / 1000)
    return Client(discovery, timeout_ms)

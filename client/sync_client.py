"""The synchronous client: the same coroutines, run to their end over a blocking link.

Threads may share a client: each calling thread has its own connection underneath.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Unpack

from weft import limits
from weft.proto import wire

from . import arguments
from .admin.queues import AdminCore, QueueSettings
from .async_client import CONNECT_MS
from .background_workers import BackgroundWorkers
from .consumer.message import Message
from .kv_core import KvCore
from .pipeline.stage import Published, StageCore, StagingCore, Winner
from .pipeline.subscription import SubscriptionCore, SubscriptionStats
from .pipeline.sync_subscription import Stage, Subscription
from .queue_core import QueueCore
from .routing.discovery import Discovery, parse_servers
from .routing.router import Router
from .routing.session import TIMEOUT_MS, ClientSession
from .stats import QueueStats
from .sync_kv import Kv
from .sync_queue import Queue
from .transport.credentials import Credentials, Tls
from .transport.link import run
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
        self._background_workers = BackgroundWorkers(discovery, timeout_ms)
        self.kv = Kv(KvCore(self._session))

    def queue(self, name: str) -> Queue:
        """Returns a handle; the queue itself may not exist yet."""
        return Queue(QueueCore(self._session, name, Message), self._background_workers)

    def subscription(self, queue: str, name: str, *, epoch: int | None = None) -> Subscription:
        """Returns a handle without a request. `epoch`: act as the holder opened with that epoch."""
        return Subscription(SubscriptionCore(self._session, queue, name, epoch))

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
        """Changes the named settings and keeps the others."""
        run(self._admin.update_queue(name, changes))

    def delete_queue(self, name: str) -> int:
        """Deletes a queue with all its messages; returns the number of messages."""
        return run(self._admin.delete_queue(name))

    def list_queues(self, prefix: str = "") -> list[QueueStats]:
        return run(self._admin.list_queues(prefix))

    def delete_subscription(self, queue: str, name: str) -> int:
        """Deletes a subscription; returns its reserved messages to the queue, and their number."""
        return run(self._admin.delete_subscription(queue, name))

    def list_subscriptions(self, queue: str) -> list[SubscriptionStats]:
        return run(self._admin.list_subscriptions(queue))

    def stage(self, queue: str, app: str, batch: int, partition: int, attempt: int) -> Stage:
        """Opens a stage: holds the output of one attempt at one partition of a batch.

        The output stays invisible until the batch is published with this attempt among the winners.
        """
        return Stage(StageCore(self._session, queue, app, batch, partition, attempt))

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

        A winner is (partition, attempt), or the `winner` of a stage. The call does nothing if this
        or a later batch of the app is already published.
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
        """Flushes the producers, closes the consumers, and ends calls in flight in any thread."""
        try:
            self._background_workers.close()
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

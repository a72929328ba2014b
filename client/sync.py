"""The synchronous client: the same coroutines, run to their end over a blocking link.

Safe to share between threads: each thread that calls has its own connection underneath.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Unpack

from weft import limits
from weft.proto import wire

from .admin import AdminCore, QueueSettings
from .carrier import BlockingCarrier
from .client import CONNECT_MS
from .credentials import Credentials, Tls
from .discovery import Discovery, parse_servers
from .kv import KvCore
from .kv_sync import Kv
from .link import run
from .message import Message
from .queue import QueueCore
from .queue_sync import Queue
from .router import Router
from .session import TIMEOUT_MS, Session, check_timeout
from .staging import Published, StageCore, StagingCore, Winner
from .stats import QueueStats
from .subscription import SubscriptionCore, SubscriptionStats
from .subscription_sync import Stage, Subscription
from .works import Works


class Client:
    """One client of Weft, for any number of threads. Use it with `with`, or close it."""

    def __init__(self, discovery: Discovery, timeout_ms: int) -> None:
        self._router = Router(BlockingCarrier(), discovery)
        self._session = Session(self._router, timeout_ms)
        self._admin = AdminCore(self._session)
        self._staging = StagingCore(self._session)
        self._works = Works(discovery, timeout_ms)
        self.kv = Kv(KvCore(self._session))

    def queue(self, name: str) -> Queue:
        """A handle; the queue itself may not exist yet."""
        return Queue(QueueCore(self._session, name, Message), self._works)

    def subscription(self, queue: str, name: str, *, epoch: int | None = None) -> Subscription:
        """A handle; nothing is asked yet. `epoch`: as the holder that opened it with that."""
        return Subscription(SubscriptionCore(self._session, queue, name, epoch))

    def create_queue(self, name: str, **settings: Unpack[QueueSettings]) -> bool:
        """Makes a queue. False if it was there with these settings; with others: QueueExists."""
        return run(self._admin.create_queue(name, settings))

    def update_queue(self, name: str, **changes: Unpack[QueueSettings]) -> None:
        """Changes the named settings; the others stay."""
        run(self._admin.update_queue(name, changes))

    def delete_queue(self, name: str) -> int:
        """Drops a queue with all its messages; says how many."""
        return run(self._admin.delete_queue(name))

    def list_queues(self, prefix: str = "") -> list[QueueStats]:
        return run(self._admin.list_queues(prefix))

    def delete_subscription(self, queue: str, name: str) -> int:
        """Forgets a subscription; what it had reserved goes back to the queue. Says how many."""
        return run(self._admin.delete_subscription(queue, name))

    def list_subscriptions(self, queue: str) -> list[SubscriptionStats]:
        return run(self._admin.list_subscriptions(queue))

    def stage(self, queue: str, app: str, batch: int, partition: int, attempt: int) -> Stage:
        """A place for what one attempt at one partition of a batch has to say: nobody sees it
        before the batch is published with this attempt among the winners."""
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
        """Makes what the winners staged visible, all of it, once; the other attempts are dropped.

        A winner is (partition, attempt), or a stage's own `winner`. It does nothing when this or a
        later batch of the app is published already.
        """
        return run(self._staging.publish(queue, app, batch, winners, timeout_ms))

    def abort(self, queue: str, app: str, batch: int, *, timeout_ms: int | None = None) -> int:
        """Drops the stages of a batch, if it is not published; says how many messages that were."""
        return run(self._staging.abort(queue, app, batch, timeout_ms))

    def last_published(self, queue: str, app: str, *, timeout_ms: int | None = None) -> int | None:
        """The last batch of an app that was published; None when none was."""
        return run(self._staging.last_published(queue, app, timeout_ms))

    def view(self) -> wire.ViewInfo:
        """Who is in the cluster."""
        return run(self._admin.view())

    def status(self) -> wire.StatusInfo:
        """A node's own figures."""
        return run(self._admin.status())

    def close(self) -> None:
        """Flushes its producers, closes its consumers, ends what is under way in any thread."""
        try:
            self._works.close()
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

    `servers` are gRPC addresses, HOST:PORT: a list, or a text with commas; without them
    WEFT_SERVERS counts, then 127.0.0.1:7700. `token` is for nodes that want one (WEFT_TOKEN, or
    WEFT_TOKEN_FILE); `tls` is the PEM file of the authority of their certificates, True for the
    system's own, or a `weft.Tls` (WEFT_TLS, "system" for the system's own). Every call ends within
    `timeout_ms` unless it is given its own.
    """
    check_timeout(timeout_ms)
    limits.check_range("connect_timeout_ms", connect_timeout_ms, 0, limits.DAY_MS)
    discovery = Discovery(parse_servers(servers), Credentials.of(token, tls))
    discovery.find(connect_timeout_ms / 1000)
    return Client(discovery, timeout_ms)

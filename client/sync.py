"""The synchronous client: the same coroutines, run to their end over a blocking link.

Safe to share between threads: each thread that calls has its own connection underneath.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Unpack

from weft import limits
from weft.ids import MessageId
from weft.proto import wire

from .admin import AdminCore, QueueSettings
from .batch import Body, Headers
from .client import CONNECT_MS
from .discovery import Discovery, parse_servers
from .kv import KvCore, Swap
from .link import run
from .link_blocking import BlockingLink
from .message import Message
from .queue import QueueCore
from .router import Router
from .session import TIMEOUT_MS, Session, check_timeout
from .stats import QueueStats


class Kv:
    """ZHT's verbs on the cluster's own hash table."""

    def __init__(self, core: KvCore) -> None:
        self._core = core

    def insert(self, key: str, value: Body, *, timeout_ms: int | None = None) -> None:
        """Sets the key's value, whatever stood there."""
        run(self._core.insert(key, value, timeout_ms=timeout_ms))

    def lookup(self, key: str, *, timeout_ms: int | None = None) -> bytes | None:
        """The key's value; None when there is none."""
        return run(self._core.lookup(key, timeout_ms=timeout_ms))

    def remove(self, key: str, *, timeout_ms: int | None = None) -> bool:
        """Whether there was something to remove."""
        return run(self._core.remove(key, timeout_ms=timeout_ms))

    def append(self, key: str, value: Body, *, timeout_ms: int | None = None) -> int:
        """Adds to the end of the value, without a read; the value's new length."""
        return run(self._core.append(key, value, timeout_ms=timeout_ms))

    def compare_and_swap(
        self, key: str, old: Body | None, new: Body | None, *, timeout_ms: int | None = None
    ) -> Swap:
        """Sets `new` if the value is `old`. None as `old` means absent, as `new` it removes."""
        return run(self._core.compare_and_swap(key, old, new, timeout_ms=timeout_ms))


class Queue:
    """A queue by name. Nothing is asked of the node until a verb is called."""

    def __init__(self, core: QueueCore[Message]) -> None:
        self._core = core

    @property
    def name(self) -> str:
        return self._core.name

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"

    def push(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        key: str | None = None,
        delay_ms: int = 0,
        priority: int = 0,
        dedup_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> MessageId:
        """Stores one message; it is durable when this returns.

        The same `dedup_key` again within the queue's window stores nothing and gives the first id.
        """
        return run(
            self._core.push(
                body,
                headers=headers,
                key=key,
                delay_ms=delay_ms,
                priority=priority,
                dedup_key=dedup_key,
                timeout_ms=timeout_ms,
            )
        )

    def push_many(
        self,
        bodies: Sequence[Body],
        *,
        headers: Sequence[Headers | None] | None = None,
        keys: Sequence[str | None] | None = None,
        delay_ms: int = 0,
        priority: int = 0,
        timeout_ms: int | None = None,
    ) -> list[MessageId]:
        """Stores many messages in few batches; all are durable when this returns.

        An error says how many were stored before it; give `headers` and `keys` one for each body.
        """
        return run(
            self._core.push_many(
                bodies,
                headers=headers,
                keys=keys,
                delay_ms=delay_ms,
                priority=priority,
                timeout_ms=timeout_ms,
            )
        )

    def pop(
        self, *, wait_ms: int = 0, lease_ms: int = 0, timeout_ms: int | None = None
    ) -> Message | None:
        """One message, lent for `lease_ms` (0: as long as the queue says), or None."""
        return run(self._core.pop(wait_ms=wait_ms, lease_ms=lease_ms, timeout_ms=timeout_ms))

    def pop_many(
        self, limit: int, *, wait_ms: int = 0, lease_ms: int = 0, timeout_ms: int | None = None
    ) -> list[Message]:
        """Up to `limit` messages: what is there; if nothing is, what comes first in `wait_ms`."""
        return run(
            self._core.pop_many(limit, wait_ms=wait_ms, lease_ms=lease_ms, timeout_ms=timeout_ms)
        )

    def peek(self, limit: int = 1, *, timeout_ms: int | None = None) -> list[Message]:
        """The next messages, without lending them."""
        return run(self._core.peek(limit, timeout_ms=timeout_ms))

    def ack_many(self, messages: Iterable[Message], *, timeout_ms: int | None = None) -> None:
        """They are done and never come back. Raises LeaseLost if some were lent again already."""
        run(self._core.ack_many(messages, timeout_ms=timeout_ms))

    def nack_many(
        self,
        messages: Iterable[Message],
        *,
        delay_ms: int = 0,
        reason: str = "",
        timeout_ms: int | None = None,
    ) -> None:
        """They failed: they are delivered again after `delay_ms`, or move to the dead letter queue.

        The `reason` is kept with a dead letter.
        """
        run(self._core.nack_many(messages, delay_ms=delay_ms, reason=reason, timeout_ms=timeout_ms))

    def extend_many(
        self, messages: Iterable[Message], lease_ms: int, *, timeout_ms: int | None = None
    ) -> None:
        """Their leases end `lease_ms` from now."""
        run(self._core.extend_many(messages, lease_ms, timeout_ms=timeout_ms))

    def stats(self, *, timeout_ms: int | None = None) -> QueueStats:
        return run(self._core.stats(timeout_ms=timeout_ms))

    def purge(self, *, timeout_ms: int | None = None) -> int:
        """Drops every message, lent ones too; says how many."""
        return run(self._core.purge(timeout_ms=timeout_ms))

    def redrive(self, limit: int = 0, *, timeout_ms: int | None = None) -> int:
        """Sends this queue's dead letters back to where they came from; 0 means all."""
        return run(self._core.redrive(limit, timeout_ms=timeout_ms))


class Client:
    """One client of Weft, for any number of threads. Use it with `with`, or close it."""

    def __init__(self, discovery: Discovery, timeout_ms: int) -> None:
        assert discovery.view is not None, "find first"
        self._link = BlockingLink(discovery)
        self._session = Session(Router(self._link, discovery.view.partitions), timeout_ms)
        self._admin = AdminCore(self._session)
        self.kv = Kv(KvCore(self._session))

    def queue(self, name: str) -> Queue:
        """A handle; the queue itself may not exist yet."""
        return Queue(QueueCore(self._session, name, Message))

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

    def view(self) -> wire.ViewInfo:
        """Who is in the cluster."""
        return run(self._admin.view())

    def status(self) -> wire.StatusInfo:
        """A node's own figures."""
        return run(self._admin.status())

    def close(self) -> None:
        """Ends what is under way, in other threads too. A second close does nothing."""
        self._link.close()

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
    timeout_ms: int = TIMEOUT_MS,
    connect_timeout_ms: int = CONNECT_MS,
) -> Client:
    """Connects to a cluster through any of its nodes.

    `servers` are gRPC addresses, HOST:PORT: a list, or a text with commas; without them
    WEFT_SERVERS counts, then 127.0.0.1:7700. Every call ends within `timeout_ms` unless it is
    given its own.
    """
    check_timeout(timeout_ms)
    limits.check_range("connect_timeout_ms", connect_timeout_ms, 0, limits.DAY_MS)
    discovery = Discovery(parse_servers(servers))
    discovery.find(connect_timeout_ms / 1000)
    return Client(discovery, timeout_ms)

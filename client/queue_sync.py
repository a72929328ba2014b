"""A queue for synchronous callers: the same coroutines, run to their end over a blocking link."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft import limits
from weft.ids import MessageId

from .acks import OnLost
from .batch import Body, Headers
from .consumer_sync import Consumer
from .inbox import ConsumerOptions
from .link import run
from .message import Message
from .outbox import BUFFER_BYTES, ProducerOptions
from .producer_sync import Producer
from .queue import QueueCore
from .stats import QueueStats
from .works import Works


class Queue:
    """A queue by name. Nothing is asked of the node until a verb is called."""

    def __init__(self, core: QueueCore[Message], works: Works) -> None:
        self._core = core
        self._works = works

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
        return self._works.producer(self.name, options)

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
        return self._works.consumer(self._core, options)

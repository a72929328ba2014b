"""A queue for synchronous callers.

`make facade` generates this module from `client/async_queue.py`, `client/queue_core.py`,
`client/producer/push.py`, `client/consumer/pop.py` and `client/consumer/ack.py`: do not edit it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weft import limits
from weft.ids import MessageId

from . import arguments
from .background_workers import BackgroundWorkers
from .consumer.ack_batcher import OnLost
from .consumer.prefetcher import ConsumerOptions
from .consumer.sync_consumer import Consumer
from .consumer.sync_message import Message
from .producer.accumulator import BUFFER_BYTES, ProducerOptions
from .producer.batch import Body, Headers
from .producer.sync_producer import Producer
from .queue_core import QueueCore
from .reply_queue import CallAnswer, CallArguments
from .routing.session import ClientSession
from .stats import QueueStats
from .transport.blocking_link import run
from .worker.loop import WorkOptions
from .worker.retry_policy import RETRY, Retry
from .worker.sync_worker import Worker
from .worker.worker_stats import WorkerStats


class Queue:
    """A handle for a queue, by name. The constructor sends no request; each method does."""

    def __init__(self, session: ClientSession, name: str, open_: BackgroundWorkers) -> None:
        self._core = QueueCore(session, name, Message)
        self._open = open_

    @property
    def name(self) -> str:
        return self._core.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._core.name}>"

    def stats(self, *, timeout_ms: int | None = None) -> QueueStats:
        """Returns settings and message counts of the queue. Raises QueueNotFound."""
        return run(self._core.stats(timeout_ms=timeout_ms))

    def cancel(self, message_id: MessageId | str, *, timeout_ms: int | None = None) -> bool:
        """Removes a ready or delayed message, so that it is never delivered.

            later = orders.push(b"reminder", delay_ms=3_600_000)
            orders.cancel(later)

        Returns True if this call removed the message; False if the queue has no such message
        (acked, dropped or cancelled before, or in another queue). The client repeats a cancel
        without an answer: if the lost attempt removed the message, the result is False. Raises
        MessageLeased if a consumer or a subscription holds the message, and Unavailable if an
        earlier attempt may still remove it: call again then. A `dedup_key` of the message stays in
        the queue's window. Each cancel searches the queue's batches on one partition.
        """
        return run(self._core.cancel(message_id, timeout_ms=timeout_ms))

    def purge(self, *, timeout_ms: int | None = None) -> int:
        """Deletes every message, leased ones too; returns their number. Raises QueueNotFound."""
        return run(self._core.purge(timeout_ms=timeout_ms))

    def redrive(self, limit: int = 0, *, timeout_ms: int | None = None) -> int:
        """Moves up to `limit` dead letters (0: all) to their original queues; returns a count.

            moved = client.queue("orders.dead").redrive(100)

        Raises InvalidArgument and QueueNotFound.
        """
        return run(self._core.redrive(limit, timeout_ms=timeout_ms))

    def push(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        key: str | None = None,
        delay_ms: int = 0,
        priority: int = 0,
        dedup_key: str | None = None,
        group: str | None = None,
        tenant: str | None = None,
        timeout_ms: int | None = None,
    ) -> MessageId:
        """Stores one message, durably when the call returns.

            message_id = orders.push(b"one")

        The same `dedup_key` again within the queue's window stores nothing and returns the first
        id. `delay_ms` is in milliseconds. A push to a grouped queue names its `group`: messages of
        one group are delivered in order (docs/how-to/order-per-key.md). Consumers get the messages
        of each `tenant` in fair turns (docs/how-to/share-the-cluster.md). Raises InvalidArgument
        and TooLarge for bad arguments, QueueNotFound, QueueFull, and Unavailable if no node answers
        in time.
        """
        return run(
            self._core.push(
                body,
                headers=headers,
                key=key,
                delay_ms=delay_ms,
                priority=priority,
                dedup_key=dedup_key,
                group=group,
                tenant=tenant,
                timeout_ms=timeout_ms,
            )
        )

    def push_many(
        self,
        bodies: Iterable[Body],
        *,
        headers: Iterable[Headers | None] | None = None,
        keys: Iterable[str | None] | None = None,
        dedup_keys: Iterable[str | None] | None = None,
        groups: Iterable[str] | None = None,
        tenants: Iterable[str] | None = None,
        delay_ms: int = 0,
        priority: int = 0,
        timeout_ms: int | None = None,
    ) -> list[MessageId]:
        """Stores the messages of any iterable in few batches, durably when the call returns.

            ids = orders.push_many([b"two", b"three"])
            ids = orders.push_many(line.encode() for line in file)

        `headers`, `keys` and `dedup_keys` have one entry, or None, for each body. A message with a
        dedup key is pushed as a batch of its own, with 16 in flight at a time; the ids of a
        repeated key are those of its first push. For a grouped queue, `groups` has the group of
        each body: the messages of a group keep their order, and 16 groups are in flight at a time.
        `tenants` has the tenant of each body; the messages of each tenant are batches of their own.

        A collection (list, tuple, set) is checked before anything is sent. Any other iterable is
        read in chunks of at most 16,384 messages or 16 MiB while it is pushed; `timeout_ms` then
        applies to each chunk.

        An error states how many messages were stored before: a WeftError in its message, an
        exception of the iterable itself in a note (`__notes__`). Raises InvalidArgument and
        TooLarge for bad arguments, QueueNotFound, QueueFull, and Unavailable.
        """
        arguments.check_iterable("bodies", bodies, "bytes")
        return run(
            self._core.push_many(
                bodies,
                headers=headers,
                keys=keys,
                dedup_keys=dedup_keys,
                groups=groups,
                tenants=tenants,
                delay_ms=delay_ms,
                priority=priority,
                timeout_ms=timeout_ms,
            )
        )

    def pop(
        self, *, wait_ms: int = 0, lease_ms: int = 0, timeout_ms: int | None = None
    ) -> Message | None:
        """Pops one message, leased for `lease_ms` milliseconds (0: the queue's own lease_ms).

            message = orders.pop(wait_ms=1000)

        Returns None if no message came within `wait_ms` milliseconds. Raises like `pop_many`.
        """
        return run(self._core.pop(wait_ms=wait_ms, lease_ms=lease_ms, timeout_ms=timeout_ms))

    def pop_many(
        self, limit: int, *, wait_ms: int = 0, lease_ms: int = 0, timeout_ms: int | None = None
    ) -> list[Message]:
        """Pops up to `limit` messages, leased for `lease_ms` milliseconds (0: as the queue says).

            messages = orders.pop_many(100, wait_ms=1000)

        The call returns as soon as there is any message, and may return fewer than `limit`: the
        ready messages of one node (a cluster has several), 8 MiB at most, one lot of an ordered
        queue. If no message is ready, the call waits up to `wait_ms` milliseconds for the first
        message; an empty list means that none came. To get more, call again. Raises InvalidArgument
        for bad arguments, QueueNotFound, and Unavailable if no node answers in time.
        """
        return run(
            self._core.pop_many(limit, wait_ms=wait_ms, lease_ms=lease_ms, timeout_ms=timeout_ms)
        )

    def peek(
        self, limit: int = 1, *, delayed: bool = False, timeout_ms: int | None = None
    ) -> list[Message]:
        """Returns the next messages without a lease.

            waiting = orders.peek(10)

        `delayed`: returns messages that are not due yet instead, earliest due first. The result may
        have fewer messages than the queue: 8 MiB at most. Raises InvalidArgument and QueueNotFound.
        """
        return run(self._core.peek(limit, delayed=delayed, timeout_ms=timeout_ms))

    def ack_many(self, messages: Iterable[Message], *, timeout_ms: int | None = None) -> None:
        """Acknowledges the messages: done, never delivered again, durably when the call returns.

            orders.ack_many(messages)

        Raises LeaseLost if some leases have ended: those messages are delivered again, the others
        are acknowledged. Raises AlreadySettled if this client acked or nacked a message before.
        """
        run(self._core.ack_many(messages, timeout_ms=timeout_ms))

    def nack_many(
        self,
        messages: Iterable[Message],
        *,
        delay_ms: int = 0,
        reason: str = "",
        final: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Reports failures: the messages are delivered again after `delay_ms` milliseconds.

            orders.nack_many(messages, delay_ms=5_000, reason="no connection")

        Instead, messages move to the dead-letter queue after the queue's `max_deliveries`, or at
        once if this failure is `final` and the queue has a dead-letter queue. A dead letter keeps
        the `reason`. An ordered queue delivers a nacked message next; there `delay_ms` raises
        InvalidArgument. Raises LeaseLost if some leases have ended, and AlreadySettled.
        """
        run(
            self._core.nack_many(
                messages, delay_ms=delay_ms, reason=reason, final=final, timeout_ms=timeout_ms
            )
        )

    def extend_many(
        self, messages: Iterable[Message], lease_ms: int, *, timeout_ms: int | None = None
    ) -> None:
        """Extends the leases to `lease_ms` milliseconds from now.

            orders.extend_many(messages, 60_000)

        Raises LeaseLost if some leases have ended; the other leases are extended.
        """
        run(self._core.extend_many(messages, lease_ms, timeout_ms=timeout_ms))

    def call(
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

            answer = orders.call(b"question", timeout_ms=1000)

        A consumer of the queue answers with `message.reply`. Raises CallTimedOut (the question may
        still be answered; a late answer is dropped), ReplyQueueLost, and the errors of `push`. More
        in docs/how-to/request-and-reply.md.
        """
        question = CallArguments(body, headers, key, priority, group, timeout_ms)
        return self._open.call(self._core, question)

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
        """Opens a producer, which pushes batches in the background: for many messages.

            with orders.producer(linger_ms=5) as producer:
                producer.send(b"one")

        A batch leaves when it has `batch_count` messages or `batch_bytes` bytes, or after
        `linger_ms` milliseconds; up to `in_flight` batches are in flight. Sending waits while more
        than `buffer_bytes` bytes are not stored yet. Raises InvalidArgument for a value out of
        range.
        """
        options = ProducerOptions(
            linger_ms, batch_count, batch_bytes, in_flight, buffer_bytes, timeout_ms
        )
        return self._open.producer(self._core, options)

    def consume(
        self,
        *,
        prefetch: int = 1000,
        batch: int = 500,
        wait_ms: int = 5000,
        lease_ms: int = 0,
        ack_linger_ms: float = 10,
        stop_when_empty: bool = False,
        idle_ms: int | None = None,
        renew_for_ms: int = 3600 * limits.SECOND_MS,
        on_lost: OnLost | None = None,
    ) -> Consumer:
        """Opens a consumer, which iterates over the queue's messages without end by default.

            with orders.consume(prefetch=100) as consumer:
                for message in consumer:
                    message.ack()

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
            prefetch,
            batch,
            wait_ms,
            lease_ms,
            ack_linger_ms,
            0 if stop_when_empty else idle_ms,
            renew_for_ms,
            on_lost,
        )
        return self._open.consumer(self._core, options)

    def work(
        self,
        handler: Callable[[Message], object],
        *,
        concurrency: int = 8,
        retry: Retry = RETRY,
        time_limit_s: float | None = None,
        on_error: Callable[[Message, BaseException], object] | None = None,
        prefetch: int | None = None,
        lease_ms: int = 0,
        idle_ms: int | None = None,
        drain_s: float = 30,
    ) -> WorkerStats:
        """Runs `handler` for each message until stopped; returns statistics of the run.

            orders.work(handle, concurrency=8, retry=weft.Retry(attempts=5))

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
            handler,
            concurrency=concurrency,
            retry=retry,
            time_limit_s=time_limit_s,
            on_error=on_error,
            prefetch=prefetch,
            lease_ms=lease_ms,
            idle_ms=idle_ms,
            drain_s=drain_s,
        )
        return worker.run()

    def worker(
        self,
        handler: Callable[[Message], object],
        *,
        concurrency: int = 8,
        retry: Retry = RETRY,
        time_limit_s: float | None = None,
        on_error: Callable[[Message, BaseException], object] | None = None,
        prefetch: int | None = None,
        lease_ms: int = 0,
        idle_ms: int | None = None,
        drain_s: float = 30,
    ) -> Worker:
        """Like `work`, as an object with `run`, `stop` and `stats`, to stop by other means.

            worker = orders.worker(handle, concurrency=8)
            stats = worker.run()

        Raises InvalidArgument for a value out of range.
        """
        arguments.check_function("handler", handler)
        options = WorkOptions(
            concurrency, retry, time_limit_s, on_error, prefetch, lease_ms, idle_ms, drain_s
        )
        return self._open.worker(self._core, handler, options)

"""A queue from the client's side: every operation once, as a coroutine over any link.

The asyncio client uses this class directly; the synchronous client runs the same coroutines over a
blocking link. The two differ in the message class that a pop creates.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from itertools import chain
from typing import Generic

from weft import limits
from weft.ids import MessageId
from weft.proto import wire

from . import arguments, tracing
from .consumer import ack, pop
from .consumer import lease as leases
from .consumer.ack import Make
from .consumer.lease import Claim, LeasedBatch, Settler
from .consumer.message import M, unpack
from .producer import push
from .producer.batch import (
    Body,
    Columns,
    Headers,
    check_body,
    check_dedup_key,
    check_one,
)
from .producer.body_source import BodySource
from .routing import retry
from .routing.router import ANY
from .routing.session import ClientSession
from .stats import QueueStats


class QueueCore(Generic[M]):
    def __init__(self, session: ClientSession, name: str, make: type[M]) -> None:
        arguments.check_queue_name("name", name)
        self.name = name
        self._session = session
        self._make = make

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def breaks(self) -> int:
        """Increases with every lost connection: leases may be void."""
        return self._session.router.breaks

    @property
    def quiet(self) -> bool:
        """True if no abandoned call can still hold a lease."""
        return self._session.router.quiet

    # --- push ---

    async def push(
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
        """Stores one message, durably when the call returns.

            message_id = await orders.push(b"one")

        The same `dedup_key` again within the queue's window stores nothing and returns the first
        id. `delay_ms` is in milliseconds. Raises InvalidArgument and TooLarge for bad arguments,
        QueueNotFound, QueueFull, and Unavailable if no node answers in time.
        """
        plain = headers is None and key is None and dedup_key is None
        if plain and delay_ms == 0 == priority and type(body) is bytes and not tracing.on():
            if len(body) > limits.BODY_BYTES_MAX:
                check_body(body)
            deadline = self._session.deadline(timeout_ms)
            return await push.push_plain(self._session, self.name, body, deadline)
        arguments.check_push_options(delay_ms, priority)
        if dedup_key is not None:
            check_dedup_key(dedup_key)
        columns = Columns([check_body(body)], *check_one(headers, key))
        with tracing.pushing(self.name, columns) as traced:
            return await push.push_one(
                self._session,
                self.name,
                traced,
                delay_ms=delay_ms,
                priority=priority,
                dedup_key=dedup_key,
                deadline=self._session.deadline(timeout_ms),
            )

    async def push_many(
        self,
        bodies: Iterable[Body] | AsyncIterable[Body],
        *,
        headers: Iterable[Headers | None] | None = None,
        keys: Iterable[str | None] | None = None,
        dedup_keys: Iterable[str | None] | None = None,
        delay_ms: int = 0,
        priority: int = 0,
        timeout_ms: int | None = None,
    ) -> list[MessageId]:
        """Stores the messages of any iterable in few batches, durably when the call returns.

            ids = await orders.push_many([b"two", b"three"])
            ids = await orders.push_many(line.encode() for line in file)

        `headers`, `keys` and `dedup_keys` have one entry, or None, for each body. A message with a
        dedup key is pushed as a batch of its own, with 16 in flight at a time; the ids of a
        repeated key are those of its first push.

        A collection (list, tuple, set) is checked before anything is sent. Any other iterable, also
        an async one, is read in chunks of at most 16,384 messages or 16 MiB while it is pushed, so
        it may be larger than memory; `timeout_ms` then applies to each chunk.

        An error states how many messages were stored before: a WeftError in its message, an
        exception of the iterable itself in a note (`__notes__`). Earlier chunks are stored;
        messages read after them are not. Raises InvalidArgument and TooLarge for bad arguments,
        QueueNotFound, QueueFull, and Unavailable if no node answers in time.
        """
        arguments.check_push_options(delay_ms, priority)
        source = BodySource(bodies, headers, keys, dedup_keys)
        return await push.push_source(
            self._session,
            self.name,
            source,
            delay_ms=delay_ms,
            priority=priority,
            timeout_ms=timeout_ms,
        )

    # --- pop ---

    async def pop(
        self, *, wait_ms: int = 0, lease_ms: int = 0, timeout_ms: int | None = None
    ) -> M | None:
        """Pops one message, leased for `lease_ms` milliseconds (0: the queue's own lease_ms).

            message = await orders.pop(wait_ms=1000)

        Returns None if no message came within `wait_ms` milliseconds. Raises like `pop_many`.
        """
        batch = await self.pop_many(1, wait_ms=wait_ms, lease_ms=lease_ms, timeout_ms=timeout_ms)
        return batch[0] if batch else None

    async def pop_many(
        self,
        limit: int,
        *,
        wait_ms: int = 0,
        lease_ms: int = 0,
        timeout_ms: int | None = None,
    ) -> list[M]:
        """Pops up to `limit` messages, leased for `lease_ms` milliseconds (0: the queue's own
        lease_ms).

            messages = await orders.pop_many(100, wait_ms=1000)

        The call returns as soon as there is any message, and may return fewer than `limit`: the
        ready messages of one node (a cluster has several), 8 MiB at most, one lot of an ordered
        queue. If no message is ready, the call waits up to `wait_ms` milliseconds for the first
        message; an empty list means that none came. To get more, call again. Raises InvalidArgument
        for bad arguments, QueueNotFound, and Unavailable if no node answers in time.
        """
        groups = await self.pop_groups(limit, wait_ms, lease_ms, timeout_ms, self)
        if len(groups) == 1:
            return groups[0]
        leases = [group[0]._lease for group in groups]
        return LeasedBatch(chain.from_iterable(groups), leases)

    async def pop_groups(
        self,
        limit: int,
        wait_ms: int,
        lease_ms: int,
        timeout_ms: int | None,
        owner: Settler,
        *,
        prefetch: bool = False,
        handed: bool = False,
    ) -> list[list[M]]:
        """Like pop_many, with one list per lease; `owner` takes the acks and nacks of the messages.

        With `prefetch` no delivery counts before `hand_out` has recorded it; with `handed` only
        messages that must be handed out alone are recorded that way.
        """
        arguments.check_integer("limit", limit, 1, limits.POP_COUNT_MAX)
        arguments.check_integer("wait_ms", wait_ms, 0, limits.DAY_MS)
        arguments.check_lease_ms(lease_ms)
        session = self._session
        lent, frames = await pop.pop(
            session.router,
            session.trails.of(self.name),
            wire.Pop(self.name, limit, 0, lease_ms, False, prefetch, handed),
            wait_ms,
            session.deadline(timeout_ms, wait_ms),
        )
        groups = unpack(self._make, self.name, lent, frames, owner)
        if groups:
            tracing.delivered(group[0]._lease for group in groups)
        return groups

    async def peek(
        self, limit: int = 1, *, delayed: bool = False, timeout_ms: int | None = None
    ) -> list[M]:
        """Returns the next messages without a lease.

        `delayed`: returns messages that are not due yet instead, earliest due first. The result may
        have fewer messages than the queue: 8 MiB at most.
        """
        arguments.check_integer("limit", limit, 1, limits.POP_COUNT_MAX)
        deadline = self._session.deadline(timeout_ms)
        arguments.check_flag("delayed", delayed)
        request = wire.Peek(self.name, limit, delayed)
        answer, frames = await retry.ask(self._session.router, ANY, request, wire.Peeked, deadline)
        groups = unpack(self._make, self.name, answer.lent, frames, self)
        return [message for group in groups for message in group]

    # --- settle ---

    async def ack_many(self, messages: Iterable[M], *, timeout_ms: int | None = None) -> None:
        """Acknowledges the messages: done. Raises LeaseLost if some are already leased again."""
        claims = leases.claims(self.name, messages)
        await self.settle(claims, lambda receipts: wire.Ack(self.name, receipts), timeout_ms)

    async def confirm_acks(self, messages: Iterable[M]) -> None:
        """Acks the messages: the ack of a popped message is always confirmed."""
        await self.ack_many(messages)

    async def nack_many(
        self,
        messages: Iterable[M],
        *,
        delay_ms: int = 0,
        reason: str = "",
        final: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Reports failures: the messages are delivered again after `delay_ms` milliseconds.

        Instead, messages move to the dead-letter queue after the queue's `max_deliveries`, or at
        once if this failure is `final` and the queue has a dead-letter queue. A dead letter keeps
        the `reason`. An ordered queue has no delays: there `delay_ms` raises InvalidArgument, and a
        nacked message is delivered next, before all later messages. So it blocks the queue until it
        is acked or moves to the dead-letter queue. Raises LeaseLost if some leases have ended, and
        AlreadySettled.
        """
        arguments.check_integer("delay_ms", delay_ms, 0, limits.DELAY_MS_MAX)
        arguments.check_text("reason", reason, 0, limits.REASON_BYTES_MAX)
        arguments.check_flag("final", final)
        claims = leases.claims(self.name, messages)
        await self.settle(
            claims,
            lambda receipts: wire.Nack(self.name, receipts, delay_ms, reason, final=final),
            timeout_ms,
        )

    async def extend_many(
        self, messages: Iterable[M], lease_ms: int, *, timeout_ms: int | None = None
    ) -> None:
        """Extends the leases to `lease_ms` milliseconds from now. Raises LeaseLost."""
        arguments.check_integer("lease_ms", lease_ms, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
        claims = leases.claims(self.name, messages)
        lost = await self.send_claims(
            claims, lambda receipts: wire.Extend(self.name, receipts, lease_ms), timeout_ms
        )
        if lost:
            raise leases.lost_error(lost)

    async def ack_claims(self, claims: list[Claim]) -> None:
        """Acks claims that are already marked as settled."""
        lost = await self.send_claims(claims, lambda r: wire.Ack(self.name, r), None)
        if lost:
            raise leases.lost_error(lost)

    async def hand_out(self, claims: list[Claim], lease_ms: int) -> list[Claim]:
        """Records that the application gets the messages now, and renews their leases.

        Returns the claims with a lost lease; their messages must not reach the application.
        """
        return await self.send_claims(
            claims, lambda receipts: wire.Extend(self.name, receipts, lease_ms, True), None
        )

    async def give_back(self, claims: list[Claim]) -> None:
        """Returns unused messages: other consumers may get them, and no delivery is counted."""
        leases.close(claims)
        await self.send_claims(
            claims, lambda receipts: wire.Nack(self.name, receipts, counted=False), None
        )

    async def settle(
        self,
        claims: list[Claim],
        make: Make,
        timeout_ms: int | None,
    ) -> None:
        lost = await self.send_claims(claims, make, timeout_ms)
        leases.close(claims)
        if lost:
            raise leases.lost_error(lost)

    async def send_claims(
        self,
        claims: list[Claim],
        make: Make,
        timeout_ms: int | None,
    ) -> list[Claim]:
        """Sends the claims to the nodes and returns the claims with a lost lease."""
        deadline = self._session.deadline(timeout_ms)
        lost = await ack.settle(self._session.router, claims, make, deadline)
        if any(claim.lease.deliveries is not None for claim in claims):
            tracing.settled(claims, lost, make([]))
        return lost

    # --- the queue itself ---

    async def stats(self, *, timeout_ms: int | None = None) -> QueueStats:
        request = wire.DescribeQueue(self.name)
        answer = await self._session.ask(ANY, request, wire.Queues, timeout_ms)
        return QueueStats.of(answer.queues[0])

    async def cancel(self, message_id: MessageId | str, *, timeout_ms: int | None = None) -> bool:
        """Removes a ready or delayed message, so that it is never delivered.

            later = await orders.push(b"reminder", delay_ms=3_600_000)
            await orders.cancel(later)

        Returns True if this call removed the message; False if the queue has no such message
        (acked, dropped or cancelled before, or in another queue). In both cases the queue does not
        deliver the message any more. The client repeats a cancel without an answer: if the lost
        attempt removed the message, the result is False. Raises MessageLeased if a consumer or a
        subscription holds the message, and Unavailable if that is so but an earlier attempt may
        still remove the message: call again then. A `dedup_key` of the message stays in the queue's
        window. The node searches the queue's batches on one partition, so do not cancel many
        messages one by one in a queue of millions.
        """
        name = arguments.as_message_id("message_id", message_id)
        request = wire.Cancel(self.name, name.partition, name.producer, name.batch, name.index)
        partitions = self._session.router.partitions
        if name.partition >= partitions:
            return False  # the id is not from this cluster
        answer = await self._session.ask(name.partition, request, wire.Done, timeout_ms)
        return answer.count > 0

    async def purge(self, *, timeout_ms: int | None = None) -> int:
        """Deletes every message, leased ones too; returns the number of messages."""
        request = wire.PurgeQueue(self.name)
        return (await self._session.ask(ANY, request, wire.Done, timeout_ms)).count

    async def redrive(self, limit: int = 0, *, timeout_ms: int | None = None) -> int:
        """Moves up to `limit` dead letters (0: all) to their original queues; returns a count."""
        arguments.check_integer("limit", limit, 0, limits.NUMBER_MAX)
        request = wire.Redrive(self.name, limit)
        return (await self._session.ask(ANY, request, wire.Done, timeout_ms)).count

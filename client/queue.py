"""A queue as the client sees it: every verb once, as a coroutine over any link.

The asyncio client uses this class as it is; the synchronous one runs the same coroutines over a
blocking link. The two differ in the class of message that a pop makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Generic

from weft import limits
from weft.errors import InvalidArgument
from weft.ids import MessageId
from weft.proto import wire

from . import lease as leases
from . import popping, pushing, retry, settling, tracing
from .batch import (
    Body,
    Columns,
    Headers,
    check_bodies,
    check_body,
    check_dedup_key,
    check_headers,
    check_keys,
    text_bytes,
)
from .lease import Claim, Settler, Taken
from .message import M, unpack
from .router import ANY
from .session import Session
from .settling import Make
from .stats import QueueStats


class QueueCore(Generic[M]):
    def __init__(self, session: Session, name: str, make: type[M]) -> None:
        limits.check_queue_name(name)
        self.name = name
        self._session = session
        self._make = make

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def breaks(self) -> int:
        """Grows when a connection was lost: leases may be void."""
        return self._session.router.breaks

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
        """Stores one message; it is durable when this returns.

        The same `dedup_key` again within the queue's window stores nothing and gives the first id.
        """
        plain = headers is None and key is None and dedup_key is None
        if plain and delay_ms == 0 == priority and type(body) is bytes and not tracing.on():
            if len(body) > limits.BODY_BYTES_MAX:
                check_body(body)
            deadline = self._session.deadline(timeout_ms)
            return await pushing.push_plain(self._session, self.name, body, deadline)
        pushing.check_options(delay_ms, priority)
        if dedup_key is not None:
            check_dedup_key(dedup_key)
        columns = Columns(
            [check_body(body)],
            check_headers([headers], 1) if headers else None,
            check_keys([key], 1) if key is not None else None,
        )
        with tracing.pushing(self.name, columns) as traced:
            return await pushing.push_one(
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
        pushing.check_options(delay_ms, priority)
        column = check_bodies(bodies)
        columns = Columns(
            column, check_headers(headers, len(column)), check_keys(keys, len(column))
        )
        with tracing.pushing(self.name, columns) as traced:
            return await pushing.push_columns(
                self._session,
                self.name,
                traced,
                delay_ms=delay_ms,
                priority=priority,
                deadline=self._session.deadline(timeout_ms),
            )

    # --- pop ---

    async def pop(
        self, *, wait_ms: int = 0, lease_ms: int = 0, timeout_ms: int | None = None
    ) -> M | None:
        """One message, lent for `lease_ms` (0: as long as the queue says), or None."""
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
        """Up to `limit` messages: what is there; if nothing is, what comes first in `wait_ms`."""
        groups = await self.pop_groups(limit, wait_ms, lease_ms, timeout_ms, self)
        if len(groups) == 1:
            return groups[0]
        leases = [group[0]._lease for group in groups]
        return Taken(chain.from_iterable(groups), leases)

    async def pop_groups(
        self, limit: int, wait_ms: int, lease_ms: int, timeout_ms: int | None, owner: Settler
    ) -> list[list[M]]:
        """As pop_many, a list for each lease; `owner` takes what becomes of the messages."""
        limits.check_range("limit", limit, 1, limits.POP_COUNT_MAX)
        limits.check_range("wait_ms", wait_ms, 0, limits.DAY_MS)
        if lease_ms:
            limits.check_range("lease_ms", lease_ms, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
        session = self._session
        lent, frames = await popping.pop(
            session.router,
            session.trails.of(self.name),
            wire.Pop(self.name, limit, 0, lease_ms),
            wait_ms,
            session.deadline(timeout_ms, wait_ms),
        )
        groups = unpack(self._make, self.name, lent, frames, owner)
        if groups:
            tracing.delivered(group[0]._lease for group in groups)
        return groups

    async def peek(self, limit: int = 1, *, timeout_ms: int | None = None) -> list[M]:
        """The next messages, without lending them."""
        limits.check_range("limit", limit, 1, limits.POP_COUNT_MAX)
        deadline = self._session.deadline(timeout_ms)
        request = wire.Peek(self.name, limit)
        answer, frames = await retry.ask(self._session.router, ANY, request, wire.Peeked, deadline)
        groups = unpack(self._make, self.name, answer.lent, frames, self)
        return [message for group in groups for message in group]

    # --- settle ---

    async def ack_many(self, messages: Iterable[M], *, timeout_ms: int | None = None) -> None:
        """They are done and never come back. Raises LeaseLost if some were lent again already."""
        claims = leases.claims(self.name, messages)
        await self.settle(claims, lambda receipts: wire.Ack(self.name, receipts), timeout_ms)

    async def nack_many(
        self,
        messages: Iterable[M],
        *,
        delay_ms: int = 0,
        reason: str = "",
        timeout_ms: int | None = None,
    ) -> None:
        """They failed: they are delivered again after `delay_ms`, or move to the dead letter queue.

        The `reason` is kept with a dead letter.
        """
        limits.check_range("delay_ms", delay_ms, 0, limits.DELAY_MS_MAX)
        limits.check_range("bytes of reason", text_bytes(reason), 0, limits.REASON_BYTES_MAX)
        claims = leases.claims(self.name, messages)
        await self.settle(
            claims, lambda receipts: wire.Nack(self.name, receipts, delay_ms, reason), timeout_ms
        )

    async def extend_many(
        self, messages: Iterable[M], lease_ms: int, *, timeout_ms: int | None = None
    ) -> None:
        """Their leases end `lease_ms` from now."""
        limits.check_range("lease_ms", lease_ms, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
        claims = leases.claims(self.name, messages)
        lost = await self.send_claims(
            claims, lambda receipts: wire.Extend(self.name, receipts, lease_ms), timeout_ms
        )
        if lost:
            raise leases.lost_error(lost)

    async def ack_claims(self, claims: list[Claim]) -> None:
        """Acks what is marked as settled already."""
        lost = await self.send_claims(claims, lambda r: wire.Ack(self.name, r), None)
        if lost:
            raise leases.lost_error(lost)

    async def give_back(self, claims: list[Claim]) -> None:
        """They were not looked at: others may have them, and no delivery is counted."""
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
        """Tells the nodes; gives back those whose lease is lost."""
        deadline = self._session.deadline(timeout_ms)
        lost = await settling.settle(self._session.router, claims, make, deadline)
        if any(claim.lease.deliveries is not None for claim in claims):
            tracing.settled(claims, lost, make([]))
        return lost

    # --- the queue itself ---

    async def stats(self, *, timeout_ms: int | None = None) -> QueueStats:
        request = wire.DescribeQueue(self.name)
        answer = await self._session.ask(ANY, request, wire.Queues, timeout_ms)
        return QueueStats.of(answer.queues[0])

    async def purge(self, *, timeout_ms: int | None = None) -> int:
        """Drops every message, lent ones too; says how many."""
        request = wire.PurgeQueue(self.name)
        return (await self._session.ask(ANY, request, wire.Done, timeout_ms)).count

    async def redrive(self, limit: int = 0, *, timeout_ms: int | None = None) -> int:
        """Sends this queue's dead letters back to where they came from; 0 means all."""
        if limit < 0:
            raise InvalidArgument(f"limit must be 0 (all) or more, not {limit}")
        request = wire.Redrive(self.name, limit)
        return (await self._session.ask(ANY, request, wire.Done, timeout_ms)).count

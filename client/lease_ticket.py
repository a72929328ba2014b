"""Leases named outside of the process that popped the messages.

A supervisor renews the leases of its children and returns the messages of a child that died. A
ticket is the node's description of one lease; the holder needs neither the messages nor the
connection on which they were popped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from weft import limits
from weft.errors import InvalidArgument, WeftError
from weft.proto import wire

from .consumer.lease import Claim, ClientLease, LeasedBatch, claims
from .consumer.message import BaseMessage, M
from .producer.batch import Body, Headers
from .queue_core import QueueCore
from .routing.session import ClientSession

#: Shortest timeout of a renewal: a client waits less for a silent node before it asks others.
RENEW_MS_MIN: Final = 2_000


class LeaseTicket(msgspec.Struct, frozen=True, array_like=True):
    """One lease: hashable by its nonce."""

    queue: str
    lent: wire.Lent

    @property
    def nonce(self) -> int:
        return self.lent.nonce

    @property
    def lease_ms(self) -> int:
        return self.lent.lease_ms

    def claim(self, indexes: Sequence[int] | None = None) -> Claim:
        lent = self.lent
        every = range(lent.first, lent.first + lent.count)
        lease = ClientLease(self.queue, lent, None, None, _NOBODY)
        return Claim(lease, every if indexes is None else indexes)


class _Nobody:
    """The owner of a lease without messages."""

    async def ack_many(self, messages: Sequence[object]) -> None:
        raise InvalidArgument("a ticket has no messages")

    async def confirm_acks(self, messages: Sequence[object]) -> None:
        await self.ack_many(messages)

    async def nack_many(
        self,
        messages: Sequence[object],
        *,
        delay_ms: int = 0,
        reason: str = "",
        final: bool = False,
    ) -> None:
        await self.ack_many(messages)

    async def extend_many(self, messages: Sequence[object], lease_ms: int) -> None:
        await self.ack_many(messages)

    async def push_reply(
        self,
        message: object,
        body: Body,
        headers: Headers | None,
        ack: bool,
        timeout_ms: int | None,
    ) -> None:
        await self.ack_many([message])


_NOBODY = _Nobody()


def tickets(messages: Iterable[BaseMessage]) -> list[LeaseTicket]:
    """The leases of some messages, each once."""
    whole = messages.whole() if isinstance(messages, LeasedBatch) else ()
    leases = whole or dict.fromkeys(message._lease for message in messages)
    return [LeaseTicket(lease.queue, lease.lent) for lease in leases]


def nonce_of(message: BaseMessage) -> int:
    """The number of the message's lease."""
    return message._lease.lent.nonce


class TicketDesk:
    """Renews and returns leases by their tickets. All methods report lost leases."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def renew(self, held: Sequence[LeaseTicket]) -> list[LeaseTicket]:
        """Extends the leases by their own duration; returns those that are lost.

        One call goes to all nodes at once. If a partition has no primary, the call fails after a
        third of the duration, and the next call renews the others in time. Longer waits would end
        leases that each call could have extended. For the same reason a failure is raised after the
        calls for all queues.
        """
        lost: list[LeaseTicket] = []
        failure: WeftError | None = None
        by_kind: dict[tuple[str, int], list[LeaseTicket]] = {}
        for ticket in held:
            by_kind.setdefault((ticket.queue, ticket.lease_ms), []).append(ticket)
        for (queue, lease_ms), some in by_kind.items():
            try:
                found = await self._core(queue).send_claims(
                    [ticket.claim() for ticket in some],
                    lambda receipts, q=queue, ms=lease_ms: wire.Extend(q, receipts, ms),  # type: ignore[misc]
                    max(RENEW_MS_MIN, lease_ms // 3),
                )
            except WeftError as error:
                failure = error
                continue
            gone = {claim.lease.lent.nonce for claim in found}
            lost += [ticket for ticket in some if ticket.nonce in gone]
        if failure is not None:
            raise failure
        return lost

    async def nack(
        self, ticket: LeaseTicket, indexes: Sequence[int], delay_ms: int, reason: str
    ) -> bool:
        """Returns messages as failed deliveries; False if their lease is lost."""
        reason = reason.encode()[: limits.REASON_BYTES_MAX].decode(errors="ignore")
        lost = await self._core(ticket.queue).send_claims(
            [ticket.claim(indexes)],
            lambda receipts: wire.Nack(ticket.queue, receipts, delay_ms, reason),
            None,
        )
        return not lost

    async def give_back(self, ticket: LeaseTicket, but: Collection[int] = ()) -> None:
        """Returns the messages of a lease uncounted, except the messages `but`. Messages that were
        acked or nacked before stay so."""
        lent = ticket.lent
        left = [index for index in range(lent.first, lent.first + lent.count) if index not in but]
        if left:
            await self._core(ticket.queue).send_claims(
                [ticket.claim(left)],
                lambda receipts: wire.Nack(ticket.queue, receipts, counted=False),
                None,
            )

    def _core(self, queue: str) -> QueueCore[BaseMessage]:
        return QueueCore(self._session, queue, BaseMessage)


async def give_back(queue: QueueCore[M], messages: Sequence[M], delay_ms: int = 0) -> None:
    """Returns messages uncounted, to be delivered again after `delay_ms` milliseconds."""
    by_lease: dict[ClientLease, list[int]] = {}
    for message in messages:
        by_lease.setdefault(message._lease, []).append(message._index)
    claims = [Claim(lease, indexes) for lease, indexes in by_lease.items()]
    await queue.send_claims(
        claims, lambda receipts: wire.Nack(queue.name, receipts, delay_ms, counted=False), None
    )


async def move(queue: QueueCore[M], messages: Sequence[M], to: str) -> None:
    """Moves messages to another queue, ready at once; ids and delivery counts stay.

    The move of a message is one log entry: the message is in one of the queues, never in both and
    never in none. Raises InvalidArgument if one of the queues is ordered or grouped, QueueNotFound,
    QueueFull, and LeaseLost if some leases have ended: those messages stay in their queue.
    """
    found = claims(queue.name, messages)
    await queue.settle(found, lambda receipts: wire.Move(queue.name, receipts, to), None)

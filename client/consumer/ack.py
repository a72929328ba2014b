"""ack, nack and extend: the methods of a queue, and how receipts reach the primaries.

Receipts for one node travel together. When a partition has moved, the node refuses the whole
request, so the client groups the receipts again by the new view: receipts that stayed and receipts
that moved go to different nodes. Settling a receipt twice is harmless; if a lease did not survive
the move, its receipt is reported as lost. A lost receipt is *in doubt* if an earlier attempt got no
answer: the attempt may have settled the messages before its node failed, and no node remembers the
lease after a failover.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Generic

from weft import limits
from weft.client import arguments, tracing
from weft.client.producer.batch import Body, Headers
from weft.client.routing.router import Router
from weft.client.routing.session import NOT_DONE, ClientSession, attempt, pause_s
from weft.client.transport.link import Link
from weft.errors import DeadlineExceeded, WeftError
from weft.proto import wire

from . import lease as leases
from .lease import Claim
from .message import M
from .reply import reply

#: Builds the request for a list of receipts.
Make = Callable[[list[wire.Receipt]], wire.AnyRequest]


class QueueSettlement(Generic[M]):
    """The part of `QueueCore` that ends and extends leases."""

    name: str
    _session: ClientSession

    async def ack_many(self, messages: Iterable[M], *, timeout_ms: int | None = None) -> None:
        """Acknowledges the messages: done, never delivered again, durably when the call returns.

            await orders.ack_many(messages)

        Raises LeaseLost if some leases have ended: those messages are delivered again, the others
        are acknowledged. Raises AlreadySettled if this client acked or nacked a message before.
        """
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

            await orders.nack_many(messages, delay_ms=5_000, reason="no connection")

        Instead, messages move to the dead-letter queue after the queue's `max_deliveries`, or at
        once if this failure is `final` and the queue has a dead-letter queue. A dead letter keeps
        the `reason`. An ordered queue delivers a nacked message next; there `delay_ms` raises
        InvalidArgument. Raises LeaseLost if some leases have ended, and AlreadySettled.
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
        """Extends the leases to `lease_ms` milliseconds from now.

            await orders.extend_many(messages, 60_000)

        Raises LeaseLost if some leases have ended; the other leases are extended.
        """
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

    async def push_reply(
        self, message: M, body: Body, headers: Headers | None, ack: bool, timeout_ms: int | None
    ) -> None:
        await reply(self._session, message, body, headers, ack, timeout_ms)

    async def give_back(self, claims: list[Claim], *, timeout_ms: int | None = None) -> None:
        """Returns unused messages: other consumers may get them, and no delivery is counted."""
        leases.close(claims)
        await self.send_claims(
            claims, lambda receipts: wire.Nack(self.name, receipts, counted=False), timeout_ms
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

    def by_node(self, claims: Sequence[Claim]) -> list[list[Claim]]:
        """Splits the claims by the node that leads their partition: a consumer does not wait for
        a node without an answer before it goes on with the others."""
        return [part for _, part in _by_node(self._session.router, claims)]

    async def send_claims(
        self,
        claims: list[Claim],
        make: Make,
        timeout_ms: int | None,
    ) -> list[Claim]:
        """Sends the claims to the nodes and returns the claims with a lost lease."""
        deadline = self._session.deadline(timeout_ms)
        lost = await settle_claims(self._session.router, claims, make, deadline)
        if any(claim.lease.deliveries is not None for claim in claims):
            tracing.settled(claims, lost, make([]))
        return lost


async def settle_claims(
    router: Router, claims: Sequence[Claim], make: Make, deadline: float
) -> list[Claim]:
    """Sends the claims to the nodes and returns the claims with a lost lease."""
    lost: list[Claim] = []
    open_ = list(claims)
    tries = silences = 0
    while open_:
        seen = router.view
        parts = _by_node(router, open_)
        attempts = [
            attempt(
                router, link, make([claim.receipt for claim in part]), wire.Settled, deadline,
                silences,
            )
            for link, part in parts
        ]  # fmt: skip
        if len(attempts) == 1:  # the usual case
            ends = [await attempts[0]]
        else:
            ends = await router.runtime.together(attempts)
        failures: dict[int, tuple[Link, WeftError]] = {}
        open_ = []
        pause = pause_s(tries)
        for (link, part), end in zip(parts, ends, strict=True):
            if not isinstance(end, WeftError):
                lost += [part[position] for position in end[0].lost]
                continue
            if not end.retriable or time.monotonic() + pause >= deadline:
                raise end
            executed = not isinstance(end, NOT_DONE)
            open_ += [claim._replace(in_doubt=True) for claim in part] if executed else part
            failures[id(link)] = (link, end)
        tries += 1
        silences += any(isinstance(failure, DeadlineExceeded) for _, failure in failures.values())
        for link, failure in failures.values():
            await router.again(link, failure, seen, pause / len(failures), deadline)
    return lost


def _by_node(router: Router, claims: Sequence[Claim]) -> list[tuple[Link, list[Claim]]]:
    """Groups the claims by node, split to the size of one request."""
    groups: dict[int, tuple[Link, list[Claim]]] = {}
    for claim in claims:
        place = claim.lease.lent.partition % router.partitions
        link = router.table[place] or router.link(place)
        groups.setdefault(id(link), (link, []))[1].append(claim)
    return [
        (link, group[start : start + limits.RECEIPTS_MAX])
        for link, group in groups.values()
        for start in range(0, len(group), limits.RECEIPTS_MAX)
    ]

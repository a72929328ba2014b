"""A subscription: messages of a queue, reserved under consecutive numbers until they are acked.

Unlike a pop's lease a reservation has no timer and no owner among the readers: the same number
gives the same messages to whoever asks, in any process, until it is acked. Only one holder at a
time reserves and acks: who opens the subscription raises its epoch, and fences who had it before.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

import msgspec

from weft import limits
from weft.errors import InvalidArgument, UsageError
from weft.proto import streams, wire

from . import retry
from .reservation import Reservation, ReservedBatch, Slice, unpack
from .router import ANY
from .session import Session

#: What `reserve` takes at most, unless it is told otherwise.
MAX_MESSAGES: Final = 100_000
MAX_BYTES: Final = 64 * limits.MIB


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """A subscription's figures at one moment."""

    queue: str
    subscription: str
    epoch: int
    #: All numbers up to this one are acked, and the highest number that is reserved.
    acked_through: int
    reserved_through: int
    ttl_ms: int
    #: Since the last sign of life.
    idle_ms: int
    #: Reservations that are neither acked nor given back, and what they hold.
    reservations: int
    reserved_messages: int
    reserved_bytes: int
    #: When the oldest reserved message was pushed, in milliseconds since 1970; 0: there is none.
    reserved_oldest_ms: int
    #: What waits in the queue for anybody, and the age of its oldest message in milliseconds.
    backlog_messages: int
    backlog_bytes: int
    oldest_ms: int

    @property
    def high_water(self) -> int:
        """The number that the next reservation gets if something waits: else the last one."""
        return self.reserved_through + (1 if self.backlog_messages else 0)

    @classmethod
    def of(cls, info: streams.SubscriptionInfo) -> SubscriptionStats:
        return cls(*msgspec.structs.astuple(info))


class SubscriptionCore:
    """A subscription by name. Nothing is asked of the cluster until a verb is called."""

    def __init__(self, session: Session, queue: str, name: str, epoch: int | None = None) -> None:
        limits.check_queue_name(queue)
        limits.check_name("a subscription", name)
        self.queue = queue
        self.name = name
        self._session = session
        self._epoch = epoch

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} of {self.queue}>"

    @property
    def epoch(self) -> int:
        """That of `open`."""
        if self._epoch is None:
            raise UsageError(f"open the subscription {self.name} first")
        return self._epoch

    async def open(
        self, *, ttl_ms: int = limits.SUBSCRIPTION_TTL_MS, timeout_ms: int | None = None
    ) -> int:
        """Makes it if it is not there, and becomes its holder: whoever was it before gets Fenced.

        The answer is the epoch, greater than any before. Without a sign of life (any verb of its
        holder) for `ttl_ms`, what is reserved goes back to the queue.
        """
        limits.check_range(
            "ttl_ms", ttl_ms, limits.SUBSCRIPTION_TTL_MS_MIN, limits.SUBSCRIPTION_TTL_MS_MAX
        )
        nonce = secrets.randbits(62)
        request = streams.OpenSubscription(self.queue, self.name, ttl_ms, nonce)
        opened = await self._session.ask(ANY, request, streams.Opened, timeout_ms)
        self._epoch = opened.epoch
        return opened.epoch

    async def reserve(
        self,
        number: int,
        *,
        max_messages: int = MAX_MESSAGES,
        max_bytes: int = MAX_BYTES,
        timeout_ms: int | None = None,
    ) -> Reservation | None:
        """The reservation of this number, made now if it is the next one; None if nothing waits.

        It takes the oldest messages of all nodes. One that exists is given as it is, whatever the
        limits. A number that is acked already, or beyond the next one, is an InvalidArgument; one
        whose messages were given back meanwhile is ReservationLost.
        """
        request = streams.Reserve(
            self.queue, self.name, self.epoch, number, max_messages, max_bytes
        )
        answer = await self._session.ask(ANY, request, streams.Reserved, timeout_ms)
        return Reservation.of(answer.reservation) if answer.reservation is not None else None

    async def describe(self, number: int, *, timeout_ms: int | None = None) -> Reservation:
        """A reservation that exists. It needs no epoch."""
        request = streams.DescribeReservation(self.queue, self.name, number)
        answer = await self._session.ask(ANY, request, streams.Reserved, timeout_ms)
        assert answer.reservation is not None, "one that is not there is refused"
        return Reservation.of(answer.reservation)

    async def read(
        self,
        number: int,
        slice: Slice,
        start: int = 0,
        *,
        limit: int = limits.POP_COUNT_MAX,
        timeout_ms: int | None = None,
    ) -> ReservedBatch:
        """Messages of a slice of reservation `number`, from its `start`-th on, many at a time.

        It changes nothing and needs no epoch: any process may read, as often as it likes. Go on
        with `start=batch.end` until that is `slice.messages`.
        """
        if not isinstance(slice, Slice) or number < 1:
            raise InvalidArgument("read takes a number and one of its reservation's slices")
        holds = list(slice.holds)
        request = streams.ReadReserved(self.queue, slice.partition, holds, start, limit)
        session = self._session
        place = session.router.of_partition(slice.partition)
        deadline = session.deadline(timeout_ms)
        answer, frames = await retry.ask(session.router, place, request, wire.Peeked, deadline)
        return unpack(answer.lent, frames, start)

    async def ack_through(
        self, number: int, *, skip_lost: bool = False, timeout_ms: int | None = None
    ) -> None:
        """All reservations up to this number are done: their messages never come back.

        If one of them was given back to the queue meanwhile it raises ReservationLost and acks
        nothing; with `skip_lost` it passes over those.
        """
        request = streams.AckThrough(self.queue, self.name, self.epoch, number, skip_lost)
        await self._session.ask(ANY, request, wire.Done, timeout_ms)

    async def heartbeat(self, *, timeout_ms: int | None = None) -> None:
        """A sign of life. Raises Fenced if somebody else has opened the subscription."""
        request = streams.Heartbeat(self.queue, self.name, self.epoch)
        await self._session.ask(ANY, request, wire.Done, timeout_ms)

    async def stats(self, *, timeout_ms: int | None = None) -> SubscriptionStats:
        request = streams.SubscriptionStats(self.queue, self.name)
        answer = await self._session.ask(ANY, request, streams.Subscriptions, timeout_ms)
        return SubscriptionStats.of(answer.subscriptions[0])

    async def release_all(self, *, timeout_ms: int | None = None) -> int:
        """What is reserved and not acked goes back to the queue; says how many messages.

        For operators: it asks for no epoch. Their numbers are lost to the holder, who goes on with
        the next one (`ack_through` with `skip_lost`).
        """
        request = streams.ReleaseAll(self.queue, self.name)
        return (await self._session.ask(ANY, request, wire.Done, timeout_ms)).count

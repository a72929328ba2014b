"""A subscription: messages of a queue, reserved under consecutive numbers until acked.

Unlike a pop's lease, a reservation has no timer and no owner among the readers: the same number
returns the same messages to any reader in any process, until it is acked. Only one holder at a time
reserves and acks: opening the subscription raises its epoch and fences the previous holder.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

import msgspec

from weft import limits
from weft.client import arguments
from weft.client.routing.session import ClientSession, ask
from weft.errors import UsageError
from weft.proto import pipelines, wire

from .reservation import Reservation, ReservedBatch, Slice, unpack

#: Default limits of `reserve`.
MAX_MESSAGES: Final = 100_000
MAX_BYTES: Final = 64 * limits.MIB


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """Statistics of a subscription at one moment."""

    queue: str
    subscription: str
    #: Increases with every `open`.
    epoch: int
    #: All reservations up to this number are acked.
    acked_through: int
    #: The highest reserved number.
    reserved_through: int
    #: Milliseconds without a request of the holder after which reserved messages return.
    ttl_ms: int
    #: Milliseconds since the holder's last request.
    idle_ms: int
    #: Reservations that are neither acked nor returned.
    reservations: int
    #: Messages of these reservations.
    reserved_messages: int
    #: Bytes of these messages.
    reserved_bytes: int
    #: Push time of the oldest reserved message, in milliseconds since 1970; 0 if there is none.
    reserved_oldest_ms: int
    #: Messages in the queue that are not reserved.
    backlog_messages: int
    #: Bytes of these messages.
    backlog_bytes: int
    #: Age of the oldest of these messages, in milliseconds.
    oldest_ms: int

    @property
    def high_water(self) -> int:
        """The number of the next reservation if messages wait, else the last number."""
        return self.reserved_through + (1 if self.backlog_messages else 0)

    @classmethod
    def of(cls, info: pipelines.SubscriptionInfo) -> SubscriptionStats:
        return cls(*msgspec.structs.astuple(info))


class SubscriptionCore:
    """A handle for a subscription, by name. The constructor sends no request."""

    def __init__(
        self, session: ClientSession, queue: str, name: str, epoch: int | None = None
    ) -> None:
        arguments.check_queue_name("queue", queue)
        arguments.check_queue_name("name", name)
        if epoch is not None:
            arguments.check_integer("epoch", epoch, 0, limits.NUMBER_MAX)
        self.queue = queue
        self.name = name
        self._session = session
        self._epoch = epoch

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} of {self.queue}>"

    @property
    def epoch(self) -> int:
        """The epoch from `open`. Raises UsageError before `open`."""
        if self._epoch is None:
            raise UsageError(f"open the subscription {self.name} first")
        return self._epoch

    async def open(
        self, *, ttl_ms: int = limits.SUBSCRIPTION_TTL_MS, timeout_ms: int | None = None
    ) -> int:
        """Creates the subscription if needed and becomes its holder: the previous holder gets
        Fenced.

            epoch = await client.subscription("events", "counter").open()

        Returns the epoch, which is greater than any before. If the holder makes no call for
        `ttl_ms` milliseconds, the reserved messages return to the queue. Raises InvalidArgument for
        a value out of range, and QueueNotFound.
        """
        arguments.check_integer(
            "ttl_ms", ttl_ms, limits.SUBSCRIPTION_TTL_MS_MIN, limits.SUBSCRIPTION_TTL_MS_MAX
        )
        nonce = secrets.randbits(62)
        request = pipelines.OpenSubscription(self.queue, self.name, ttl_ms, nonce)
        opened = await self._session.ask(request, pipelines.Opened, timeout_ms)
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
        """Returns the reservation of this number, and creates the next one; None if no message
        waits.

            reservation = await subscription.reserve(1, max_messages=10_000)

        A new reservation takes the oldest messages of all nodes. An existing one is returned as it
        is, regardless of the limits (`max_messages`, `max_bytes`). Raises InvalidArgument if the
        number is already acked or beyond the next one, ReservationLost if its messages have
        returned to the queue, and Fenced if another holder has opened the subscription.
        """
        _check_number(number)
        arguments.check_integer("max_messages", max_messages, 1, limits.RESERVE_MESSAGES_MAX)
        arguments.check_integer("max_bytes", max_bytes, 1, limits.RESERVE_BYTES_MAX)
        request = pipelines.Reserve(
            self.queue, self.name, self.epoch, number, max_messages, max_bytes
        )
        answer = await self._session.ask(request, pipelines.Reserved, timeout_ms)
        return Reservation.of(answer.reservation) if answer.reservation is not None else None

    async def describe(self, number: int, *, timeout_ms: int | None = None) -> Reservation:
        """Returns an existing reservation. The call needs no epoch.

        Raises SubscriptionNotFound, InvalidArgument if the number is acked or not reserved yet, and
        ReservationLost if its messages have returned to the queue.
        """
        _check_number(number)
        request = pipelines.DescribeReservation(self.queue, self.name, number)
        answer = await self._session.ask(request, pipelines.Reserved, timeout_ms)
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
        """Reads many messages of a slice of reservation `number`, starting at message `start`.

            batch = await subscription.read(reservation.number, reservation.slices[0])

        The call changes nothing and needs no epoch: any process may read any number of times.
        Continue with `start=batch.end` until `batch.end` equals `slice.messages`. Raises
        ReservationLost if the messages are gone.
        """
        _check_number(number)
        if not isinstance(slice, Slice):
            raise arguments.wrong_type("slice", "a slice of the reservation", slice)
        arguments.check_integer("start", start, 0, limits.NUMBER_MAX)
        arguments.check_integer("limit", limit, 1, limits.POP_COUNT_MAX)
        holds = list(slice.holds)
        request = pipelines.ReadReserved(self.queue, slice.partition, holds, start, limit)
        session = self._session
        place = session.router.place_of(request)
        deadline = session.deadline(timeout_ms)
        answer, frames = await ask(session.router, place, request, wire.Peeked, deadline)
        return unpack(answer.lent, frames, start)

    async def ack_through(
        self, number: int, *, skip_lost: bool = False, timeout_ms: int | None = None
    ) -> None:
        """Acknowledges all reservations up to this number: their messages are never delivered
        again.

            await subscription.ack_through(reservation.number)

        If one of them has returned to the queue, the call raises ReservationLost and acks nothing;
        with `skip_lost` the call skips such reservations. Raises Fenced if another holder has
        opened the subscription.
        """
        _check_number(number, 0)
        arguments.check_flag("skip_lost", skip_lost)
        request = pipelines.AckThrough(self.queue, self.name, self.epoch, number, skip_lost)
        await self._session.ask(request, wire.Done, timeout_ms)

    async def heartbeat(self, *, timeout_ms: int | None = None) -> None:
        """Keeps the subscription alive. Raises Fenced if another holder has opened it."""
        request = pipelines.Heartbeat(self.queue, self.name, self.epoch)
        await self._session.ask(request, wire.Done, timeout_ms)

    async def stats(self, *, timeout_ms: int | None = None) -> SubscriptionStats:
        """Returns the statistics of the subscription. Raises SubscriptionNotFound."""
        request = pipelines.DescribeSubscription(self.queue, self.name)
        answer = await self._session.ask(request, pipelines.Subscriptions, timeout_ms)
        return SubscriptionStats.of(answer.subscriptions[0])

    async def release_all(self, *, timeout_ms: int | None = None) -> int:
        """Returns all reserved, unacked messages to the queue; returns the number of messages.

        For operators: the call needs no epoch. The holder loses the numbers of these reservations
        and continues with the next one (`ack_through` with `skip_lost`).
        """
        request = pipelines.ReleaseAll(self.queue, self.name)
        return (await self._session.ask(request, wire.Done, timeout_ms)).count


def _check_number(number: int, low: int = 1) -> None:
    arguments.check_integer("number", number, low, limits.NUMBER_MAX)

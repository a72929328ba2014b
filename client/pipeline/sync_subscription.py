"""Subscriptions and stages for synchronous callers.

`make facade` generates this module from `client/pipeline/subscription.py` and
`client/pipeline/stage.py`: do not edit it.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft import limits
from weft.client import arguments
from weft.client.producer.batch import Body, Headers
from weft.client.routing.session import ClientSession
from weft.client.transport.blocking_link import run

from .reservation import Reservation, ReservedBatch, Slice
from .stage import StageCore
from .subscription import MAX_BYTES, MAX_MESSAGES, SubscriptionCore, SubscriptionStats


class Subscription:
    """A handle for a subscription, by name. The constructor sends no request."""

    def __init__(
        self, session: ClientSession, queue: str, name: str, epoch: int | None = None
    ) -> None:
        self._core = SubscriptionCore(session, queue, name, epoch)

    @property
    def queue(self) -> str:
        return self._core.queue

    @property
    def name(self) -> str:
        return self._core.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._core.name} of {self._core.queue}>"

    @property
    def epoch(self) -> int:
        """The epoch from `open`. Raises UsageError before `open`."""
        return self._core.epoch

    def open(
        self, *, ttl_ms: int = limits.SUBSCRIPTION_TTL_MS, timeout_ms: int | None = None
    ) -> int:
        """Creates the subscription if needed and becomes its holder: the previous holder gets
        Fenced.

            epoch = client.subscription("events", "counter").open()

        Returns the epoch, which is greater than any before. If the holder makes no call for
        `ttl_ms` milliseconds, the reserved messages return to the queue. Raises InvalidArgument for
        a value out of range, and QueueNotFound.
        """
        return run(self._core.open(ttl_ms=ttl_ms, timeout_ms=timeout_ms))

    def reserve(
        self,
        number: int,
        *,
        max_messages: int = MAX_MESSAGES,
        max_bytes: int = MAX_BYTES,
        timeout_ms: int | None = None,
    ) -> Reservation | None:
        """Returns the reservation of this number, and creates the next one; None if no message
        waits.

            reservation = subscription.reserve(1, max_messages=10_000)

        A new reservation takes the oldest messages of all nodes. An existing one is returned as it
        is, regardless of the limits (`max_messages`, `max_bytes`). Raises InvalidArgument if the
        number is already acked or beyond the next one, ReservationLost if its messages have
        returned to the queue, and Fenced if another holder has opened the subscription.
        """
        return run(
            self._core.reserve(
                number, max_messages=max_messages, max_bytes=max_bytes, timeout_ms=timeout_ms
            )
        )

    def describe(self, number: int, *, timeout_ms: int | None = None) -> Reservation:
        """Returns an existing reservation. The call needs no epoch.

        Raises SubscriptionNotFound, InvalidArgument if the number is acked or not reserved yet, and
        ReservationLost if its messages have returned to the queue.
        """
        return run(self._core.describe(number, timeout_ms=timeout_ms))

    def read(
        self,
        number: int,
        slice: Slice,
        start: int = 0,
        *,
        limit: int = limits.POP_COUNT_MAX,
        timeout_ms: int | None = None,
    ) -> ReservedBatch:
        """Reads many messages of a slice of reservation `number`, starting at message `start`.

            batch = subscription.read(reservation.number, reservation.slices[0])

        The call changes nothing and needs no epoch: any process may read any number of times.
        Continue with `start=batch.end` until `batch.end` equals `slice.messages`. Raises
        ReservationLost if the messages are gone.
        """
        return run(self._core.read(number, slice, start, limit=limit, timeout_ms=timeout_ms))

    def ack_through(
        self, number: int, *, skip_lost: bool = False, timeout_ms: int | None = None
    ) -> None:
        """Acknowledges all reservations up to this number: their messages are never delivered
        again.

            subscription.ack_through(reservation.number)

        If one of them has returned to the queue, the call raises ReservationLost and acks nothing;
        with `skip_lost` the call skips such reservations. Raises Fenced if another holder has
        opened the subscription.
        """
        run(self._core.ack_through(number, skip_lost=skip_lost, timeout_ms=timeout_ms))

    def heartbeat(self, *, timeout_ms: int | None = None) -> None:
        """Keeps the subscription alive. Raises Fenced if another holder has opened it."""
        run(self._core.heartbeat(timeout_ms=timeout_ms))

    def stats(self, *, timeout_ms: int | None = None) -> SubscriptionStats:
        """Returns the statistics of the subscription. Raises SubscriptionNotFound."""
        return run(self._core.stats(timeout_ms=timeout_ms))

    def release_all(self, *, timeout_ms: int | None = None) -> int:
        """Returns all reserved, unacked messages to the queue; returns the number of messages.

        For operators: the call needs no epoch. The holder loses the numbers of these reservations
        and continues with the next one (`ack_through` with `skip_lost`).
        """
        return run(self._core.release_all(timeout_ms=timeout_ms))


class Stage:
    """One attempt at one partition of a batch. Several may be open at once, in any process."""

    def __init__(
        self, session: ClientSession, queue: str, app: str, batch: int, partition: int, attempt: int
    ) -> None:
        self._core = StageCore(session, queue, app, batch, partition, attempt)

    @property
    def count(self) -> int:
        """Number of staged messages."""
        return self._core.count

    def __repr__(self) -> str:
        attempt = f"{self._core.batch}/{self._core.partition}/{self._core.attempt}"
        return f"<{type(self).__name__} {attempt} of {self._core.app}>"

    @property
    def winner(self) -> tuple[int, int, int]:
        """Identifies exactly this try among the winners of `publish`.

        The plain (partition, attempt) names the try closed last. After a restart of a whole
        application, the last closed try may be from before the restart.
        """
        return self._core.winner

    def push(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        key: str | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Stages one message, durably when the call returns. `push_many` costs far less each.

        Raises like `push_many`.
        """
        run(self._core.push(body, headers=headers, key=key, timeout_ms=timeout_ms))

    def push_many(
        self,
        bodies: Iterable[Body],
        *,
        headers: Iterable[Headers | None] | None = None,
        keys: Iterable[str | None] | None = None,
        timeout_ms: int | None = None,
    ) -> int:
        """Stages the messages of any iterable in few batches, durably when the call returns.

            count = stage.push_many(rows)

        Returns the number of messages. An iterable that is not a collection is read while it is
        staged.

        After an error the number of staged messages is unknown: the stage cannot be closed any
        more, and the task must be retried with another stage. Raises UsageError on such a stage or
        a closed one, and Fenced if the batch is already published.
        """
        arguments.check_iterable("bodies", bodies, "bytes")
        return run(self._core.push_many(bodies, headers=headers, keys=keys, timeout_ms=timeout_ms))

    def close(self, *, timeout_ms: int | None = None) -> int:
        """Completes the stage, so that it can be a winner. Returns the number of messages.

        Raises UsageError after a failed push, and Fenced if the batch is published or aborted.
        """
        return run(self._core.close(timeout_ms=timeout_ms))

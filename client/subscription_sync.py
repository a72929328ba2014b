"""Subscriptions and stages for synchronous callers."""

from __future__ import annotations

from collections.abc import Sequence

from weft import limits

from .batch import Body, Headers
from .link import run
from .reservation import Reservation, ReservedBatch, Slice
from .staging import StageCore
from .subscription import MAX_BYTES, MAX_MESSAGES, SubscriptionCore, SubscriptionStats


class Subscription:
    """A subscription by name. Nothing is asked of the cluster until a verb is called."""

    def __init__(self, core: SubscriptionCore) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"<Subscription {self.name} of {self.queue}>"

    @property
    def queue(self) -> str:
        return self._core.queue

    @property
    def name(self) -> str:
        return self._core.name

    @property
    def epoch(self) -> int:
        """That of `open`."""
        return self._core.epoch

    def open(
        self, *, ttl_ms: int = limits.SUBSCRIPTION_TTL_MS, timeout_ms: int | None = None
    ) -> int:
        """Makes it if it is not there, and becomes its holder: whoever was it before gets Fenced.

        The answer is the epoch, greater than any before. Without a sign of life (any verb of its
        holder) for `ttl_ms`, what is reserved goes back to the queue.
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
        """The reservation of this number, made now if it is the next one; None if nothing waits.

        It takes the oldest messages of all nodes. One that exists is given as it is, whatever the
        limits. A number that is acked already, or beyond the next one, is an InvalidArgument; one
        whose messages were given back meanwhile is ReservationLost.
        """
        return run(
            self._core.reserve(
                number, max_messages=max_messages, max_bytes=max_bytes, timeout_ms=timeout_ms
            )
        )

    def describe(self, number: int, *, timeout_ms: int | None = None) -> Reservation:
        """A reservation that exists. It needs no epoch."""
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
        """Messages of a slice of reservation `number`, from its `start`-th on, many at a time.

        It changes nothing and needs no epoch: any process may read, as often as it likes. Go on
        with `start=batch.end` until that is `slice.messages`.
        """
        return run(self._core.read(number, slice, start, limit=limit, timeout_ms=timeout_ms))

    def ack_through(
        self, number: int, *, skip_lost: bool = False, timeout_ms: int | None = None
    ) -> None:
        """All reservations up to this number are done: their messages never come back.

        If one of them was given back to the queue meanwhile it raises ReservationLost and acks
        nothing; with `skip_lost` it passes over those.
        """
        run(self._core.ack_through(number, skip_lost=skip_lost, timeout_ms=timeout_ms))

    def heartbeat(self, *, timeout_ms: int | None = None) -> None:
        """A sign of life. Raises Fenced if somebody else has opened the subscription."""
        run(self._core.heartbeat(timeout_ms=timeout_ms))

    def stats(self, *, timeout_ms: int | None = None) -> SubscriptionStats:
        return run(self._core.stats(timeout_ms=timeout_ms))

    def release_all(self, *, timeout_ms: int | None = None) -> int:
        """What is reserved and not acked goes back to the queue; says how many messages.

        For operators: it asks for no epoch. Their numbers are lost to the holder, who goes on with
        the next one (`ack_through` with `skip_lost`).
        """
        return run(self._core.release_all(timeout_ms=timeout_ms))


class Stage:
    """One attempt at one partition of a batch. Several may be open at once, in any process."""

    def __init__(self, core: StageCore) -> None:
        self._core = core

    def __repr__(self) -> str:
        return repr(self._core).replace("StageCore", "Stage")

    @property
    def count(self) -> int:
        """Messages that are staged."""
        return self._core.count

    @property
    def winner(self) -> tuple[int, int, int]:
        """What names exactly this try among the winners of `publish`. The plain (partition,
        attempt) names the try that was closed last, which after a restart of a whole application
        may be one of its other life."""
        return self._core.winner

    def push(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        key: str | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Stages one message: durable when this returns. Many at once cost far less each."""
        run(self._core.push(body, headers=headers, key=key, timeout_ms=timeout_ms))

    def push_many(
        self,
        bodies: Sequence[Body],
        *,
        headers: Sequence[Headers | None] | None = None,
        keys: Sequence[str | None] | None = None,
        timeout_ms: int | None = None,
    ) -> int:
        """Stages messages in few batches, durable when this returns; says how many.

        After an error nobody knows how much was staged: the stage cannot be closed any more, and
        the task has to be tried again with another one.
        """
        return run(self._core.push_many(bodies, headers=headers, keys=keys, timeout_ms=timeout_ms))

    def close(self, *, timeout_ms: int | None = None) -> int:
        """All is staged: it may be named as a winner. Says how many messages it has."""
        return run(self._core.close(timeout_ms=timeout_ms))

"""The ledger of a subscription: epoch, reservation numbers, and the holds of each reservation.

The ledger is on the partition of the subscription's name (`home`), replicated like all state. Only
the ledger decides about a mark:

| the mark belongs to        | decision                                  |
|----------------------------|-------------------------------------------|
| a *sealed* reservation     | keep: the messages are reserved           |
| the current attempt        | wait: the attempt may still be sealed     |
| neither                    | dead: return the messages to the queue    |

At most one attempt is in progress: a new attempt ends the previous attempt for good. So a late or
duplicate mark never becomes part of a reservation. The primary of the mark's partition queries the
ledger (`judge_marks`) and returns the messages of a dead mark.

The ledger first records an ack, a release or an expired ttl; then the partitions carry out the
decision, with retries until all are done (`debts`); then the ledger deletes the reservation's
record. Numbers up to ``acked`` are done. A higher number without a sealed reservation was returned
to the queue, and other consumers may have received its messages: the number is *lost*, and
requests for the number report `ReservationLost`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from weft import limits
from weft.dht import placement
from weft.errors import (
    Busy,
    Fenced,
    InvalidArgument,
    Overloaded,
    ReservationLost,
    SubscriptionNotFound,
    Unavailable,
)
from weft.persistence import layout
from weft.proto import pipelines, wire
from weft.proto.pipelines import ReservationInfo

if TYPE_CHECKING:
    from .state import EngineState

#: Remembered nonces of `open` calls: a resent call must not fence a later holder.
_NONCES_MAX: Final = 8
#: Minimum interval between two writes of a heartbeat.
_SEEN_US: Final = 30 * 1_000_000

#: An attempt not sealed within this time is over; its operation ended long before.
ATTEMPT_US: Final = 45 * 1_000_000

#: (created of the queue, subscription).
LedgerKey = tuple[int, str]


class LedgerRecord(msgspec.Struct, array_like=True):
    """The stored form of a subscription."""

    epoch: int
    ttl_ms: int
    #: The last heartbeat, or other call of the holder, in microseconds since 1970.
    seen: int
    acked: int = 0
    reserved: int = 0
    #: The number of the attempt in progress (0: none), and the token of the last attempt.
    attempt: int = 0
    token: int = 0
    nonces: list[int] = []
    #: Reserved messages return to the queue; then the record is deleted.
    deleted: bool = False


class SealedReservation(msgspec.Struct, array_like=True, frozen=True):
    """The stored form of a reservation."""

    reservation: ReservationInfo
    #: The messages return to the queue.
    released: bool = False


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LedgerRecord).decode
_decode_sealed = msgspec.msgpack.Decoder(SealedReservation).decode


class SubscriptionLedger:
    def __init__(self, partition: int, queue: int, name: str, record: LedgerRecord) -> None:
        self.partition = partition
        self.queue = queue  # created of the queue
        self.name = name
        self.record = record
        self.sealed: dict[int, SealedReservation] = {}
        self.written_seen = record.seen
        self.attempt_since = 0

    @property
    def key(self) -> LedgerKey:
        return self.queue, self.name

    @property
    def open(self) -> list[ReservationInfo]:
        """Reservations neither acked nor released."""
        acked = self.record.acked
        return [
            each.reservation
            for number, each in self.sealed.items()
            if number > acked and not each.released
        ]

    def debts(self) -> list[tuple[int, bool, list[tuple[int, int]]]]:
        """Decisions for the partitions to carry out: (number, acked, [(partition, hold id)])."""
        acked = self.record.acked
        return [
            (number, not each.released, _holds(each.reservation))
            for number, each in self.sealed.items()
            if number <= acked or each.released
        ]

    @property
    def owes(self) -> bool:
        record = self.record
        return record.deleted or any(
            number <= record.acked or each.released for number, each in self.sealed.items()
        )

    def save(self, state: EngineState) -> None:
        place = layout.named(layout.SUBSCRIPTION, self.partition, self.queue, self.name)
        if self.record.deleted and not self.sealed:
            state.overlay.delete(place)
            del state.ledgers[self.key]
            state.owing.discard(self.key)
            return
        state.overlay.put(place, _encode(self.record))
        self.written_seen = self.record.seen
        if self.owes:
            state.owing.add(self.key)
        else:
            state.owing.discard(self.key)

    def save_sealed(self, state: EngineState, number: int) -> None:
        place = layout.reservation(self.partition, self.queue, self.name, number)
        if number in self.sealed:
            state.overlay.put(place, _encode(self.sealed[number]))
        else:
            state.overlay.delete(place)

    def live(self, state: EngineState) -> None:
        self.record.seen = max(self.record.seen, state.now)

    def save_seen(self, state: EngineState) -> None:
        """Saves a heartbeat, at most once per `_SEEN_US`."""
        if state.now - self.written_seen >= _SEEN_US:
            self.save(state)

    def release(self, state: EngineState) -> int:
        """Releases all open reservations and the attempt; returns the number of messages."""
        self.record.attempt = 0
        given = self.open
        for each in given:
            self.sealed[each.number] = SealedReservation(each, True)
            self.save_sealed(state, each.number)
        self.save(state)
        return sum(each.messages for each in given)


def home(queue: str, subscription: str, partitions: int) -> int:
    """The partition of a subscription's ledger."""
    return placement.of_text(f"{queue}/{subscription}", partitions)


def load(state: EngineState, partition: int) -> None:
    """Loads the ledgers of an adopted partition."""
    ranges = layout.partition_range
    for key, data in state.overlay.scan(*ranges(layout.SUBSCRIPTION, partition)):
        created, name = layout.unpack_named(key)
        ledger = SubscriptionLedger(partition, created, name, _decode(data))
        ledger.attempt_since = state.now
        state.ledgers[ledger.key] = ledger
    for key, data in state.overlay.scan(*ranges(layout.RESERVATION, partition)):
        created, name, number = layout.unpack_reservation(key)
        state.ledgers[created, name].sealed[number] = _decode_sealed(data)
    for ledger in state.ledgers.values():
        if ledger.partition == partition and ledger.owes:
            state.owing.add(ledger.key)


def forget(state: EngineState, partitions: set[int]) -> None:
    for ledger in [each for each in state.ledgers.values() if each.partition in partitions]:
        del state.ledgers[ledger.key]
        state.owing.discard(ledger.key)


def drop(state: EngineState, ledger: SubscriptionLedger) -> None:
    """Deletes a ledger after its queue was deleted, along with the reserved messages."""
    for number in list(ledger.sealed):
        del ledger.sealed[number]
        ledger.save_sealed(state, number)
    ledger.record.deleted = True
    ledger.save(state)


def expire(state: EngineState) -> None:
    """Releases the reservations of subscriptions silent for their ttl, and ends attempts older
    than `ATTEMPT_US`."""
    for ledger in list(state.ledgers.values()):
        record = ledger.record
        if record.attempt and state.now - ledger.attempt_since > ATTEMPT_US:
            record.attempt = 0
            ledger.save(state)
        silent = state.now - record.seen > record.ttl_ms * 1000
        if silent and ledger.open:
            ledger.release(state)


# --- the verbs, at the home -------------------------------------------------------------------


def open_subscription(state: EngineState, request: pipelines.OpenSubscription, to: object) -> None:
    queue = state.queue(request.queue)
    limits.check_name("a subscription", request.subscription)
    limits.check_range(
        "ttl_ms", request.ttl_ms, limits.SUBSCRIPTION_TTL_MS_MIN, limits.SUBSCRIPTION_TTL_MS_MAX
    )
    partition = home(request.queue, request.subscription, state.partitions)
    ledger = state.ledgers.get((queue.created, request.subscription))
    if ledger is None:
        if len(state.ledgers) >= limits.SUBSCRIPTIONS_MAX:
            raise Overloaded(f"there are {limits.SUBSCRIPTIONS_MAX} subscriptions on this node")
        # A recreated subscription starts above every epoch and token of its deleted predecessor.
        record = LedgerRecord(state.now // 1_000_000, request.ttl_ms, state.now, token=state.now)
        ledger = SubscriptionLedger(partition, queue.created, request.subscription, record)
        state.ledgers[ledger.key] = ledger
    record = ledger.record
    if record.deleted:
        raise Unavailable(f"{request.subscription} is being deleted: nothing was done")
    if request.nonce not in record.nonces:
        record.epoch += 1
        record.ttl_ms = request.ttl_ms
        record.attempt = 0  # ends the attempt of the previous holder
        record.nonces = [*record.nonces, request.nonce][-_NONCES_MAX:]
    elif request.nonce != record.nonces[-1]:
        raise _fenced(ledger, 0)
    ledger.live(state)
    ledger.save(state)
    opened = pipelines.Opened(record.epoch, record.acked, record.reserved)
    state.answer(to, opened, (), {partition})


def begin_reserve(state: EngineState, request: pipelines.BeginReserve, to: object) -> None:
    ledger = _held(state, request.queue, request.subscription, request.epoch)
    record, number = ledger.record, request.number
    if number <= record.reserved:
        known = pipelines.Reserved(_reservation(ledger, number))
        state.answer(to, known, (), {ledger.partition}, sure=True)
        return
    if number != record.reserved + 1:
        raise InvalidArgument(
            f"the next reservation of {ledger.name} is number {record.reserved + 1}, not {number}"
        )
    if len(ledger.sealed) >= limits.RESERVATIONS_MAX:
        raise Overloaded(
            f"{ledger.name} has {limits.RESERVATIONS_MAX} reservations that are not acked: ack some"
        )
    ledger.live(state)
    if record.attempt == number and not request.sure:
        ledger.save_seen(state)
        state.answer(to, wire.Done(0), (), {ledger.partition}, sure=True)
        return
    record.attempt = number
    record.token += 1
    ledger.attempt_since = state.now
    ledger.save(state)
    state.answer(to, wire.Done(record.token), (), {ledger.partition})


def seal_reservation(state: EngineState, request: pipelines.SealReservation, to: object) -> None:
    ledger = _known(state, request.queue, request.subscription)
    number = request.reservation.number
    sealed = ledger.sealed.get(number)
    if sealed is None or sealed.reservation != request.reservation:
        if (ledger.record.attempt, ledger.record.token) != (number, request.token):
            raise Busy(f"another attempt at reservation {number} has taken over")
        ledger.sealed[number] = SealedReservation(request.reservation)
        ledger.save_sealed(state, number)
        ledger.record.reserved = number
        ledger.record.attempt = 0
        ledger.live(state)
        ledger.save(state)
    state.answer(to, pipelines.Reserved(request.reservation), (), {ledger.partition})


def describe_reservation(
    state: EngineState, request: pipelines.DescribeReservation, to: object
) -> None:
    ledger = _known(state, request.queue, request.subscription)
    if request.number > ledger.record.reserved:
        raise InvalidArgument(f"{ledger.name} has no reservation {request.number} yet")
    known = pipelines.Reserved(_reservation(ledger, request.number))
    state.answer(to, known, (), {ledger.partition}, sure=True)


def ack_through(state: EngineState, request: pipelines.AckThrough, to: object) -> None:
    ledger = _held(state, request.queue, request.subscription, request.epoch)
    record = ledger.record
    if not 0 <= request.number <= record.reserved:
        raise InvalidArgument(
            f"{ledger.name} has reserved up to {record.reserved}: it cannot ack {request.number}"
        )
    if not request.skip_lost:
        for number in range(record.acked + 1, request.number + 1):
            _reservation(ledger, number)
    record.acked = max(record.acked, request.number)
    ledger.live(state)
    ledger.save(state)
    state.answer(to, pipelines.Owed(ledger.debts()), (), {ledger.partition})


def heartbeat(state: EngineState, request: pipelines.Heartbeat, to: object) -> None:
    ledger = _held(state, request.queue, request.subscription, request.epoch)
    ledger.live(state)
    ledger.save_seen(state)
    state.answer(to, wire.Done(), (), {ledger.partition}, sure=True)


def release_all(state: EngineState, request: pipelines.ReleaseAll, to: object) -> None:
    ledger = _known(state, request.queue, request.subscription)
    ledger.release(state)
    state.answer(to, pipelines.Owed(ledger.debts()), (), {ledger.partition})


def delete_subscription(
    state: EngineState, request: pipelines.DeleteSubscription, to: object
) -> None:
    ledger = _known(state, request.queue, request.subscription, deleted=True)
    ledger.record.deleted = True
    ledger.release(state)
    state.answer(to, pipelines.Owed(ledger.debts()), (), {ledger.partition})


def settle(state: EngineState, request: pipelines.Settle, to: object) -> None:
    """Deletes the records of numbers carried out on all partitions."""
    queue = state.queue(request.queue)
    partition = home(request.queue, request.subscription, state.partitions)
    ledger = state.ledgers.get((queue.created, request.subscription))
    if ledger is not None:
        for number in request.numbers:
            sealed = ledger.sealed.get(number)
            if sealed is not None and (sealed.released or number <= ledger.record.acked):
                del ledger.sealed[number]
                ledger.save_sealed(state, number)
        ledger.save(state)
    state.answer(to, wire.Done(), (), {partition}, sure=True)


def judge_marks(state: EngineState, request: pipelines.JudgeMarks, to: object) -> None:
    queue = state.queue(request.queue)
    partition = home(request.queue, request.subscription, state.partitions)
    ledger = state.ledgers.get((queue.created, request.subscription))
    dead: list[int] = []
    sealed: list[int] = []
    kept = {number: set(_holds(each.reservation)) for number, each in ledger.sealed.items()} if (
        ledger is not None
    ) else {}  # fmt: skip
    attempt = (ledger.record.attempt, ledger.record.token) if ledger is not None else (0, 0)
    for position, (place, hold, number, token) in enumerate(request.marks):
        if (place, hold) in kept.get(number, ()):
            sealed.append(position)
        elif (number, token) != attempt:
            dead.append(position)
    state.answer(to, pipelines.Judged(dead, sealed), (), {partition}, sure=True)


def subscription_stats(
    state: EngineState, request: pipelines.DescribeSubscription, to: object
) -> None:
    ledger = _known(state, request.queue, request.subscription)
    info = _info(state, request.queue, ledger)
    state.answer(to, pipelines.Subscriptions([info]), (), {ledger.partition}, sure=True)


def list_subscriptions(
    state: EngineState, request: pipelines.ListSubscriptions, to: object
) -> None:
    queue = state.queue(request.queue)
    found = [
        _info(state, request.queue, ledger)
        for ledger in state.ledgers.values()
        if ledger.queue == queue.created and not ledger.record.deleted
    ]
    found.sort(key=lambda info: info.subscription)
    state.answer(to, pipelines.Subscriptions(found))


def _info(state: EngineState, queue: str, ledger: SubscriptionLedger) -> pipelines.SubscriptionInfo:
    record, reserved = ledger.record, ledger.open
    return pipelines.SubscriptionInfo(
        queue, ledger.name, record.epoch, record.acked, record.reserved, record.ttl_ms,
        max(0, state.now - record.seen) // 1000, len(reserved),
        sum(each.messages for each in reserved), sum(each.bytes for each in reserved),
        min((each.oldest_ms for each in reserved), default=0),
    )  # fmt: skip


# --- inside -----------------------------------------------------------------------------------


def _holds(reservation: ReservationInfo) -> list[tuple[int, int]]:
    return [(one.partition, hold) for one in reservation.slices for hold, _ in one.holds]


def _known(
    state: EngineState, queue: str, name: str, *, deleted: bool = False
) -> SubscriptionLedger:
    ledger = state.ledgers.get((state.queue(queue).created, name))
    if ledger is None or (ledger.record.deleted and not deleted):
        raise SubscriptionNotFound(f"{queue} has no subscription {name[:100]!r}: open it first")
    return ledger


def _held(state: EngineState, queue: str, name: str, epoch: int) -> SubscriptionLedger:
    """The ledger, if `epoch` is current; otherwise raises `Fenced`."""
    ledger = _known(state, queue, name)
    if epoch != ledger.record.epoch:
        raise _fenced(ledger, epoch)
    return ledger


def _fenced(ledger: SubscriptionLedger, epoch: int) -> Fenced:
    mine = f"epoch {epoch}" if epoch else "the one of this call"
    return Fenced(
        f"{ledger.name} was opened by somebody else since: its epoch is {ledger.record.epoch}, "
        f"and {mine} is over. If two readers run, stop one; a new `open` takes it back"
    )


def _reservation(ledger: SubscriptionLedger, number: int) -> ReservationInfo:
    """The open reservation `number`; raises if acked or lost."""
    if number <= ledger.record.acked:
        raise InvalidArgument(
            f"reservation {number} of {ledger.name} is acked (up to {ledger.record.acked})"
        )
    sealed = ledger.sealed.get(number)
    if sealed is None or sealed.released:
        raise ReservationLost(
            f"reservation {number} of {ledger.name} was given back to the queue: released by an "
            "operator, or silent for its ttl"
        )
    return sealed.reservation

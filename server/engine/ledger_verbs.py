"""The verbs of a subscription's ledger, handled by the primary of the ledger's partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft import limits
from weft.errors import (
    Busy,
    Fenced,
    InvalidArgument,
    Overloaded,
    ReservationLost,
    SubscriptionNotFound,
    Unavailable,
)
from weft.proto import pipelines, wire
from weft.proto.pipelines import ReservationInfo

from . import group_push as groups
from .handlers import handles
from .ledger import LedgerRecord, SealedReservation, SubscriptionLedger, holds_of, home

if TYPE_CHECKING:
    from .state import EngineState

#: Remembered nonces of `open` calls: a resent call must not fence a later holder.
_NONCES_MAX: Final = 8


@handles(pipelines.OpenSubscription)
def open_subscription(state: EngineState, request: pipelines.OpenSubscription, to: object) -> None:
    queue = state.queue(request.queue)
    groups.refuse(queue.name, queue.settings, "a subscription")
    limits.check_name("a subscription", request.subscription)
    limits.check_range(
        "ttl_ms", request.ttl_ms, limits.SUBSCRIPTION_TTL_MS_MIN, limits.SUBSCRIPTION_TTL_MS_MAX
    )
    partition = home(request.queue, request.subscription, state.partitions)
    ledger = state.ledgers.get((queue.created, request.subscription))
    if ledger is None:
        if len(state.ledgers) >= limits.SUBSCRIPTIONS_MAX:
            raise Overloaded(
                f"this node has the maximum of {limits.SUBSCRIPTIONS_MAX} subscriptions"
            )
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


@handles(pipelines.BeginReserve)
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


@handles(pipelines.SealReservation)
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


@handles(pipelines.DescribeReservation)
def describe_reservation(
    state: EngineState, request: pipelines.DescribeReservation, to: object
) -> None:
    ledger = _known(state, request.queue, request.subscription)
    if request.number > ledger.record.reserved:
        raise InvalidArgument(f"{ledger.name} has no reservation {request.number} yet")
    known = pipelines.Reserved(_reservation(ledger, request.number))
    state.answer(to, known, (), {ledger.partition}, sure=True)


@handles(pipelines.AckThrough)
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


@handles(pipelines.Heartbeat)
def heartbeat(state: EngineState, request: pipelines.Heartbeat, to: object) -> None:
    ledger = _held(state, request.queue, request.subscription, request.epoch)
    ledger.live(state)
    ledger.save_seen(state)
    state.answer(to, wire.Done(), (), {ledger.partition}, sure=True)


@handles(pipelines.ReleaseAll)
def release_all(state: EngineState, request: pipelines.ReleaseAll, to: object) -> None:
    ledger = _known(state, request.queue, request.subscription)
    ledger.release(state)
    state.answer(to, pipelines.Owed(ledger.debts()), (), {ledger.partition})


@handles(pipelines.DeleteSubscription)
def delete_subscription(
    state: EngineState, request: pipelines.DeleteSubscription, to: object
) -> None:
    ledger = _known(state, request.queue, request.subscription, deleted=True)
    ledger.record.deleted = True
    ledger.release(state)
    state.answer(to, pipelines.Owed(ledger.debts()), (), {ledger.partition})


@handles(pipelines.Settle)
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


@handles(pipelines.JudgeMarks)
def judge_marks(state: EngineState, request: pipelines.JudgeMarks, to: object) -> None:
    queue = state.queue(request.queue)
    partition = home(request.queue, request.subscription, state.partitions)
    ledger = state.ledgers.get((queue.created, request.subscription))
    dead: list[int] = []
    sealed: list[int] = []
    kept = {number: set(holds_of(each.reservation)) for number, each in ledger.sealed.items()} if (
        ledger is not None
    ) else {}  # fmt: skip
    attempt = (ledger.record.attempt, ledger.record.token) if ledger is not None else (0, 0)
    for position, (place, hold, number, token) in enumerate(request.marks):
        if (place, hold) in kept.get(number, ()):
            sealed.append(position)
        elif (number, token) != attempt:
            dead.append(position)
    state.answer(to, pipelines.Judged(dead, sealed), (), {partition}, sure=True)


@handles(pipelines.DescribeSubscription)
def subscription_stats(
    state: EngineState, request: pipelines.DescribeSubscription, to: object
) -> None:
    ledger = _known(state, request.queue, request.subscription)
    info = _info(state, request.queue, ledger)
    state.answer(to, pipelines.Subscriptions([info]), (), {ledger.partition}, sure=True)


@handles(pipelines.ListSubscriptions)
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
        f"another holder has opened {ledger.name} since: its epoch is {ledger.record.epoch}, and "
        f"{mine} is over. If two readers run, stop one; a new `open` fences the other holder"
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
            f"reservation {number} of {ledger.name} was returned to the queue: an operator "
            "released it, or the holder was silent for ttl_ms"
        )
    return sealed.reservation

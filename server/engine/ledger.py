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
ledger (``ledger_verbs.judge_marks``) and returns the messages of a dead mark.

The ledger first records an ack, a release or an expired ttl; then the partitions carry out the
decision, with retries until all are done (`debts`); then the ledger deletes the reservation's
record. Numbers up to ``acked`` are done. A higher number without a sealed reservation was returned
to the queue, and other consumers may have received its messages: the number is *lost*, and
requests for the number report `ReservationLost`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from weft.dht import placement
from weft.persistence import layout
from weft.proto.pipelines import ReservationInfo

if TYPE_CHECKING:
    from .state import EngineState

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
            (number, not each.released, holds_of(each.reservation))
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


def holds_of(reservation: ReservationInfo) -> list[tuple[int, int]]:
    """(partition, hold id) of every hold of a reservation."""
    return [(one.partition, hold) for one in reservation.slices for hold, _ in one.holds]


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

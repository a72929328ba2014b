"""Subscriptions on the wire: requests of clients, then requests between nodes, then answers.

A request between nodes is a step of a client's request: each concerns one partition, or the
partitions led by one node. The rules for every struct of ``wire`` apply.
"""

from __future__ import annotations

import msgspec

from .request import WORK_MS, Answer, Request


class SliceInfo(msgspec.Struct, array_like=True, frozen=True):
    """The messages of a reservation on one partition, oldest first."""

    partition: int
    messages: int
    bytes: int
    #: (id, messages) of the partition's holds.
    holds: list[tuple[int, int]]


class ReservationInfo(msgspec.Struct, array_like=True, frozen=True):
    number: int
    messages: int
    bytes: int
    #: When the oldest message was pushed, in milliseconds since 1970.
    oldest_ms: int
    slices: list[SliceInfo]


# --- requests of clients ----------------------------------------------------------------------


class OpenSubscription(Request, frozen=True, tag="open_subscription"):
    """Creates the subscription if missing, and raises the epoch."""

    queue: str
    subscription: str
    #: After this time without a heartbeat the subscription releases its reservations.
    ttl_ms: int
    #: Identifies the call, so that a client may resend the call.
    nonce: int


class Reserve(Request, frozen=True, tag="reserve"):
    queue: str
    subscription: str
    epoch: int
    number: int
    max_messages: int
    max_bytes: int
    wait_ms: int = WORK_MS


class DescribeReservation(Request, frozen=True, tag="describe_reservation"):
    queue: str
    subscription: str
    number: int


class ReadReserved(Request, frozen=True, tag="read_reserved"):
    """Messages of a slice from the `start`-th on, as many as fit into an answer."""

    queue: str
    partition: int
    holds: list[tuple[int, int]]
    start: int = 0
    limit: int = 65_536


class AckThrough(Request, frozen=True, tag="ack_through"):
    queue: str
    subscription: str
    epoch: int
    number: int
    #: Skip reservations released in the meantime instead of refusing the ack.
    skip_lost: bool = False
    wait_ms: int = WORK_MS


class Heartbeat(Request, frozen=True, tag="heartbeat"):
    queue: str
    subscription: str
    epoch: int


class ReleaseAll(Request, frozen=True, tag="release_all"):
    """Returns all messages that are reserved and not acked to the queue."""

    queue: str
    subscription: str
    wait_ms: int = WORK_MS


class DeleteSubscription(Request, frozen=True, tag="delete_subscription"):
    queue: str
    subscription: str
    wait_ms: int = WORK_MS


class ListSubscriptions(Request, frozen=True, tag="list_subscriptions"):
    """Lists the subscriptions of one queue."""

    queue: str


class DescribeSubscription(Request, frozen=True, tag="subscription_stats"):
    queue: str
    subscription: str


# --- requests between nodes -------------------------------------------------------------------


class BeginReserve(Request, frozen=True, tag="begin_reserve"):
    """To the subscription's home: this attempt at a number replaces every earlier attempt. The
    answer is the attempt's token, greater than any earlier token.

    Unless the caller is `sure` that messages wait, the home answers 0 after a fruitless attempt and
    writes nothing: a reader that polls costs no disk writes."""

    queue: str
    subscription: str
    epoch: int
    number: int
    sure: bool


class SealReservation(Request, frozen=True, tag="seal_reservation"):
    """To the home: seal the messages marked by this attempt as the reservation."""

    queue: str
    subscription: str
    token: int
    reservation: ReservationInfo


class Survey(Request, frozen=True, tag="survey"):
    """Reports waiting messages here, oldest first, up to these limits. First returns messages
    marked by earlier attempts (lower tokens) at this number; without a token (0) only counts."""

    queue: str
    subscription: str
    number: int
    token: int
    max_messages: int
    max_bytes: int
    #: The partitions that this node leads, according to the caller.
    partitions: list[int]


class Mark(Request, frozen=True, tag="mark"):
    """Reserves waiting messages here with a stamp up to `upto`, oldest first."""

    queue: str
    subscription: str
    number: int
    token: int
    upto: int
    max_messages: int
    max_bytes: int
    partitions: list[int]


class Finish(Request, frozen=True, tag="finish"):
    """Acks the messages of these holds (partition, id), or returns the messages to their queue."""

    queue: str
    holds: list[tuple[int, int]]
    acked: bool


class Settle(Request, frozen=True, tag="settle"):
    """To the home: these numbers are finished on all partitions."""

    queue: str
    subscription: str
    numbers: list[int]


class JudgeMarks(Request, frozen=True, tag="judge_marks"):
    """To the home: asks which marks (partition, id, number, token) belong to no reservation."""

    queue: str
    subscription: str
    marks: list[tuple[int, int, int, int]]


# --- answers ----------------------------------------------------------------------------------


class Opened(Answer, frozen=True, tag="opened"):
    epoch: int
    acked_through: int
    reserved_through: int


class Reserved(Answer, frozen=True, tag="reserved"):
    """Nil: there was no message to reserve."""

    reservation: ReservationInfo | None


class SubscriptionInfo(msgspec.Struct, array_like=True, frozen=True):
    queue: str
    subscription: str
    epoch: int
    acked_through: int
    reserved_through: int
    ttl_ms: int
    #: Since the last heartbeat.
    idle_ms: int
    #: Reservations not acked, with their messages and bytes.
    reservations: int
    reserved_messages: int
    reserved_bytes: int
    #: When the oldest reserved message was pushed, in milliseconds since 1970; 0: there is none.
    reserved_oldest_ms: int
    #: Waiting messages in the queue, and the age of the oldest one.
    backlog_messages: int = 0
    backlog_bytes: int = 0
    oldest_ms: int = 0


class Subscriptions(Answer, frozen=True, tag="subscriptions"):
    subscriptions: list[SubscriptionInfo]


class Bin(msgspec.Struct, array_like=True, frozen=True):
    """Consecutive entries, from the first stamp to the last."""

    first: int
    last: int
    entries: int
    messages: int
    bytes: int


class Surveyed(Answer, frozen=True, tag="surveyed"):
    bins: list[Bin]
    #: The stamp up to which the bins are complete; 0: the bins cover all waiting messages.
    covers: int


class Held(msgspec.Struct, array_like=True, frozen=True):
    """The result of a mark on one partition."""

    partition: int
    id: int
    messages: int
    bytes: int
    oldest_ms: int


class Marked(Answer, frozen=True, tag="marked"):
    held: list[Held]
    #: There was more than one step may take.
    more: bool


class Owed(Answer, frozen=True, tag="owed"):
    """Decisions still to be sent to the partitions: (number, acked, (partition, id)...)."""

    debts: list[tuple[int, bool, list[tuple[int, int]]]]


class Judged(Answer, frozen=True, tag="judged"):
    """Positions in the request's marks: marks without a reservation, and sealed marks."""

    dead: list[int]
    sealed: list[int] = msgspec.field(default_factory=list)

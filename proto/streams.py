"""Subscriptions and staged publish on the wire: part of ``wire``, in a file of its own.

The first half is what clients ask; every node answers it. The second half is what nodes ask of each
other while they do that: each of those concerns one partition, or what one node leads.
"""

from __future__ import annotations

import msgspec

from .verb import Answer, Request

#: How long a node may work on what concerns all nodes before its client asks another one.
WORK_MS = 5_000

# --- subscriptions ----------------------------------------------------------------------------


class Slice(msgspec.Struct, array_like=True, frozen=True):
    """The messages of a reservation on one partition, oldest first."""

    partition: int
    messages: int
    bytes: int
    #: (id, messages) of what holds them there.
    holds: list[tuple[int, int]]


class Reservation(msgspec.Struct, array_like=True, frozen=True):
    number: int
    messages: int
    bytes: int
    #: When its oldest message was pushed, in milliseconds since 1970.
    oldest_ms: int
    slices: list[Slice]


class OpenSubscription(Request, frozen=True, tag="open_subscription"):
    """Makes the subscription if it is not there, and raises its epoch."""

    queue: str
    subscription: str
    #: Without a sign of life for so long it gives back what it reserved.
    ttl_ms: int
    #: Names this call, so that it may be sent twice.
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
    """Messages of a slice from its `start`-th on, as many as fit into an answer."""

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
    #: Reservations that were given back meanwhile are passed over instead of refused.
    skip_lost: bool = False
    wait_ms: int = WORK_MS


class Heartbeat(Request, frozen=True, tag="heartbeat"):
    queue: str
    subscription: str
    epoch: int


class ReleaseAll(Request, frozen=True, tag="release_all"):
    """What is reserved and not acked goes back to the queue."""

    queue: str
    subscription: str
    wait_ms: int = WORK_MS


class DeleteSubscription(Request, frozen=True, tag="delete_subscription"):
    queue: str
    subscription: str
    wait_ms: int = WORK_MS


class ListSubscriptions(Request, frozen=True, tag="list_subscriptions"):
    """Those of one queue."""

    queue: str


class SubscriptionStats(Request, frozen=True, tag="subscription_stats"):
    queue: str
    subscription: str


# --- stages -----------------------------------------------------------------------------------


class Stage(Request, frozen=True, tag="stage"):
    """A batch that nobody sees before it is published; its payload is that of a push."""

    queue: str
    app: str
    batch: int
    part: int
    attempt: int
    #: Names this try of this attempt: a task that is run again never adds to what another left.
    token: int
    producer: int
    number: int
    count: int


class CloseStage(Request, frozen=True, tag="close_stage"):
    """All of it is stored: it may be named as a winner."""

    queue: str
    app: str
    batch: int
    part: int
    attempt: int
    token: int
    count: int


class Publish(Request, frozen=True, tag="publish"):
    queue: str
    app: str
    batch: int
    #: (part, attempt, token); token 0: the one that was closed last.
    winners: list[tuple[int, int, int]]
    wait_ms: int = WORK_MS


class Abort(Request, frozen=True, tag="abort"):
    queue: str
    app: str
    batch: int
    wait_ms: int = WORK_MS


class LastPublished(Request, frozen=True, tag="last_published"):
    queue: str
    app: str


# --- between nodes ----------------------------------------------------------------------------


class BeginReserve(Request, frozen=True, tag="begin_reserve"):
    """To the subscription's home: this attempt at a number replaces every earlier one. The answer
    is its token, greater than any before.

    Unless it is `sure` that something waits, one that follows an attempt which came to nothing is
    answered 0, and nothing is written: a reader that asks over and over costs no disk."""

    queue: str
    subscription: str
    epoch: int
    number: int
    sure: bool


class SealReservation(Request, frozen=True, tag="seal_reservation"):
    """To the home: what this attempt has marked is the reservation."""

    queue: str
    subscription: str
    token: int
    reservation: Reservation


class Survey(Request, frozen=True, tag="survey"):
    """What waits here, oldest first, up to these limits. What earlier attempts (lower tokens) at
    this number have marked is put back first; without a token (0) it is only counted."""

    queue: str
    subscription: str
    number: int
    token: int
    max_messages: int
    max_bytes: int
    #: The partitions that the asker believes to be led here.
    partitions: list[int]


class Mark(Request, frozen=True, tag="mark"):
    """Reserves what waits here and was stamped up to `upto`, oldest first."""

    queue: str
    subscription: str
    number: int
    token: int
    upto: int
    max_messages: int
    max_bytes: int
    partitions: list[int]


class Finish(Request, frozen=True, tag="finish"):
    """What these (partition, id) hold is acked, or goes back to its queue."""

    queue: str
    holds: list[tuple[int, int]]
    acked: bool


class Settle(Request, frozen=True, tag="settle"):
    """To the home: these numbers are finished on all partitions."""

    queue: str
    subscription: str
    numbers: list[int]


class JudgeMarks(Request, frozen=True, tag="judge_marks"):
    """To the home: which of these (partition, id, number, token) are no reservation's."""

    queue: str
    subscription: str
    marks: list[tuple[int, int, int, int]]


class Decide(Request, frozen=True, tag="decide"):
    """To the app's home: these are the winners of a batch, for ever."""

    queue: str
    app: str
    batch: int
    winners: list[tuple[int, int, int]]


class Reveal(Request, frozen=True, tag="reveal"):
    """Makes the stages with these tokens visible and drops the others, up to this batch."""

    queue: str
    app: str
    batch: int
    tokens: list[int]
    partitions: list[int]


class Decided(Request, frozen=True, tag="decided"):
    """To the home: all partitions have done it."""

    queue: str
    app: str
    batch: int


class ListStages(Request, frozen=True, tag="list_stages"):
    """The tokens of a batch's stages here."""

    queue: str
    app: str
    batch: int


class GiveUpStages(Request, frozen=True, tag="give_up_stages"):
    """To the home: which of these (batch, token) will never be published. With `expire`, those
    that nobody has decided about are given up by this."""

    queue: str
    app: str
    stages: list[tuple[int, int]]
    expire: bool


class DropStages(Request, frozen=True, tag="drop_stages"):
    """The home has given these tokens up."""

    queue: str
    app: str
    tokens: list[int]


STREAM_REQUESTS = (
    OpenSubscription | Reserve | DescribeReservation | ReadReserved | AckThrough | Heartbeat
    | ReleaseAll | DeleteSubscription | ListSubscriptions | SubscriptionStats
    | Stage | CloseStage | Publish | Abort | LastPublished
)  # fmt: skip
#: What nodes alone ask of each other.
INNER_REQUESTS = (
    BeginReserve | SealReservation | Survey | Mark | Finish | Settle | JudgeMarks
    | Decide | Reveal | Decided | ListStages | GiveUpStages | DropStages
)  # fmt: skip

# --- answers ----------------------------------------------------------------------------------


class Opened(Answer, frozen=True, tag="opened"):
    epoch: int
    acked_through: int
    reserved_through: int


class Reserved(Answer, frozen=True, tag="reserved"):
    """Nil: there was nothing to reserve."""

    reservation: Reservation | None


class SubscriptionInfo(msgspec.Struct, array_like=True, frozen=True):
    queue: str
    subscription: str
    epoch: int
    acked_through: int
    reserved_through: int
    ttl_ms: int
    #: Since the last sign of life.
    idle_ms: int
    #: Reservations that are not acked, and their messages and bytes.
    reservations: int
    reserved_messages: int
    reserved_bytes: int
    #: When the oldest reserved message was pushed, in milliseconds since 1970; 0: there is none.
    reserved_oldest_ms: int
    #: What waits in the queue, and the age of its oldest message.
    backlog_messages: int = 0
    backlog_bytes: int = 0
    oldest_ms: int = 0


class Subscriptions(Answer, frozen=True, tag="subscriptions"):
    subscriptions: list[SubscriptionInfo]


class Published(Answer, frozen=True, tag="published"):
    messages: int
    already: bool


class LastBatch(Answer, frozen=True, tag="last_batch"):
    """Nil: nothing was published."""

    batch: int | None


class Bin(msgspec.Struct, array_like=True, frozen=True):
    """Entries that follow each other, from the first stamp to the last."""

    first: int
    last: int
    entries: int
    messages: int
    bytes: int


class Surveyed(Answer, frozen=True, tag="surveyed"):
    bins: list[Bin]
    #: The stamp up to which the bins tell all; 0: they tell all there is.
    covers: int


class Held(msgspec.Struct, array_like=True, frozen=True):
    """What a mark has made on one partition."""

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
    """What the partitions have to be told: (number, acked, (partition, id)...)."""

    debts: list[tuple[int, bool, list[tuple[int, int]]]]


class Judged(Answer, frozen=True, tag="judged"):
    """Positions of what was asked for: those that are nobody's, and those that are sealed."""

    dead: list[int]
    sealed: list[int] = msgspec.field(default_factory=list)


class Decision(Answer, frozen=True, tag="decision"):
    """The decision to carry out now, which may be that of an earlier batch."""

    batch: int
    tokens: list[int]
    messages: int


class Tokens(Answer, frozen=True, tag="tokens"):
    tokens: list[int]


STREAM_ANSWERS = (
    Opened | Reserved | Subscriptions | Published | LastBatch
    | Surveyed | Marked | Owed | Judged | Decision | Tokens
)  # fmt: skip

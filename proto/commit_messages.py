"""Commits on the wire: acks, pushes and table writes that happen together, or not at all.

The rules for every struct of ``wire`` apply: new fields are only added at the end.

A commit has one *home*, the partition of its receipts, and is decided by one log entry of the home.
Effects on other partitions are *deliveries*: the home's primary sends them, in the order of their
numbers, once the deciding entry is committed (``server.engine.outbox``).
"""

from __future__ import annotations

import msgspec

from .graph_messages import Arrival, PushWaiting
from .queue_messages import Push, PushGroup, Receipt
from .request import Answer, Request
from .table_messages import AppendKey, Put, RemoveKey, SwapKey

# A type checker sees the union, and the decoder the tags.
AnyPush = Push | PushGroup | PushWaiting
AnyWrite = Put | RemoveKey | AppendKey | SwapKey


class CommitAck(msgspec.Struct, array_like=True, frozen=True):
    """Messages of one queue, to be acknowledged."""

    queue: str
    receipts: list[Receipt]


class CommitPush(msgspec.Struct, array_like=True, frozen=True):
    """One batch; `payload` is a `Payload`."""

    push: AnyPush
    payload: bytes


# --- requests ---------------------------------------------------------------------------------


class Commit(Request, frozen=True, tag="commit"):
    """All effects, or none, under the name (producer, number).

    `partition` is the home; -1 leaves it to the node.

    Every receipt is of the home. So is the key of every write with a condition. The names of the
    writes are not used: the commit's own name makes a resend safe.
    """

    partition: int
    producer: int
    number: int
    acks: list[CommitAck]
    pushes: list[CommitPush]
    writes: list[AnyWrite]


class CommitGraph(Commit, frozen=True, tag="commit_graph"):
    """A commit that also tells the end of parents. The verb has a tag of its own: a node of an
    older version would ignore the arrivals, and their messages would wait for ever."""

    arrivals: list[Arrival] = msgspec.field(default_factory=list)


class Deliver(Request, frozen=True, tag="deliver"):
    """Between nodes: the effects of commits, from one source partition to partitions of one node.

    By position of a partition: `entries` has every delivery after the number `after` up to the last
    one listed, and the partition has taken all deliveries up to `after`. `channel` names the
    source's count of numbers: a source that lost its data begins another channel.
    """

    source: int
    channel: int
    partitions: list[int]
    after: list[int]
    entries: list[list[tuple[int, bytes]]]
    #: The ids of the queues in the entries.
    queues: list[int]


class ReadOutbox(Request, frozen=True, tag="read_outbox"):
    """Between nodes: the deliveries of a source, from its primary, once they are committed."""

    partition: int


class KnowsCommits(Request, frozen=True, tag="knows_commits"):
    """Between nodes: a node of an older version refuses this request."""


# --- answers ----------------------------------------------------------------------------------


class Committed(Answer, frozen=True, tag="committed"):
    #: An earlier attempt of this commit was executed.
    already: bool
    #: The partition of each push.
    partitions: list[int]


class Outbox(Answer, frozen=True, tag="outbox"):
    """The first deliveries to each destination, by position, as in `Deliver`."""

    channel: int
    partitions: list[int]
    after: list[int]
    entries: list[list[tuple[int, bytes]]]
    queues: list[list[int]]


class Taken(Answer, frozen=True, tag="taken"):
    """The last delivery that each partition has taken from the source."""

    numbers: list[int]

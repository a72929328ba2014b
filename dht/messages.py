"""Messages between nodes, about the view, partitions and queues.

All messages are idempotent: a message may be lost, delayed, duplicated or reordered, and the
receiver answers from its current state. Frames carry the cluster's id and the sender's name; a node
that is not, or no longer, in the view gets no answer.
"""

from __future__ import annotations

import msgspec

from weft.proto import wire

from .view import View

#: (counter, boot, node): each start raises the boot, so no ballot is ever used twice.
Ballot = tuple[int, int, str]
#: The epochs of a log and the first lsn of each, in order, beginning with the log's base.
Lineage = list[tuple[int, int]]
#: (lsn, epoch, changes, payloads by key: None for a payload deleted since).
Entry = tuple[int, int, bytes, list[tuple[bytes, bytes | None]]]
#: A key and its sealed value.
Row = tuple[bytes, bytes]


class PeerMessage(msgspec.Struct, array_like=True, frozen=True):
    """Base of all messages between nodes."""


# --- the register that holds the view ---------------------------------------------------------


class Prepare(PeerMessage, frozen=True, tag="prepare"):
    ballot: Ballot


class Promise(PeerMessage, frozen=True, tag="promise"):
    ballot: Ballot
    accepted: Ballot
    view: View


class Accept(PeerMessage, frozen=True, tag="accept"):
    ballot: Ballot
    view: View


class Accepted(PeerMessage, frozen=True, tag="accepted"):
    ballot: Ballot


class ProposalRejected(PeerMessage, frozen=True, tag="reject"):
    """The voter refuses `ballot`: `promised` is higher."""

    ballot: Ballot
    promised: Ballot


class Announce(PeerMessage, frozen=True, tag="announce"):
    """A chosen view."""

    view: View


class Ping(PeerMessage, frozen=True, tag="ping"):
    """The sender is alive, and knows `version` of the view."""

    version: int
    #: The sender's disk is at its reserve and takes no more pushes.
    full: bool = False


# --- partitions -------------------------------------------------------------------------------


class Seal(PeerMessage, frozen=True, tag="seal"):
    """A new primary asks for a promise of `epoch` and for the extent of the receiver's log."""

    partition: int
    epoch: int


class SealReply(PeerMessage, frozen=True, tag="sealed"):
    partition: int
    epoch: int
    lineage: Lineage
    end: int


class Fetch(PeerMessage, frozen=True, tag="fetch"):
    """A new primary asks the member with the most advanced log for missing entries."""

    partition: int
    epoch: int
    first: int


class Fetched(PeerMessage, frozen=True, tag="fetched"):
    partition: int
    epoch: int
    previous: tuple[int, int]  # (lsn, epoch) of the entry before the first
    entries: list[Entry]


class AppendEntries(PeerMessage, frozen=True, tag="append"):
    """The primary's entries after `previous`; the receiver cuts off conflicting entries."""

    partition: int
    epoch: int
    previous: tuple[int, int]
    entries: list[Entry]
    #: The commit index: entries up to here may be applied.
    committed: int
    #: No follower asks for entries up to here again: droppable once applied.
    trim: int
    #: The version of the view that made the receiver a learner, if in the same epoch; else 0.
    since: int = 0
    #: The primary does not wait for the answer, which may go with the next ping.
    lazy: bool = False


class EntriesAppended(PeerMessage, frozen=True, tag="appended"):
    """The follower's log durably equals the primary's up to `lsn`; `since` is the request's."""

    partition: int
    epoch: int
    lsn: int
    since: int = 0


class Commits(PeerMessage, frozen=True, tag="commits"):
    """Commit indexes that are new to the receiver, as (partition, epoch, lsn)."""

    commits: list[tuple[int, int, int]]


class Need(PeerMessage, frozen=True, tag="need"):
    """The follower lacks the primary's `previous`, and reports the extent of its own log."""

    partition: int
    epoch: int
    lineage: Lineage
    end: int


class Install(PeerMessage, frozen=True, tag="install"):
    """A piece of the state as of `at` (lsn, epoch), for a learner that needs the whole state.

    The first piece (`number` 0) replaces the learner's state; the last one completes the replica.
    """

    partition: int
    epoch: int
    at: tuple[int, int]
    number: int
    rows: list[Row]
    last: bool
    since: int = 0
    #: The number of the snapshot transfer, counted by the primary.
    transfer: int = 0


class Installed(PeerMessage, frozen=True, tag="installed"):
    """The learner has the piece durably; a number below 0: the learner has none, begin again."""

    partition: int
    epoch: int
    lsn: int
    number: int
    transfer: int = 0


class FencedReply(PeerMessage, frozen=True, tag="fenced"):
    """The sender has promised the newer epoch `epoch`."""

    partition: int
    epoch: int


class Confirm(PeerMessage, frozen=True, tag="confirm"):
    """The primary asks if the receiver's promises still allow the lead: (partition, epoch, ticket)
    each."""

    questions: list[tuple[int, int, int]]


class Confirmed(PeerMessage, frozen=True, tag="confirmed"):
    """Up to the moment of the question, the sender has promised no newer epoch for any of these."""

    answers: list[tuple[int, int, int]]


# --- queues over nodes --------------------------------------------------------------------------


class PeerRequest(PeerMessage, frozen=True, tag="ask"):
    """A request of one node to another, for the node itself or for one of its clients."""

    rid: int
    request: wire.AnyRequest
    payload: list[bytes]
    #: (node, rid): the sender forwards the request for this node, which gets the answer under its
    #: own rid. A receiver of a version without the field answers the sender, which relays.
    reply_to: tuple[str, int] | None = None


class PeerReply(PeerMessage, frozen=True, tag="reply"):
    rid: int
    answer: wire.AnyAnswer
    payload: list[bytes]


class ReadyAnnouncement(PeerMessage, frozen=True, tag="stock"):
    """The sender's ready messages, by queue, for queues with a metadata list at the receiver.

    A later announcement (by boot and number) replaces an earlier one; an unnamed queue is empty.
    """

    boot: int
    number: int
    ready: dict[str, int]


#: Messages about the view, or about many partitions at once.
ViewMessage = (
    Prepare | Promise | Accept | Accepted | ProposalRejected | Announce | Ping
    | Confirm | Confirmed | Commits
)  # fmt: skip
PartitionMessage = (
    Seal
    | SealReply
    | Fetch
    | Fetched
    | AppendEntries
    | EntriesAppended
    | Need
    | Install
    | Installed
    | FencedReply
)
QueueMessage = PeerRequest | PeerReply | ReadyAnnouncement
AnyMessage = ViewMessage | PartitionMessage | QueueMessage

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(AnyMessage).decode

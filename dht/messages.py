"""What nodes say to each other about the view and about partitions.

All of them are idempotent: each may be lost, delayed, doubled or overtaken, and is answered from
the receiver's state as it is then. Frames carry the cluster's id and the sender's name; a node
that is not in the view, or no longer, is not answered.
"""

from __future__ import annotations

import msgspec

from weft.proto import wire

from .view import View

#: (counter, boot, node): a boot is raised at each start, so no ballot is ever used twice.
Ballot = tuple[int, int, str]
#: The epochs of a log and the first lsn of each, in order; it begins with the log's base.
Lineage = list[tuple[int, int]]
#: (lsn, epoch, changes, payloads by key: None for one that is gone again).
Entry = tuple[int, int, bytes, list[tuple[bytes, bytes | None]]]
#: A key and its sealed value.
Row = tuple[bytes, bytes]


class Message(msgspec.Struct, array_like=True, frozen=True):
    """Base of all messages between nodes."""


# --- the register that holds the view ---------------------------------------------------------


class Prepare(Message, frozen=True, tag="prepare"):
    ballot: Ballot


class Promise(Message, frozen=True, tag="promise"):
    ballot: Ballot
    accepted: Ballot
    view: View


class Accept(Message, frozen=True, tag="accept"):
    ballot: Ballot
    view: View


class Accepted(Message, frozen=True, tag="accepted"):
    ballot: Ballot


class Reject(Message, frozen=True, tag="reject"):
    """`ballot` was refused: `promised` is higher."""

    ballot: Ballot
    promised: Ballot


class Announce(Message, frozen=True, tag="announce"):
    """A view that was chosen."""

    view: View


class Ping(Message, frozen=True, tag="ping"):
    """I am here, and know this version of the view."""

    version: int
    #: My disk is at its reserve: no more pushes, please.
    full: bool = False


# --- partitions -------------------------------------------------------------------------------


class Seal(Message, frozen=True, tag="seal"):
    """Promise me `epoch`, and say what you hold."""

    partition: int
    epoch: int


class Sealed(Message, frozen=True, tag="sealed"):
    partition: int
    epoch: int
    lineage: Lineage
    end: int


class Fetch(Message, frozen=True, tag="fetch"):
    """A new primary asks the member with the longest log for what it lacks itself."""

    partition: int
    epoch: int
    first: int


class Fetched(Message, frozen=True, tag="fetched"):
    partition: int
    epoch: int
    previous: tuple[int, int]  # (lsn, epoch) of the entry before the first
    entries: list[Entry]


class Append(Message, frozen=True, tag="append"):
    """The primary's entries after `previous`; what contradicts them is cut off."""

    partition: int
    epoch: int
    previous: tuple[int, int]
    entries: list[Entry]
    #: What is committed, and so may be applied.
    committed: int
    #: What no follower will ask for again, and so may be dropped once it is applied.
    trim: int
    #: The version of the view in which the receiver became a learner, if that was in this epoch.
    since: int = 0
    #: Nobody waits for the answer: it may go with the next ping.
    lazy: bool = False


class Appended(Message, frozen=True, tag="appended"):
    """My log equals yours up to `lsn`, durably; `since` as it was asked for."""

    partition: int
    epoch: int
    lsn: int
    since: int = 0


class Commits(Message, frozen=True, tag="commits"):
    """What has been committed of some partitions since you last heard: (partition, epoch, lsn)."""

    commits: list[tuple[int, int, int]]


class Need(Message, frozen=True, tag="need"):
    """I do not have your `previous`; this is what I hold."""

    partition: int
    epoch: int
    lineage: Lineage
    end: int


class Install(Message, frozen=True, tag="install"):
    """A piece of the state as it was at `at` (lsn, epoch), for a learner that needs all of it.

    The first piece (`number` 0) replaces whatever is there; the last one makes it a replica.
    """

    partition: int
    epoch: int
    at: tuple[int, int]
    number: int
    rows: list[Row]
    last: bool
    since: int = 0
    #: Which of the primary's sendings it belongs to.
    sending: int = 0


class Installed(Message, frozen=True, tag="installed"):
    """I have this piece, durably; a number below 0: I have none of it, begin again."""

    partition: int
    epoch: int
    lsn: int
    number: int
    sending: int = 0


class Fenced(Message, frozen=True, tag="fenced"):
    """I have promised a newer epoch."""

    partition: int
    epoch: int


class Confirm(Message, frozen=True, tag="confirm"):
    """Do I still lead these, as far as you have promised? (partition, epoch, ticket) each."""

    questions: list[tuple[int, int, int]]


class Confirmed(Message, frozen=True, tag="confirmed"):
    """I have promised nobody else these, up to the moment at which I was asked."""

    answers: list[tuple[int, int, int]]


# --- queues over nodes --------------------------------------------------------------------------


class Ask(Message, frozen=True, tag="ask"):
    """A request that a node makes of another one, for itself or for one of its clients."""

    rid: int
    request: wire.AnyRequest
    payload: list[bytes]


class Reply(Message, frozen=True, tag="reply"):
    rid: int
    answer: wire.AnyAnswer
    payload: list[bytes]


class Stock(Message, frozen=True, tag="stock"):
    """What this node has ready of queues whose metadata list the receiver keeps.

    A later one (by boot and number) replaces an earlier one; a queue that is not named is empty.
    """

    boot: int
    number: int
    ready: dict[str, int]


#: About the view, or about many partitions at once.
ViewMessage = (
    Prepare | Promise | Accept | Accepted | Reject | Announce | Ping
    | Confirm | Confirmed | Commits
)  # fmt: skip
PartitionMessage = (
    Seal | Sealed | Fetch | Fetched | Append | Appended | Need | Install | Installed | Fenced
)
QueueMessage = Ask | Reply | Stock
AnyMessage = ViewMessage | PartitionMessage | QueueMessage

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(AnyMessage).decode

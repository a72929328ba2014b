"""What nodes say to each other about the view and about partitions.

All of them are idempotent: each may be lost, delayed, doubled or overtaken, and is answered from
the receiver's state as it is then. Frames carry the cluster's id and the sender's name; a node
that is not in the view, or no longer, is not answered.
"""

from __future__ import annotations

import msgspec

from .view import View

#: (counter, boot, node): a boot is raised at each start, so no ballot is ever used twice.
Ballot = tuple[int, int, str]
#: The epochs of a log and the first lsn of each, in order.
Lineage = list[tuple[int, int]]
#: (lsn, epoch, data).
Entry = tuple[int, int, bytes]


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


class Appended(Message, frozen=True, tag="appended"):
    """My log equals yours up to `lsn`, durably."""

    partition: int
    epoch: int
    lsn: int


class Need(Message, frozen=True, tag="need"):
    """I do not have your `previous`; this is what I hold."""

    partition: int
    epoch: int
    lineage: Lineage
    end: int


class Fenced(Message, frozen=True, tag="fenced"):
    """I have promised a newer epoch."""

    partition: int
    epoch: int


AnyMessage = (
    Prepare | Promise | Accept | Accepted | Reject | Announce | Ping
    | Seal | Sealed | Fetch | Fetched | Append | Appended | Need | Fenced
)  # fmt: skip

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(AnyMessage).decode

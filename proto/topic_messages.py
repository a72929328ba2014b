"""Topics and multicast on the wire: one batch to several queues, all or none.

The rules for every struct of ``wire`` apply: new fields are only added at the end.
"""

from __future__ import annotations

import msgspec

from weft import limits

from .request import Answer, Request

# --- pushes to several queues -----------------------------------------------------------------


class Multicast(Request, frozen=True, tag="multicast"):
    """Pushes one batch to each of several queues: all of them store the batch, or none."""

    queues: list[str]
    producer: int
    batch: int
    count: int
    delay_ms: int = 0
    priority: int = 0
    dedup_key: str | None = None
    #: The group in grouped queues. Messages with equal keys have one order in all of them.
    conflict_key: str | None = None


class PushTopic(Request, frozen=True, tag="push_topic"):
    """Pushes each message of a batch to the queues that are bound to a topic, all or none."""

    topic: str
    producer: int
    batch: int
    count: int
    delay_ms: int = 0
    priority: int = 0
    dedup_key: str | None = None
    conflict_key: str | None = None


# --- administration ---------------------------------------------------------------------------


class Binding(msgspec.Struct, array_like=True, frozen=True):
    """A queue that gets messages of a topic. A message without a wanted header does not match."""

    queue: str
    #: Header name -> the value that a message must have.
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    #: Header name -> the beginning of the value that a message must have.
    prefixes: dict[str, str] = msgspec.field(default_factory=dict)


class TopicInfo(msgspec.Struct, array_like=True, frozen=True):
    name: str
    bindings: list[Binding]


class CreateTopic(Request, frozen=True, tag="create_topic"):
    topic: str


class DeleteTopic(Request, frozen=True, tag="delete_topic"):
    topic: str


class Bind(Request, frozen=True, tag="bind"):
    """Adds a queue to a topic, or replaces the filter of a bound queue."""

    topic: str
    queue: str
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    prefixes: dict[str, str] = msgspec.field(default_factory=dict)


class Unbind(Request, frozen=True, tag="unbind"):
    """Removes a queue from a topic. `Done` counts 0 if the queue was not bound."""

    topic: str
    queue: str


class ListTopics(Request, frozen=True, tag="list_topics"):
    prefix: str = ""
    #: Return names after this one, in pages of `limit`.
    after: str = ""
    limit: int = limits.TOPICS_PAGE


class DescribeTopic(Request, frozen=True, tag="describe_topic"):
    topic: str


class KnowsMulticast(Request, frozen=True, tag="knows_multicast"):
    """Between nodes: a member that knows topics and multicasts answers `Done`."""


class EnableMulticast(Request, frozen=True, tag="enable_multicast"):
    """Between nodes, to the catalogue's primary: every member knows topics and multicasts."""


# --- answers ----------------------------------------------------------------------------------


class QueueCopy(msgspec.Struct, array_like=True, frozen=True):
    """The messages of a batch in one queue: body `n` has the index `first + n` in the batch."""

    queue: str
    producer: int
    batch: int
    first: int
    #: (first, count) of the bodies that the queue gets; a topic's filter may leave others out.
    ranges: list[tuple[int, int]]
    #: The queue has the message already, from this push or from another under the dedup key.
    duplicate: bool = False
    #: The partition of this copy; -1: that of the answer.
    partition: int = -1


class Multicasted(Answer, frozen=True, tag="multicasted"):
    partition: int
    copies: list[QueueCopy]
    #: "disk" (fsynced before this answer) or "os" (in the page cache).
    durability: str


class Topics(Answer, frozen=True, tag="topics"):
    topics: list[TopicInfo]
    #: There are more topics after these.
    more: bool = False

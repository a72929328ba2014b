"""A batch's head: the stored metadata of a batch, without the message bodies.

A batch is immutable, the state of its messages is not. The head lists the live messages and their
state as disjoint *parts*: ranges of messages with the same queue, delivery count and due time. An
acked message is in no part; a batch without parts is deleted. A new batch has one part. A lease is
not in the head, because a lease is volatile and ends with a restart.

A dead letter never moves on disk: its part changes to another queue, in the same batch, on the same
partition. So a dead-letter move is one atomic write, and is neither lost nor duplicated.
"""

from __future__ import annotations

import msgspec


class Part(msgspec.Struct, array_like=True, frozen=True):
    """Messages `first` to `first + count - 1` of a batch."""

    first: int
    count: int
    #: The id of the messages' queue.
    queue: int
    #: Deliveries ended without an ack.
    deliveries: int = 0
    #: Earliest delivery time, in microseconds since 1970.
    due: int = 0
    #: Of dead letters: the reason, and the name of the original queue.
    reason: str = ""
    origin: str = ""
    #: The number of the hold with these messages, in the same partition (see ``hold``). 0: none.
    hold: int = 0
    #: Deliveries with a lease expired after the hand-out: the message may have crashed the worker.
    crashes: int = 0


class Head(msgspec.Struct, array_like=True, frozen=True):
    """Stored under partition and lsn. New fields are added only at the end."""

    #: The id of the queue of the push.
    queue: int
    producer: int
    batch: int
    count: int
    #: Bytes of the payload.
    size: int
    stamp: int
    priority: int
    dedup_key: str | None
    parts: list[Part]


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Head).decode

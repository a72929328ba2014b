"""A batch's head: all that is known of a batch but its bodies, as it is stored.

A batch is immutable, what happens to its messages is not. The head says which of them still live
and in which state, as disjoint *parts*: ranges of messages that share a queue, a delivery count
and a due time. An acked message is in no part; a batch without parts is gone. A new batch has one
part. A lease is not in the head: it is volatile, and a restart voids it.

A dead letter never moves: its part is given to another queue, in the same batch, on the same
partition. So a dead-letter move is one atomic write, and is neither lost nor doubled.
"""

from __future__ import annotations

import msgspec


class Part(msgspec.Struct, array_like=True, frozen=True):
    """Messages `first` to `first + count - 1` of a batch."""

    first: int
    count: int
    #: The id of the queue they wait in.
    queue: int
    #: Deliveries that ended without an ack.
    deliveries: int = 0
    #: Not before this time, in microseconds since 1970.
    due: int = 0
    #: Why they are dead letters, and the name of the queue they came from.
    reason: str = ""
    origin: str = ""
    #: Set aside: by the hold of this number in the same partition (see ``hold``). 0: by nobody.
    hold: int = 0


class Head(msgspec.Struct, array_like=True, frozen=True):
    """Stored under its partition and lsn. Fields are only ever added at the end."""

    #: The id of the queue it was pushed to.
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

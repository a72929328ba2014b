"""A batch's head: the stored metadata of a batch, without the message bodies.

A batch is immutable, the state of its messages is not. The head lists the live messages and their
state as disjoint *parts*: ranges of messages with the same queue, delivery count and due time. An
acked message is in no part; a batch without parts is deleted. A new batch has one part. A lease is
not in the head, because a lease is volatile and ends with a restart.

A dead letter never moves on disk: its part changes to another queue, in the same batch, on the same
partition. So a dead-letter move is one atomic write, and is neither lost nor duplicated.
"""

from __future__ import annotations

from typing import Final

import msgspec

#: `Part.waits` of messages of a task graph that wait for no parent any more.
RELEASED: Final = -1


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
    #: Of a message of a task graph: the parents that it waits for, or RELEASED (``parent_counts``).
    waits: int = 0


class Proposal(msgspec.Struct, array_like=True, frozen=True):
    """Of a multicast to several partitions: its state on this partition (``proposal``)."""

    #: The name of the attempt.
    token: int
    #: The partition that decides.
    coordinator: int
    conflict_key: str | None
    #: True: the head's stamp is the sequence number, the same on all partitions. False: the stamp
    #: is this partition's timestamp, and the messages are in no queue.
    decided: bool = False
    #: At the coordinator: the other partitions.
    participants: list[int] = []


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
    #: The group, for a batch pushed to a grouped queue.
    group: str | None = None
    #: Of a multicast: the ids of its destinations. The payload has the bodies once. Destination
    #: `k` has messages `k * bodies` to `(k + 1) * bodies - 1`, and `count` is of all copies.
    queues: list[int] | None = None
    #: The tenant, for a batch pushed with a tenant.
    tenant: str | None = None
    #: Of a multicast to several partitions, until the head is written for another reason after the
    #: decision.
    proposal: Proposal | None = None

    @property
    def label(self) -> str:
        """The group or the tenant; a batch has one of them at most."""
        return self.group or self.tenant or ""

    @property
    def bodies(self) -> int:
        """Messages in the payload: those of each copy."""
        return self.count if self.queues is None else self.count // len(self.queues)

    @property
    def destinations(self) -> list[int]:
        return [self.queue] if self.queues is None else self.queues


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Head).decode

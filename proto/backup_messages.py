"""Backup and restore on the wire.

The rules for every struct of ``wire`` apply: new fields are only added at the end.
"""

from __future__ import annotations

import msgspec

from .request import Answer, Request


class KeptPart(msgspec.Struct, array_like=True, frozen=True):
    """Messages `first` to `first + count - 1` of a batch in a backup."""

    first: int
    count: int
    #: The name of the queue with the waiting messages.
    queue: str
    deliveries: int = 0
    #: Not before this time, in microseconds since 1970.
    due: int = 0
    #: The dead-letter reason, and the original queue.
    reason: str = ""
    origin: str = ""
    #: Of a message of a task graph: the parents that it waits for, or -1 once it was released.
    waits: int = 0


class Kept(msgspec.Struct, array_like=True, frozen=True):
    """A batch of a node, as stored in a backup. New fields are only added at the end."""

    #: The queue of the push.
    queue: str
    producer: int
    batch: int
    count: int
    #: The time of the push, in microseconds since 1970.
    stamp: int
    priority: int
    dedup_key: str | None
    parts: list[KeptPart]
    #: A `Payload`; messages in no part have empty bodies.
    payload: bytes
    #: The group, for a batch of a grouped queue.
    group: str | None = None
    #: Of a multicast: the destinations of its copies, "" for a deleted queue. `payload` then has
    #: the bodies of one copy, and `count` is of all copies.
    queues: list[str] | None = None
    #: The tenant, for a batch pushed with a tenant.
    tenant: str | None = None

    @property
    def bodies(self) -> int:
        return self.count if self.queues is None else self.count // max(1, len(self.queues))


# --- requests ---------------------------------------------------------------------------------


class Snapshot(Request, frozen=True, tag="snapshot"):
    """A page of a partition's contents, requested from the primary: batches, then table rows.

    The caller requests the next page with the `lsn` and the `key` of the answer.
    """

    partition: int
    #: Only the messages of this queue, and no rows.
    queue: str | None = None
    after_lsn: int = 0
    #: Nil: batches first.
    after_key: str | None = None
    #: The caller keeps `KeptPart.waits`: otherwise a partition with waiting messages is refused,
    #: because the caller's backup would deliver them at once.
    graphs: bool = False


class Restore(Request, frozen=True, tag="restore"):
    """Restores a batch. The batches of one backup reach a partition in the order of `number`; the
    partition skips a batch that it has taken before."""

    queue: str
    #: The backup's 128-bit id as two numbers.
    backup: tuple[int, int]
    number: int
    kept: Kept
    #: Restore only messages of the batch that a purge or a delete removed from this cluster.
    #: `number` then counts down from -1: a node that does not know this field refuses the request
    #: instead of restoring all messages.
    purged_only: bool = False
    #: The batch's second name, as `backup` and `number`: a restore of one queue and a restore of
    #: the whole backup recognise each other's batches by this name. Zeros: no second name.
    also: tuple[int, int, int] = (0, 0, 0)


class RestoreWaiting(Restore, frozen=True, tag="restore_waiting"):
    """Restores a batch with waiting messages. The verb has a tag of its own: a node of an older
    version would ignore `KeptPart.waits`, and deliver the messages at once."""


# --- answers ----------------------------------------------------------------------------------


class Snapped(Answer, frozen=True, tag="snapped"):
    batches: list[Kept]
    rows: list[tuple[str, bytes]]
    #: The start of the next page, if there is `more`.
    lsn: int
    key: str | None
    more: bool
    #: The time to live that is left of each row, at least 1; 0: the row does not expire.
    ttls_ms: list[int] = msgspec.field(default_factory=list)

"""Administration of queues on the wire: create, update, delete, list, describe, purge, redrive.

The rules for every struct of ``wire`` apply: new fields are only added at the end.
"""

from __future__ import annotations

import msgspec

from .request import Answer, Request
from .settings import Settings

# --- requests ---------------------------------------------------------------------------------


class CreateQueue(Request, frozen=True, tag="create_queue"):
    queue: str
    settings: Settings


class UpdateQueue(Request, frozen=True, tag="update_queue"):
    """Changes the settings named in `changes`; the others stay."""

    queue: str
    changes: dict[str, int | str | bool]


class DeleteQueue(Request, frozen=True, tag="delete_queue"):
    queue: str


class ListQueues(Request, frozen=True, tag="list_queues"):
    prefix: str = ""
    #: Return names after this one, in pages of `limit`.
    after: str = ""
    limit: int = 1000


class DescribeQueue(Request, frozen=True, tag="describe_queue"):
    queue: str


class PurgeQueue(Request, frozen=True, tag="purge_queue"):
    queue: str


class Redrive(Request, frozen=True, tag="redrive"):
    """Returns dead letters to their original queues; `limit` 0 means all."""

    queue: str
    limit: int = 0


# --- answers ----------------------------------------------------------------------------------


class QueueInfo(msgspec.Struct, array_like=True, frozen=True):
    name: str
    settings: Settings
    ready: int
    leased: int
    delayed: int
    bytes: int
    #: Age of the oldest waiting message, in milliseconds; 0 when there is none.
    oldest_ms: int
    pushed: int
    delivered: int
    acked: int
    dead_lettered: int
    expired_leases: int
    duplicates: int
    waiting_pops: int
    #: Messages held for subscriptions, and messages staged but not published.
    reserved: int = 0
    staged: int = 0
    #: Bytes that are neither reserved nor staged.
    backlog_bytes: int = 0
    #: Partitions missing from these counts, because no node that answered leads them.
    uncounted_partitions: int = 0
    #: Ids of the nodes that lead such partitions and did not answer.
    missing_nodes: list[str] = msgspec.field(default_factory=list)


class Queues(Answer, frozen=True, tag="queues"):
    queues: list[QueueInfo]
    more: bool
    #: Number of counted partitions, without the catalogue; -1 if not reported.
    counted: int = -1


class Created(Answer, frozen=True, tag="created"):
    """`created` is False when a queue with exactly these settings existed already."""

    created: bool

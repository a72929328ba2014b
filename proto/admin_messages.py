"""Administration of queues on the wire: create, update, delete, list, describe, purge, redrive.

The rules for every struct of ``wire`` apply: new fields are only added at the end.
"""

from __future__ import annotations

import msgspec

from .request import Answer, Request
from .settings import SHARE_WHOLE, Settings

# --- requests ---------------------------------------------------------------------------------


class CreateQueue(Request, frozen=True, tag="create_queue"):
    queue: str
    settings: Settings


class CreateGroupedQueue(CreateQueue, frozen=True, tag="create_grouped_queue"):
    """Creates a queue with the setting `grouped`. The verb has a tag of its own because a node of
    an older version would ignore the unknown setting and create a plain queue."""


class CreateKeptQueue(CreateQueue, frozen=True, tag="create_kept_queue"):
    """Creates a queue with the setting `keep_leases`. The verb has a tag of its own because a node
    of an older version would ignore the setting."""


class CreateLimitedQueue(CreateQueue, frozen=True, tag="create_limited_queue"):
    """Creates a queue with a share or a limit, grouped or not. The verb has a tag of its own: a
    node of an older version would ignore the unknown settings."""


class KnowsLimits(Request, frozen=True, tag="knows_limits"):
    """Between nodes: a member that knows shares and limits answers `Done`. While a member does not
    know the request, no queue gets a share or a limit."""


class CreateExpiringQueue(CreateQueue, frozen=True, tag="create_expiring_queue"):
    """Creates a queue with the setting `expire_idle_ms`. The verb has a tag of its own because a
    node of an older version would ignore the unknown setting and keep the queue for ever."""


class CreateGraphQueue(CreateQueue, frozen=True, tag="create_graph_queue"):
    """Creates a queue with the setting `graphs`, with or without a share or a limit. The verb has a
    tag of its own: a node of an older version would ignore the unknown setting."""


def create_request(name: str, settings: Settings) -> CreateQueue:
    """The request that creates a queue with these settings."""
    if settings.graphs:
        return CreateGraphQueue(name, settings)
    if settings.has_limits:
        return CreateLimitedQueue(name, settings)
    if settings.stochastic:
        return CreateStochasticQueue(name, settings)
    if settings.grouped:
        return CreateGroupedQueue(name, settings)
    if settings.keep_leases:
        return CreateKeptQueue(name, settings)
    return (CreateExpiringQueue if settings.expire_idle_ms else CreateQueue)(name, settings)


class IdleTimes(Request, frozen=True, tag="idle_times"):
    """Between nodes: how long each of these queues was not used on the node."""

    queues: list[str]


class KnowsGroups(Request, frozen=True, tag="knows_groups"):
    """Between nodes: a member that knows message groups answers `Done`. A member of an older
    version does not know the request, and no grouped queue is created."""


class CreateStochasticQueue(CreateQueue, frozen=True, tag="create_stochastic_queue"):
    """Creates a queue of the kind `stochastic`. The verb has a tag of its own because a node of an
    older version would ignore the unknown setting and create a plain queue."""


class KnowsStochastic(Request, frozen=True, tag="knows_stochastic"):
    """Between nodes: a member that knows stochastic queues answers `Done`. A member of an older
    version does not know the request, and no stochastic queue is created."""


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


class IdleFor(Answer, frozen=True, tag="idle_for"):
    """In the order of the question; 0 for a queue in use, and for an unknown one."""

    idle_ms: list[int]


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
    #: The topics that feed the queue.
    topics: list[str] = msgspec.field(default_factory=list)
    #: Of a stochastic queue, since the nodes started: pops that reached a node, those that found no
    #: message, those that waited there, and their waiting time in microseconds.
    probes: int = 0
    empty_probes: int = 0
    blocked_pops: int = 0
    blocked_us: int = 0
    #: Pushes refused by a full buffer, and how long producers waited for room, in microseconds.
    full_buffers: int = 0
    room_wait_us: int = 0
    #: The recent use of the nodes' time while queues competed for the time, by this queue and by
    #: all queues, in microseconds.
    charged_us: int = 0
    charged_total_us: int = 0
    #: Messages of task graphs that wait for parents: no pop gets them yet.
    waiting: int = 0

    @property
    def share_asked(self) -> float:
        """The part of the nodes' time that the queue claims; 0 if it claims none."""
        return self.settings.share / SHARE_WHOLE

    @property
    def share_got(self) -> float:
        """The part that the queue got; 0 while no queues compete for the nodes."""
        return self.charged_us / self.charged_total_us if self.charged_total_us else 0.0


class Queues(Answer, frozen=True, tag="queues"):
    queues: list[QueueInfo]
    more: bool
    #: Number of counted partitions, without the catalogue; -1 if not reported.
    counted: int = -1


class Created(Answer, frozen=True, tag="created"):
    """`created` is False when a queue with exactly these settings existed already."""

    created: bool

"""The table of verbs: one row per request, with all its facts (``verb`` defines the columns).

To add a verb: its struct, its row here, its handler. CONTRIBUTING.md shows an example.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .admin_messages import (
    Created,
    CreateQueue,
    DeleteQueue,
    DescribeQueue,
    ListQueues,
    PurgeQueue,
    Queues,
    Redrive,
    UpdateQueue,
)
from .backup_messages import Restore, Snapped, Snapshot
from .cluster_messages import (
    CatchUp,
    ClusterInfo,
    ClusterStatus,
    GetView,
    Join,
    Joined,
    Leave,
    Status,
    StatusInfo,
    ViewInfo,
)
from .queue_messages import (
    Ack,
    Cancel,
    Extend,
    Nack,
    Nodes,
    Peek,
    Peeked,
    Pop,
    Popped,
    Push,
    Pushed,
    Settled,
    StopWaiting,
    Where,
)
from .recovery_messages import Copies, CopiesInfo, Recover, Recovery
from .request import Answer, Done, Failure, Request
from .stage_messages import (
    Abort,
    CloseStage,
    Decide,
    Decided,
    Decision,
    DropStages,
    GiveUpStages,
    LastBatch,
    LastPublished,
    ListStages,
    Publish,
    PublishResult,
    Reveal,
    StageBatch,
    StageTokens,
)
from .subscription_messages import (
    AckThrough,
    BeginReserve,
    DeleteSubscription,
    DescribeReservation,
    DescribeSubscription,
    Finish,
    Heartbeat,
    Judged,
    JudgeMarks,
    ListSubscriptions,
    Mark,
    Marked,
    Opened,
    OpenSubscription,
    Owed,
    ReadReserved,
    ReleaseAll,
    Reserve,
    Reserved,
    SealReservation,
    Settle,
    Subscriptions,
    Survey,
    Surveyed,
)
from .table_messages import Append, CompareAndSwap, Insert, Lookup, Remove, Swapped, Value
from .verb import Partitions, Permission, Quota, Repeat, Route, Verb, Wait

_PUSH, _CONSUME, _ADMIN = Permission.PUSH, Permission.CONSUME, Permission.ADMIN
_TABLE, _ANY_GRANT, _ANYONE = Permission.TABLE, Permission.ANY_GRANT, Permission.ANYONE
_OPERATOR = Permission.OPERATOR

# fmt: off
_ROWS: Final = (
    # --- the data path ---
    Verb(Push, (Pushed,), Route.PRIMARY, _PUSH, Partitions.BATCH,
         quota=Quota.PUSHES, payload=True, cached_access=True, grpc=("Queue.Push",)),
    Verb(Pop, (Popped,), Route.SEARCH, _CONSUME,
         wait=Wait.MESSAGES, cached_access=True, grpc=("Queue.Pop", "Queue.Consume")),
    Verb(Ack, (Settled,), Route.PRIMARY, _CONSUME, Partitions.RECEIPTS,
         cached_access=True, grpc=("Queue.Ack",)),
    Verb(Nack, (Settled,), Route.PRIMARY, _CONSUME, Partitions.RECEIPTS,
         cached_access=True, grpc=("Queue.Nack",)),
    Verb(Extend, (Settled,), Route.PRIMARY, _CONSUME, Partitions.RECEIPTS,
         cached_access=True, grpc=("Queue.Extend",)),
    Verb(StopWaiting, (Done,), Route.DRIVER, _ANYONE),
    Verb(Where, (Nodes, Popped), Route.NODE, _ANY_GRANT, Partitions.QUEUE, wait=Wait.MESSAGES),
    Verb(Peek, (Peeked,), Route.CLUSTER, _CONSUME, grpc=("Queue.Peek",)),
    Verb(Cancel, (Done,), Route.PRIMARY, _CONSUME, Partitions.NUMBER,
         repeat=Repeat.ONE_COPY, audited=True, grpc=("Queue.Cancel",)),
    # --- queues ---
    Verb(CreateQueue, (Created,), Route.CLUSTER, _ADMIN, Partitions.CATALOGUE,
         quota=Quota.QUEUES, audited=True, creates_queue=True, grpc=("Queue.CreateQueue",)),
    Verb(UpdateQueue, (Done,), Route.CLUSTER, _ADMIN, Partitions.CATALOGUE,
         quota=Quota.QUEUES, audited=True, grpc=("Queue.UpdateQueue",)),
    Verb(DeleteQueue, (Done,), Route.CLUSTER, _ADMIN, Partitions.CATALOGUE,
         repeat=Repeat.ONCE, audited=True, grpc=("Queue.DeleteQueue",)),
    Verb(PurgeQueue, (Done,), Route.CLUSTER, _ADMIN, Partitions.CATALOGUE,
         repeat=Repeat.ONCE, audited=True, grpc=("Queue.PurgeQueue",)),
    Verb(Redrive, (Done,), Route.CLUSTER, _ADMIN,
         repeat=Repeat.ONCE, audited=True, grpc=("Queue.Redrive",)),
    Verb(ListQueues, (Queues,), Route.CLUSTER, Permission.LISTING, grpc=("Queue.ListQueues",)),
    Verb(DescribeQueue, (Queues,), Route.CLUSTER, _ANY_GRANT, grpc=("Queue.DescribeQueue",)),
    # --- backups ---
    Verb(Snapshot, (Snapped,), Route.PRIMARY, _ADMIN, Partitions.NUMBER,
         audited=True, grpc=("Queue.Snapshot",)),
    Verb(Restore, (Pushed,), Route.PRIMARY, _ADMIN, Partitions.BATCH,
         audited=True, grpc=("Queue.Restore",)),
    # --- the table ---
    Verb(Insert, (Done,), Route.PRIMARY, _TABLE, Partitions.KEY, grpc=("Table.Insert",)),
    Verb(Lookup, (Value,), Route.PRIMARY, _TABLE, Partitions.KEY, grpc=("Table.Lookup",)),
    Verb(Remove, (Done,), Route.PRIMARY, _TABLE, Partitions.KEY,
         repeat=Repeat.ONCE, grpc=("Table.Remove",)),
    Verb(Append, (Done,), Route.PRIMARY, _TABLE, Partitions.KEY,
         repeat=Repeat.ONCE, grpc=("Table.Append",)),
    Verb(CompareAndSwap, (Swapped,), Route.PRIMARY, _TABLE, Partitions.KEY,
         repeat=Repeat.ONCE, grpc=("Table.CompareAndSwap",)),
    # --- the cluster ---
    Verb(GetView, (ViewInfo,), Route.NODE, _ANYONE, grpc=("Cluster.View",)),
    Verb(Status, (StatusInfo,), Route.DRIVER, _ANYONE, grpc=("Cluster.Status",)),
    Verb(ClusterStatus, (ClusterInfo,), Route.CLUSTER, _ANYONE, grpc=("Cluster.Places",)),
    Verb(Join, (Joined,), Route.OPERATION, _OPERATOR, audited=True, grpc=("Cluster.Join",)),
    Verb(Leave, (Done,), Route.OPERATION, _OPERATOR, audited=True, grpc=("Cluster.Leave",)),
    Verb(Recover, (Recovery,), Route.OPERATION, _OPERATOR,
         audited=True, grpc=("Cluster.Recover",)),
    # --- subscriptions ---
    Verb(OpenSubscription, (Opened,), Route.OPERATION, _CONSUME, Partitions.SUBSCRIPTION,
         grpc=("Stream.OpenSubscription",)),
    Verb(Reserve, (Reserved,), Route.OPERATION, _CONSUME, wait=Wait.WORK, grpc=("Stream.Reserve",)),
    Verb(DescribeReservation, (Reserved,), Route.OPERATION, _CONSUME, Partitions.SUBSCRIPTION,
         grpc=("Stream.DescribeReservation",)),
    Verb(ReadReserved, (Peeked,), Route.PRIMARY, _CONSUME, Partitions.NUMBER,
         grpc=("Stream.ReadReserved",)),
    Verb(AckThrough, (Done, Owed), Route.OPERATION, _CONSUME, Partitions.SUBSCRIPTION,
         wait=Wait.WORK, grpc=("Stream.AckThrough",)),
    Verb(Heartbeat, (Done,), Route.OPERATION, _CONSUME, Partitions.SUBSCRIPTION,
         grpc=("Stream.Heartbeat",)),
    Verb(ReleaseAll, (Done, Owed), Route.OPERATION, _ADMIN, Partitions.SUBSCRIPTION,
         wait=Wait.WORK, audited=True, grpc=("Stream.ReleaseAll",)),
    Verb(DeleteSubscription, (Done, Owed), Route.OPERATION, _ADMIN, Partitions.SUBSCRIPTION,
         wait=Wait.WORK, audited=True, grpc=("Stream.DeleteSubscription",)),
    Verb(ListSubscriptions, (Subscriptions,), Route.OPERATION, _ANY_GRANT,
         grpc=("Stream.ListSubscriptions",)),
    Verb(DescribeSubscription, (Subscriptions,), Route.OPERATION, _ANY_GRANT,
         Partitions.SUBSCRIPTION, grpc=("Stream.SubscriptionStats",)),
    # --- stages ---
    Verb(StageBatch, (Pushed,), Route.PRIMARY, _PUSH, Partitions.BATCH,
         quota=Quota.PUSHES, payload=True, grpc=("Stream.Stage",)),
    Verb(CloseStage, (Done,), Route.OPERATION, _PUSH, Partitions.APP, grpc=("Stream.Stage",)),
    Verb(Publish, (PublishResult,), Route.OPERATION, _PUSH,
         wait=Wait.WORK, grpc=("Stream.Publish",)),
    Verb(Abort, (Done,), Route.OPERATION, _PUSH, wait=Wait.WORK, grpc=("Stream.Abort",)),
    Verb(LastPublished, (LastBatch,), Route.OPERATION, _PUSH, Partitions.APP,
         grpc=("Stream.LastPublished",)),
    # --- between nodes ---
    Verb(CatchUp, (Done,), Route.INTERNAL),
    Verb(Copies, (CopiesInfo,), Route.INTERNAL),
    Verb(BeginReserve, (Done, Reserved), Route.INTERNAL, partitions=Partitions.SUBSCRIPTION),
    Verb(SealReservation, (Reserved,), Route.INTERNAL, partitions=Partitions.SUBSCRIPTION),
    Verb(Survey, (Surveyed,), Route.INTERNAL, partitions=Partitions.NUMBERS),
    Verb(Mark, (Marked,), Route.INTERNAL, partitions=Partitions.NUMBERS),
    Verb(Finish, (Done,), Route.INTERNAL, partitions=Partitions.HOLDS),
    Verb(Settle, (Done,), Route.INTERNAL, partitions=Partitions.SUBSCRIPTION),
    Verb(JudgeMarks, (Judged,), Route.INTERNAL, partitions=Partitions.SUBSCRIPTION),
    Verb(Decide, (Decision, PublishResult), Route.INTERNAL, partitions=Partitions.APP),
    Verb(Reveal, (Done,), Route.INTERNAL, partitions=Partitions.NUMBERS),
    Verb(Decided, (Done,), Route.INTERNAL, partitions=Partitions.APP),
    Verb(ListStages, (StageTokens,), Route.INTERNAL),
    Verb(GiveUpStages, (Judged,), Route.INTERNAL, partitions=Partitions.APP),
    Verb(DropStages, (Done,), Route.INTERNAL),
)
# fmt: on
VERBS: Final[dict[type[Request], Verb]] = {row.request: row for row in _ROWS}
#: Every type of an answer, in a stable order.
ANSWERS: Final[tuple[type[Answer], ...]] = tuple(
    dict.fromkeys([Failure, *(answer for row in _ROWS for answer in row.answers)])
)


def requests_where(fact: Callable[[Verb], bool]) -> frozenset[type[Request]]:
    """The requests with a fact. For constants: hot paths look into a set made at import time."""
    return frozenset(row.request for row in _ROWS if fact(row))


#: Requests with one payload frame.
WITH_PAYLOAD: Final = requests_where(lambda verb: verb.payload)
#: Requests with the field `wait_ms`: a node may answer late.
WAITING: Final = requests_where(lambda verb: verb.wait is not Wait.NO)
#: Requests that wait for messages of a queue, and whose answers may lease messages.
MESSAGE_WAITS: Final = requests_where(lambda verb: verb.wait is Wait.MESSAGES)
#: Requests between nodes, refused from clients.
INTERNAL: Final = requests_where(lambda verb: verb.route is Route.INTERNAL)

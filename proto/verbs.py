"""The table of verbs: one row per request, with all its facts (``verb`` defines the columns).

To add a verb: its struct, its row here, its handler. CONTRIBUTING.md shows an example.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from . import admin_messages as admin
from . import backup_messages as backup
from . import cluster_messages as cluster
from . import commit_messages as commit
from . import graph_messages as graph
from . import multicast_messages as multicast
from . import queue_messages as queue
from . import recovery_messages as recovery
from . import stage_messages as stage
from . import subscription_messages as subscription
from . import table_messages as table
from . import topic_messages as topic
from .request import Answer, Done, Failure, Request
from .verb import Partitions, Permission, Quota, Repeat, Route, Verb, Wait

_PUSH, _CONSUME, _ADMIN = Permission.PUSH, Permission.CONSUME, Permission.ADMIN
_TABLE, _ANY_GRANT, _ANYONE = Permission.TABLE, Permission.ANY_GRANT, Permission.ANYONE
_OPERATOR = Permission.OPERATOR

# fmt: off
_ROWS: Final = (
    # --- the data path ---
    Verb(queue.Push, (queue.Pushed,), Route.PRIMARY, _PUSH, Partitions.BATCH,
         quota=Quota.PUSHES, payload=True, cached_access=True,
         grpc=("Queue.Push", "Queue.PushBatch", "Queue.Produce")),
    Verb(queue.PushGroup, (queue.Pushed,), Route.PRIMARY, _PUSH, Partitions.BATCH,
         quota=Quota.PUSHES, payload=True, cached_access=True,
         grpc=("Queue.Push", "Queue.PushBatch", "Queue.Produce")),
    Verb(topic.Multicast, (topic.Multicasted,), Route.PRIMARY, _PUSH, Partitions.DESTINATIONS,
         quota=Quota.PUSHES, payload=True, grpc=("Queue.Multicast",)),
    Verb(topic.PushTopic, (topic.Multicasted,), Route.PRIMARY, _PUSH, Partitions.DESTINATIONS,
         quota=Quota.PUSHES, payload=True, grpc=("Topic.Push",)),
    Verb(queue.PushTenant, (queue.Pushed,), Route.PRIMARY, _PUSH, Partitions.BATCH,
         quota=Quota.PUSHES, payload=True, cached_access=True,
         grpc=("Queue.Push", "Queue.PushBatch", "Queue.Produce")),
    Verb(queue.Pop, (queue.Popped,), Route.SEARCH, _CONSUME,
         wait=Wait.MESSAGES, cached_access=True,
         grpc=("Queue.Pop", "Queue.PopBatches", "Queue.Consume", "Queue.Work")),
    Verb(queue.Ack, (queue.Settled,), Route.PRIMARY, _CONSUME, Partitions.RECEIPTS,
         cached_access=True,
         grpc=("Queue.Ack", "Queue.AckBatches", "Queue.Work")),
    Verb(queue.Nack, (queue.Settled,), Route.PRIMARY, _CONSUME, Partitions.RECEIPTS,
         cached_access=True,
         grpc=("Queue.Nack", "Queue.NackBatches", "Queue.Work")),
    Verb(queue.Move, (queue.Settled,), Route.PRIMARY, Permission.EFFECTS, Partitions.RECEIPTS),
    Verb(queue.Extend, (queue.Settled,), Route.PRIMARY, _CONSUME, Partitions.RECEIPTS,
         cached_access=True,
         grpc=("Queue.Extend", "Queue.ExtendBatches", "Queue.Work")),
    Verb(queue.Room, (Done,), Route.PRIMARY, _PUSH, Partitions.NUMBER,
         wait=Wait.MESSAGES, cached_access=True, grpc=("Queue.Room",)),
    Verb(queue.StopWaiting, (Done,), Route.DRIVER, _ANYONE),
    Verb(queue.Where, (queue.Nodes, queue.Popped), Route.NODE, _ANY_GRANT, Partitions.QUEUE,
         wait=Wait.MESSAGES),
    Verb(queue.Peek, (queue.Peeked,), Route.CLUSTER, _CONSUME, grpc=("Queue.Peek",)),
    Verb(queue.Cancel, (Done,), Route.PRIMARY, _CONSUME, Partitions.NUMBER,
         repeat=Repeat.ONE_COPY, audited=True, grpc=("Queue.Cancel",)),
    Verb(commit.Commit, (commit.Committed,), Route.PRIMARY, Permission.EFFECTS, Partitions.HOME,
         quota=Quota.PUSHES, grpc=("Queue.Commit",)),
    Verb(commit.CommitGraph, (commit.Committed,), Route.PRIMARY, Permission.EFFECTS,
         Partitions.HOME, quota=Quota.PUSHES),
    Verb(graph.PushWaiting, (queue.Pushed,), Route.PRIMARY, _PUSH, Partitions.BATCH,
         quota=Quota.PUSHES, payload=True),
    # --- queues ---
    Verb(admin.CreateQueue, (admin.Created,), Route.CLUSTER, _ADMIN, Partitions.CATALOGUE,
         quota=Quota.QUEUES, audited=True, creates_queue=True, grpc=("Queue.CreateQueue",)),
    Verb(admin.CreateGroupedQueue, (admin.Created,), Route.CLUSTER, _ADMIN, Partitions.CATALOGUE,
         quota=Quota.QUEUES, audited=True, creates_queue=True, grpc=("Queue.CreateQueue",)),
    Verb(admin.CreateKeptQueue, (admin.Created,), Route.CLUSTER, _ADMIN, Partitions.CATALOGUE,
         quota=Quota.QUEUES, audited=True, creates_queue=True, grpc=("Queue.CreateQueue",)),
    Verb(admin.CreateGraphQueue, (admin.Created,), Route.CLUSTER, _ADMIN, Partitions.CATALOGUE,
         quota=Quota.QUEUES, audited=True, creates_queue=True, grpc=("Queue.CreateQueue",)),
    Verb(admin.CreateExpiringQueue, (admin.Created,), Route.CLUSTER, _ADMIN, Partitions.CATALOGUE,
         quota=Quota.QUEUES, audited=True, creates_queue=True, grpc=("Queue.CreateQueue",)),
    Verb(admin.IdleTimes, (admin.IdleFor,), Route.INTERNAL),
    Verb(admin.KnowsGroups, (Done,), Route.INTERNAL),
    Verb(admin.CreateStochasticQueue, (admin.Created,), Route.CLUSTER, _ADMIN,
         Partitions.CATALOGUE, quota=Quota.QUEUES, audited=True, creates_queue=True,
         grpc=("Queue.CreateQueue",)),
    Verb(admin.KnowsStochastic, (Done,), Route.INTERNAL),
    Verb(admin.CreateLimitedQueue, (admin.Created,), Route.CLUSTER, _ADMIN, Partitions.CATALOGUE,
         quota=Quota.QUEUES, audited=True, creates_queue=True, grpc=("Queue.CreateQueue",)),
    Verb(admin.KnowsLimits, (Done,), Route.INTERNAL),
    Verb(admin.UpdateQueue, (Done,), Route.CLUSTER, _ADMIN, Partitions.CATALOGUE,
         quota=Quota.QUEUES, audited=True, grpc=("Queue.UpdateQueue",)),
    Verb(admin.DeleteQueue, (Done,), Route.CLUSTER, _ADMIN, Partitions.CATALOGUE,
         repeat=Repeat.ONCE, audited=True, grpc=("Queue.DeleteQueue",)),
    Verb(admin.PurgeQueue, (Done,), Route.CLUSTER, _ADMIN, Partitions.CATALOGUE,
         repeat=Repeat.ONCE, audited=True, grpc=("Queue.PurgeQueue",)),
    Verb(admin.Redrive, (Done,), Route.CLUSTER, _ADMIN,
         repeat=Repeat.ONCE, audited=True, grpc=("Queue.Redrive",)),
    Verb(admin.ListQueues, (admin.Queues,), Route.CLUSTER, Permission.LISTING,
         grpc=("Queue.ListQueues",)),
    Verb(admin.DescribeQueue, (admin.Queues,), Route.CLUSTER, _ANY_GRANT,
         grpc=("Queue.DescribeQueue",)),
    # --- topics ---
    Verb(topic.CreateTopic, (admin.Created,), Route.CLUSTER, _ADMIN, Partitions.CATALOGUE,
         audited=True, grpc=("Topic.Create",)),
    Verb(topic.DeleteTopic, (Done,), Route.CLUSTER, _ADMIN, Partitions.CATALOGUE,
         repeat=Repeat.ONCE, audited=True, grpc=("Topic.Delete",)),
    Verb(topic.Bind, (admin.Created,), Route.CLUSTER, _ADMIN, Partitions.CATALOGUE,
         audited=True, grpc=("Topic.Bind",)),
    Verb(topic.Unbind, (Done,), Route.CLUSTER, _ADMIN, Partitions.CATALOGUE,
         repeat=Repeat.ONCE, audited=True, grpc=("Topic.Unbind",)),
    Verb(topic.ListTopics, (topic.Topics,), Route.OPERATION, Permission.LISTING,
         Partitions.CATALOGUE, grpc=("Topic.List",)),
    Verb(topic.DescribeTopic, (topic.Topics,), Route.OPERATION, _ANY_GRANT, Partitions.CATALOGUE,
         grpc=("Topic.Describe",)),
    Verb(topic.KnowsMulticast, (Done,), Route.INTERNAL),
    Verb(topic.EnableMulticast, (Done,), Route.INTERNAL, partitions=Partitions.CATALOGUE),
    Verb(multicast.CoordinateMulticast, (topic.Multicasted,), Route.INTERNAL,
         partitions=Partitions.NUMBER, payload=True),
    Verb(multicast.ProposeMulticast, (multicast.Proposed,), Route.INTERNAL,
         partitions=Partitions.NUMBER, payload=True),
    Verb(multicast.DecideMulticast, (Done,), Route.INTERNAL, partitions=Partitions.NUMBER),
    Verb(multicast.AbandonMulticast, (Done,), Route.INTERNAL, partitions=Partitions.NUMBER),
    Verb(multicast.JudgeMulticasts, (multicast.JudgedMulticasts,), Route.INTERNAL,
         partitions=Partitions.NUMBER),
    Verb(multicast.DropMulticasts, (Done,), Route.INTERNAL, partitions=Partitions.NUMBER),
    Verb(multicast.KnowsOrderedMulticast, (Done,), Route.INTERNAL),
    Verb(multicast.EnableOrderedMulticast, (Done,), Route.INTERNAL,
         partitions=Partitions.CATALOGUE),
    # --- backups ---
    Verb(backup.Snapshot, (backup.Snapped,), Route.PRIMARY, _ADMIN, Partitions.NUMBER,
         audited=True, grpc=("Queue.Snapshot",)),
    Verb(backup.Restore, (queue.Pushed,), Route.PRIMARY, _ADMIN, Partitions.BATCH,
         audited=True, grpc=("Queue.Restore",)),
    Verb(backup.RestoreWaiting, (queue.Pushed,), Route.PRIMARY, _ADMIN, Partitions.BATCH,
         audited=True, grpc=("Queue.Restore",)),
    # --- the table ---
    Verb(table.Insert, (Done,), Route.PRIMARY, _TABLE, Partitions.KEY, grpc=("Table.Insert",)),
    Verb(table.Lookup, (table.Value,), Route.PRIMARY, _TABLE, Partitions.KEY,
         grpc=("Table.Lookup",)),
    Verb(table.Remove, (Done,), Route.PRIMARY, _TABLE, Partitions.KEY,
         repeat=Repeat.ONCE, grpc=("Table.Remove",)),
    Verb(table.Append, (Done,), Route.PRIMARY, _TABLE, Partitions.KEY,
         repeat=Repeat.ONCE, grpc=("Table.Append",)),
    Verb(table.CompareAndSwap, (table.Swapped,), Route.PRIMARY, _TABLE, Partitions.KEY,
         repeat=Repeat.ONCE, grpc=("Table.CompareAndSwap",)),
    Verb(table.Put, (table.KeyWritten,), Route.PRIMARY, _TABLE, Partitions.KEY,
         grpc=("Table.Put",)),
    Verb(table.RemoveKey, (table.KeyWritten,), Route.PRIMARY, _TABLE, Partitions.KEY,
         grpc=("Table.RemoveKey",)),
    Verb(table.AppendKey, (table.KeyWritten,), Route.PRIMARY, _TABLE, Partitions.KEY,
         grpc=("Table.AppendKey",)),
    Verb(table.SwapKey, (table.Swapped,), Route.PRIMARY, _TABLE, Partitions.KEY,
         grpc=("Table.SwapKey",)),
    Verb(table.InsertMany, (table.KeysWritten,), Route.PRIMARY, _TABLE, Partitions.KEYS,
         grpc=("Table.InsertMany",)),
    Verb(table.LookupMany, (table.FoundRows,), Route.PRIMARY, _TABLE, Partitions.KEYS,
         grpc=("Table.LookupMany",)),
    Verb(table.RemoveMany, (table.KeysWritten,), Route.PRIMARY, _TABLE, Partitions.KEYS,
         grpc=("Table.RemoveMany",)),
    Verb(table.ScanKeys, (table.KeyPage,), Route.PRIMARY, Permission.TABLE_PREFIX, Partitions.SPAN,
         grpc=("Table.Scan",)),
    Verb(table.WatchKeys, (table.KeyChanges,), Route.PRIMARY, Permission.TABLE_PREFIX,
         Partitions.SPAN, wait=Wait.MESSAGES, grpc=("Table.Watch",)),
    # --- the cluster ---
    Verb(cluster.GetView, (cluster.ViewInfo,), Route.NODE, _ANYONE,
         grpc=("Cluster.View", "Table.Watch")),
    Verb(cluster.Status, (cluster.StatusInfo,), Route.DRIVER, _ANYONE, grpc=("Cluster.Status",)),
    Verb(cluster.ClusterStatus, (cluster.ClusterInfo,), Route.CLUSTER, _ANYONE,
         grpc=("Cluster.Places",)),
    Verb(cluster.Join, (cluster.Joined,), Route.OPERATION, _OPERATOR,
         audited=True, grpc=("Cluster.Join",)),
    Verb(cluster.Leave, (Done,), Route.OPERATION, _OPERATOR, audited=True, grpc=("Cluster.Leave",)),
    Verb(recovery.Recover, (recovery.Recovery,), Route.OPERATION, _OPERATOR,
         audited=True, grpc=("Cluster.Recover",)),
    # --- subscriptions ---
    Verb(subscription.OpenSubscription, (subscription.Opened,), Route.OPERATION, _CONSUME,
         Partitions.SUBSCRIPTION, grpc=("Stream.OpenSubscription",)),
    Verb(subscription.Reserve, (subscription.Reserved,), Route.OPERATION, _CONSUME,
         wait=Wait.WORK, grpc=("Stream.Reserve",)),
    Verb(subscription.DescribeReservation, (subscription.Reserved,), Route.OPERATION, _CONSUME,
         Partitions.SUBSCRIPTION, grpc=("Stream.DescribeReservation",)),
    Verb(subscription.ReadReserved, (queue.Peeked,), Route.PRIMARY, _CONSUME, Partitions.NUMBER,
         grpc=("Stream.ReadReserved",)),
    Verb(subscription.AckThrough, (Done, subscription.Owed), Route.OPERATION, _CONSUME,
         Partitions.SUBSCRIPTION, wait=Wait.WORK, grpc=("Stream.AckThrough",)),
    Verb(subscription.Heartbeat, (Done,), Route.OPERATION, _CONSUME, Partitions.SUBSCRIPTION,
         grpc=("Stream.Heartbeat",)),
    Verb(subscription.ReleaseAll, (Done, subscription.Owed), Route.OPERATION, _ADMIN,
         Partitions.SUBSCRIPTION, wait=Wait.WORK, audited=True, grpc=("Stream.ReleaseAll",)),
    Verb(subscription.DeleteSubscription, (Done, subscription.Owed), Route.OPERATION, _ADMIN,
         Partitions.SUBSCRIPTION, wait=Wait.WORK, audited=True,
         grpc=("Stream.DeleteSubscription",)),
    Verb(subscription.ListSubscriptions, (subscription.Subscriptions,), Route.OPERATION, _ANY_GRANT,
         grpc=("Stream.ListSubscriptions",)),
    Verb(subscription.DescribeSubscription, (subscription.Subscriptions,), Route.OPERATION,
         _ANY_GRANT, Partitions.SUBSCRIPTION, grpc=("Stream.SubscriptionStats",)),
    # --- stages ---
    Verb(stage.StageBatch, (queue.Pushed,), Route.PRIMARY, _PUSH, Partitions.BATCH,
         quota=Quota.PUSHES, payload=True, grpc=("Stream.Stage",)),
    Verb(stage.CloseStage, (Done,), Route.OPERATION, _PUSH, Partitions.APP, grpc=("Stream.Stage",)),
    Verb(stage.Publish, (stage.PublishResult,), Route.OPERATION, _PUSH,
         wait=Wait.WORK, grpc=("Stream.Publish",)),
    Verb(stage.Abort, (Done,), Route.OPERATION, _PUSH, wait=Wait.WORK, grpc=("Stream.Abort",)),
    Verb(stage.LastPublished, (stage.LastBatch,), Route.OPERATION, _PUSH, Partitions.APP,
         grpc=("Stream.LastPublished",)),
    # --- between nodes ---
    Verb(cluster.CatchUp, (Done,), Route.INTERNAL),
    Verb(recovery.Copies, (recovery.CopiesInfo,), Route.INTERNAL),
    Verb(commit.ReadOutbox, (commit.Outbox,), Route.INTERNAL, partitions=Partitions.NUMBER),
    Verb(commit.Deliver, (commit.Taken,), Route.INTERNAL, partitions=Partitions.NUMBERS),
    Verb(commit.KnowsCommits, (Done,), Route.INTERNAL),
    Verb(graph.KnowsGraphs, (Done,), Route.INTERNAL),
    Verb(subscription.BeginReserve, (Done, subscription.Reserved), Route.INTERNAL,
         partitions=Partitions.SUBSCRIPTION),
    Verb(subscription.SealReservation, (subscription.Reserved,), Route.INTERNAL,
         partitions=Partitions.SUBSCRIPTION),
    Verb(subscription.Survey, (subscription.Surveyed,), Route.INTERNAL,
         partitions=Partitions.NUMBERS),
    Verb(subscription.Mark, (subscription.Marked,), Route.INTERNAL,
         partitions=Partitions.NUMBERS),
    Verb(subscription.Finish, (Done,), Route.INTERNAL, partitions=Partitions.HOLDS),
    Verb(subscription.Settle, (Done,), Route.INTERNAL, partitions=Partitions.SUBSCRIPTION),
    Verb(subscription.JudgeMarks, (subscription.Judged,), Route.INTERNAL,
         partitions=Partitions.SUBSCRIPTION),
    Verb(stage.Decide, (stage.Decision, stage.PublishResult), Route.INTERNAL,
         partitions=Partitions.APP),
    Verb(stage.Reveal, (Done,), Route.INTERNAL, partitions=Partitions.NUMBERS),
    Verb(stage.Decided, (Done,), Route.INTERNAL, partitions=Partitions.APP),
    Verb(stage.ListStages, (stage.StageTokens,), Route.INTERNAL),
    Verb(stage.GiveUpStages, (subscription.Judged,), Route.INTERNAL, partitions=Partitions.APP),
    Verb(stage.DropStages, (Done,), Route.INTERNAL),
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

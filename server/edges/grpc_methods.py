"""The table of gRPC methods: one row per rpc of ``weft.proto`` (``grpc_method`` has the kinds).

Both gRPC servers run these rows. To add a method: its rpc and messages in ``weft.proto``, its row
here, its name in the column `grpc` of the verb table. CONTRIBUTING.md shows an example.
"""

from __future__ import annotations

from typing import Final

from weft.proto import pipelines, wire
from weft.proto import weft_pb2 as pb

from . import grpc_backup_translation as backup
from . import grpc_commit as commit
from . import grpc_pipeline_methods as pipeline
from . import grpc_pop as pop
from . import grpc_push as push
from . import grpc_settle as settle
from . import grpc_table as table
from . import grpc_topic as topic
from . import grpc_translation as translate
from . import grpc_view as view
from .consume_stream import consume
from .grpc_method import ExchangeMethod, StreamMethod, exchange
from .produce_stream import produce
from .watch_stream import watch
from .work_stream import work

_ROWS: Final[tuple[ExchangeMethod | StreamMethod, ...]] = (
    # --- messages ---
    ExchangeMethod("Queue.Push", push.ask_push, push.reply_push),
    ExchangeMethod("Queue.PushBatch", push.ask_push_batch, push.reply_push_batch),
    ExchangeMethod("Queue.Multicast", topic.ask_multicast, topic.reply_multicast),
    ExchangeMethod("Topic.Push", topic.ask_push_topic, topic.reply_multicast),
    ExchangeMethod("Queue.Room", push.ask_room, push.reply_room),
    ExchangeMethod("Queue.Pop", pop.ask_pop, pop.reply_pop),
    ExchangeMethod("Queue.PopBatches", pop.ask_pop_batches, pop.reply_pop_batches),
    ExchangeMethod("Queue.Peek", pop.ask_peek, pop.reply_shown),
    ExchangeMethod("Queue.Ack", settle.ask_ack, settle.reply_settled),
    ExchangeMethod("Queue.Nack", settle.ask_nack, settle.reply_settled),
    ExchangeMethod("Queue.Extend", settle.ask_extend, settle.reply_settled),
    ExchangeMethod("Queue.AckBatches", settle.ask_ack_batches, settle.reply_settled_batches),
    ExchangeMethod("Queue.NackBatches", settle.ask_nack_batches, settle.reply_settled_batches),
    ExchangeMethod("Queue.ExtendBatches", settle.ask_extend_batches, settle.reply_settled_batches),
    ExchangeMethod("Queue.Commit", commit.ask_commit, commit.reply_commit),
    StreamMethod("Queue.Consume", consume, client_streams=False),
    StreamMethod("Queue.Produce", produce, client_streams=True),
    StreamMethod("Queue.Work", work, client_streams=True),
    exchange(
        "Queue.Cancel", pb.CancelRequest, translate.cancel,
        wire.Done, lambda done: pb.CancelResponse(cancelled=done.count > 0),
    ),
    # --- queues ---
    exchange(
        "Queue.CreateQueue", pb.CreateQueueRequest, translate.create_queue,
        wire.Created, lambda made: pb.CreateQueueResponse(created=made.created),
    ),
    exchange(
        "Queue.UpdateQueue", pb.UpdateQueueRequest, translate.update_queue,
        wire.Done, lambda done: pb.UpdateQueueResponse(),
    ),
    exchange(
        "Queue.DeleteQueue", pb.DeleteQueueRequest, lambda asked: wire.DeleteQueue(asked.queue),
        wire.Done, lambda done: pb.DeleteQueueResponse(messages=done.count),
    ),
    exchange(
        "Queue.ListQueues", pb.ListQueuesRequest, translate.list_queues,
        wire.Queues, lambda found: translate.queue_list(found, pop.ANSWER_BYTES_MAX),
    ),
    exchange(
        "Queue.DescribeQueue", pb.DescribeQueueRequest,
        lambda asked: wire.DescribeQueue(asked.queue),
        wire.Queues, lambda found: translate.queue_description(found.queues[0]),
    ),
    exchange(
        "Queue.PurgeQueue", pb.PurgeQueueRequest, lambda asked: wire.PurgeQueue(asked.queue),
        wire.Done, lambda done: pb.PurgeQueueResponse(messages=done.count),
    ),
    exchange(
        "Queue.Redrive", pb.RedriveRequest, lambda asked: wire.Redrive(asked.queue, asked.limit),
        wire.Done, lambda done: pb.RedriveResponse(messages=done.count),
    ),
    # --- topics ---
    exchange(
        "Topic.Create", pb.CreateTopicRequest, lambda asked: wire.CreateTopic(asked.topic),
        wire.Created, lambda made: pb.CreateTopicResponse(created=made.created),
    ),
    exchange(
        "Topic.Delete", pb.DeleteTopicRequest, lambda asked: wire.DeleteTopic(asked.topic),
        wire.Done, lambda done: pb.DeleteTopicResponse(),
    ),
    exchange(
        "Topic.Bind", pb.BindRequest, topic.bind,
        wire.Created, lambda made: pb.BindResponse(created=made.created),
    ),
    exchange(
        "Topic.Unbind", pb.UnbindRequest, lambda asked: wire.Unbind(asked.topic, asked.queue),
        wire.Done, lambda done: pb.UnbindResponse(removed=done.count > 0),
    ),
    exchange(
        "Topic.List", pb.ListTopicsRequest, topic.list_topics, wire.Topics, topic.topics,
    ),
    exchange(
        "Topic.Describe", pb.DescribeTopicRequest, lambda asked: wire.DescribeTopic(asked.topic),
        wire.Topics, lambda found: topic.description(found.topics[0]),
    ),
    # --- backups ---
    exchange(
        "Queue.Snapshot", pb.SnapshotRequest, backup.snapshot, wire.Snapped, backup.snapped,
    ),
    exchange(
        "Queue.Restore", pb.RestoreRequest, backup.restore,
        wire.Pushed, lambda pushed: pb.RestoreResponse(duplicate=pushed.duplicate),
    ),
    # --- the table ---
    exchange(
        "Table.Insert", pb.InsertRequest, lambda asked: wire.Insert(asked.key, asked.value),
        wire.Done, lambda done: pb.InsertResponse(),
    ),
    exchange(
        "Table.Lookup", pb.LookupRequest, lambda asked: wire.Lookup(asked.key),
        wire.Value, lambda found: pb.LookupResponse(value=found.value),
    ),
    exchange(
        "Table.Remove", pb.RemoveRequest, lambda asked: wire.Remove(asked.key),
        wire.Done, lambda done: pb.RemoveResponse(removed=bool(done.count)),
    ),
    exchange(
        "Table.Append", pb.AppendRequest, lambda asked: wire.Append(asked.key, asked.value),
        wire.Done, lambda done: pb.AppendResponse(length=done.count),
    ),
    exchange(
        "Table.CompareAndSwap", pb.CompareAndSwapRequest, translate.compare_and_swap,
        wire.Swapped,
        lambda said: pb.CompareAndSwapResponse(swapped=said.swapped, current=said.current),
    ),
    exchange("Table.Put", pb.PutRequest, table.put, wire.KeyWritten, table.written),
    exchange(
        "Table.RemoveKey", pb.RemoveKeyRequest, table.remove_key, wire.KeyWritten, table.written,
    ),
    exchange(
        "Table.AppendKey", pb.AppendKeyRequest, table.append_key, wire.KeyWritten, table.written,
    ),
    exchange("Table.SwapKey", pb.SwapKeyRequest, table.swap_key, wire.Swapped, table.swapped),
    exchange(
        "Table.InsertMany", pb.InsertManyRequest, table.insert_many,
        wire.KeysWritten, lambda said: pb.KeysWrittenResponse(done=said.done),
    ),
    ExchangeMethod("Table.LookupMany", table.ask_lookup_many, table.reply_lookup_many),
    exchange(
        "Table.RemoveMany", pb.RemoveManyRequest, table.remove_many,
        wire.KeysWritten, lambda said: pb.KeysWrittenResponse(done=said.done),
    ),
    exchange("Table.Scan", pb.ScanRequest, table.scan, wire.KeyPage, table.page),
    StreamMethod("Table.Watch", watch, client_streams=False),
    # --- the cluster ---
    ExchangeMethod("Cluster.View", view.ask_view, view.reply_view),
    exchange(
        "Cluster.Status", pb.StatusRequest, lambda asked: wire.Status(),
        wire.StatusInfo, translate.status,
    ),
    exchange(
        "Cluster.Places", pb.PlacesRequest, lambda asked: wire.ClusterStatus(),
        wire.ClusterInfo, translate.places,
    ),
    exchange("Cluster.Join", pb.JoinRequest, translate.join, wire.Joined, translate.joined),
    exchange(
        "Cluster.Leave", pb.LeaveRequest, lambda asked: wire.Leave(asked.node, asked.force),
        wire.Done, lambda done: pb.LeaveResponse(),
    ),
    exchange(
        "Cluster.Recover", pb.RecoverRequest, translate.recover, wire.Recovery, translate.recovery,
    ),
    # --- subscriptions ---
    exchange(
        "Stream.OpenSubscription", pb.OpenSubscriptionRequest, pipeline.open_subscription,
        pipelines.Opened, pipeline.opened,
    ),
    exchange(
        "Stream.Reserve", pb.ReserveRequest, pipeline.reserve,
        pipelines.Reserved, pipeline.reserved,
    ),
    exchange(
        "Stream.DescribeReservation", pb.DescribeReservationRequest,
        lambda a: pipelines.DescribeReservation(a.queue, a.subscription, a.number),
        pipelines.Reserved, pipeline.described,
    ),
    ExchangeMethod("Stream.ReadReserved", pop.ask_read_reserved, pop.reply_shown),
    exchange(
        "Stream.AckThrough", pb.AckThroughRequest, pipeline.ack_through,
        wire.Done, lambda done: pb.AckThroughResponse(),
    ),
    exchange(
        "Stream.Heartbeat", pb.HeartbeatRequest,
        lambda a: pipelines.Heartbeat(a.queue, a.subscription, a.epoch),
        wire.Done, lambda done: pb.HeartbeatResponse(),
    ),
    exchange(
        "Stream.SubscriptionStats", pb.SubscriptionStatsRequest,
        lambda asked: pipelines.DescribeSubscription(asked.queue, asked.subscription),
        pipelines.Subscriptions, lambda found: pipeline.description_out(found.subscriptions[0]),
    ),
    exchange(
        "Stream.ListSubscriptions", pb.ListSubscriptionsRequest,
        lambda asked: pipelines.ListSubscriptions(asked.queue),
        pipelines.Subscriptions, pipeline.listed,
    ),
    exchange(
        "Stream.ReleaseAll", pb.ReleaseAllRequest,
        lambda asked: pipelines.ReleaseAll(asked.queue, asked.subscription),
        wire.Done, lambda done: pb.ReleaseAllResponse(messages=done.count),
    ),
    exchange(
        "Stream.DeleteSubscription", pb.DeleteSubscriptionRequest,
        lambda asked: pipelines.DeleteSubscription(asked.queue, asked.subscription),
        wire.Done, lambda done: pb.DeleteSubscriptionResponse(messages=done.count),
    ),
    # --- stages ---
    ExchangeMethod("Stream.Stage", pipeline.ask_stage, pipeline.reply_stage),
    exchange(
        "Stream.Publish", pb.PublishRequest, pipeline.publish, pipelines.PublishResult,
        lambda said: pb.PublishResponse(messages=said.messages, already=said.already),
    ),
    exchange(
        "Stream.Abort", pb.AbortRequest,
        lambda asked: pipelines.Abort(asked.queue, asked.app, asked.batch),
        wire.Done, lambda done: pb.AbortResponse(messages=done.count),
    ),
    exchange(
        "Stream.LastPublished", pb.LastPublishedRequest,
        lambda asked: pipelines.LastPublished(asked.queue, asked.app),
        pipelines.LastBatch, lambda last: pb.LastPublishedResponse(batch=last.batch),
    ),
)  # fmt: skip
#: Every method, by its path of HTTP/2.
METHODS: Final[dict[str, ExchangeMethod | StreamMethod]] = {row.path: row for row in _ROWS}

"""The client requests that become operations, and the operation for each."""

from __future__ import annotations

from collections.abc import Callable

from weft.proto import pipelines, wire

from . import data_loss_recovery, fanout, membership, publish_operations, reserve_operations
from .operation import Operation

#: Requests that concern all nodes, from any client.
OPERATIONS: dict[type, Callable[..., Operation]] = {
    wire.Peek: fanout.peek,
    wire.ListQueues: fanout.list_queues,
    wire.DescribeQueue: fanout.describe,
    wire.Redrive: fanout.redrive,
    wire.CreateQueue: fanout.catalogue,
    wire.UpdateQueue: fanout.catalogue,
    wire.DeleteQueue: fanout.catalogue,
    wire.PurgeQueue: fanout.catalogue,
    wire.ClusterStatus: fanout.status,
}
#: Requests about members: any node executes them.
MEMBERS: dict[type, Callable[..., Operation]] = {
    wire.Join: membership.join,
    wire.Leave: membership.leave,
    wire.Recover: data_loss_recovery.recover,
}
#: Requests that a smart client routes by itself; for a plain client they are operations.
PLAIN: dict[type, Callable[..., Operation]] = {
    wire.Push: fanout.push,
    wire.Ack: fanout.settle,
    wire.Nack: fanout.settle,
    wire.Extend: fanout.settle,
    wire.Insert: fanout.table,
    wire.Lookup: fanout.table,
    wire.Remove: fanout.table,
    wire.Append: fanout.table,
    wire.CompareAndSwap: fanout.table,
    wire.Snapshot: fanout.snapshot,
    wire.Cancel: fanout.cancel,
    wire.Restore: fanout.restore,
    pipelines.StageBatch: publish_operations.stage,
    pipelines.ReadReserved: reserve_operations.read,
}
#: Requests that take several steps even on a single-node cluster.
STREAMS: dict[type, Callable[..., Operation]] = {
    pipelines.OpenSubscription: reserve_operations.at_home,
    pipelines.Reserve: reserve_operations.reserve,
    pipelines.DescribeReservation: reserve_operations.at_home,
    pipelines.AckThrough: reserve_operations.settle,
    pipelines.Heartbeat: reserve_operations.at_home,
    pipelines.ReleaseAll: reserve_operations.settle,
    pipelines.DeleteSubscription: reserve_operations.settle,
    pipelines.ListSubscriptions: reserve_operations.listing,
    pipelines.DescribeSubscription: reserve_operations.stats,
    pipelines.CloseStage: publish_operations.at_home,
    pipelines.Publish: publish_operations.publish,
    pipelines.Abort: publish_operations.abort,
    pipelines.LastPublished: publish_operations.at_home,
}

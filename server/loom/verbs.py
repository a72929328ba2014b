"""Which requests of clients become errands, and which errand each becomes."""

from __future__ import annotations

from collections.abc import Callable

from weft.proto import streams, wire

from . import publishing, reserving, whole
from .errand import Errand

#: They concern all nodes, whoever asks.
ERRANDS: dict[type, Callable[..., Errand]] = {
    wire.Peek: whole.peek,
    wire.ListQueues: whole.list_queues,
    wire.DescribeQueue: whole.describe,
    wire.Redrive: whole.redrive,
    wire.CreateQueue: whole.catalogue,
    wire.UpdateQueue: whole.catalogue,
    wire.DeleteQueue: whole.catalogue,
    wire.PurgeQueue: whole.catalogue,
    wire.ClusterStatus: whole.status,
}
#: These a smart client routes by itself; for a plain one they are errands, too.
PLAIN: dict[type, Callable[..., Errand]] = {
    wire.Push: whole.push,
    wire.Ack: whole.settle,
    wire.Nack: whole.settle,
    wire.Extend: whole.settle,
    wire.Insert: whole.table,
    wire.Lookup: whole.table,
    wire.Remove: whole.table,
    wire.Append: whole.table,
    wire.CompareAndSwap: whole.table,
    wire.Snapshot: whole.snapshot,
    wire.Restore: whole.restore,
    streams.Stage: publishing.stage,
    streams.ReadReserved: reserving.read,
}
#: They take several steps even on a node that is its whole cluster.
STREAMS: dict[type, Callable[..., Errand]] = {
    streams.OpenSubscription: reserving.at_home,
    streams.Reserve: reserving.reserve,
    streams.DescribeReservation: reserving.at_home,
    streams.AckThrough: reserving.settle,
    streams.Heartbeat: reserving.at_home,
    streams.ReleaseAll: reserving.settle,
    streams.DeleteSubscription: reserving.settle,
    streams.ListSubscriptions: reserving.listing,
    streams.SubscriptionStats: reserving.stats,
    streams.CloseStage: publishing.at_home,
    streams.Publish: publishing.publish,
    streams.Abort: publishing.abort,
    streams.LastPublished: publishing.at_home,
}

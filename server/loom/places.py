"""Which partitions a request concerns: a node answers it only if it leads them all."""

from __future__ import annotations

from collections.abc import Sequence

from weft.dht import placement
from weft.proto import streams, wire
from weft.server.engine import app, ledger, stage

from .whole import Cluster, place_of

_SETTLES = (wire.Ack, wire.Nack, wire.Extend)
_CATALOGUE = (wire.CreateQueue, wire.UpdateQueue, wire.DeleteQueue, wire.PurgeQueue)
#: At the home of a subscription, and of an app.
_LEDGER = (
    streams.OpenSubscription, streams.BeginReserve, streams.SealReservation,
    streams.DescribeReservation, streams.AckThrough, streams.Heartbeat, streams.ReleaseAll,
    streams.DeleteSubscription, streams.Settle, streams.JudgeMarks, streams.SubscriptionStats,
)  # fmt: skip
_APP = (
    streams.CloseStage, streams.Decide, streams.Decided, streams.GiveUpStages,
    streams.LastPublished,
)  # fmt: skip
_LISTED = (streams.Survey, streams.Mark, streams.Reveal)


def places(cluster: Cluster, request: wire.AnyRequest) -> Sequence[int]:
    count = cluster.view.catalogue
    if isinstance(request, wire.Push | wire.Restore | streams.Stage):
        return (of_batch(cluster, request),)
    if isinstance(request, wire.Snapshot):
        return (request.partition,) if 0 <= request.partition < count else ()
    if isinstance(request, _SETTLES):
        return list({r.partition: None for r in request.receipts if 0 <= r.partition < count})
    if isinstance(request, wire.TABLE_REQUESTS):
        return (placement.of_text(request.key, count),)
    if isinstance(request, wire.Where):
        return (placement.of_text(request.queue, count),)
    if isinstance(request, _CATALOGUE):
        return (count,)
    return _of_stream(count, request)


def _of_stream(count: int, request: wire.AnyRequest) -> Sequence[int]:
    if isinstance(request, _LEDGER):
        return (ledger.home(request.queue, request.subscription, count),)
    if isinstance(request, _APP):
        return (app.home(request.queue, request.app, count),)
    if isinstance(request, _LISTED):
        return request.partitions
    if isinstance(request, streams.ReadReserved):
        return (request.partition,)
    if isinstance(request, streams.Finish):
        return list({partition: None for partition, _ in request.holds})
    return ()


def of_batch(cluster: Cluster, request: wire.Push | wire.Restore | streams.Stage) -> int:
    """The partition that a batch goes to."""
    if isinstance(request, wire.Push | wire.Restore):
        return place_of(cluster, request)
    ordered = bool(cluster.is_ordered(request.queue))
    return stage.place_of(request.queue, request, cluster.view.catalogue, ordered=ordered)

"""The partitions of a request: a node answers only if it leads all of them."""

from __future__ import annotations

from collections.abc import Sequence

from weft.dht import placement
from weft.proto import pipelines, wire
from weft.server.engine import ledger, publisher, stage

from .fanout import ClusterHost, place_of

_SETTLES = (wire.Ack, wire.Nack, wire.Extend)
_CATALOGUE = (wire.CreateQueue, wire.UpdateQueue, wire.DeleteQueue, wire.PurgeQueue)
#: Requests to the home of a subscription, and to the home of an app.
_LEDGER = (
    pipelines.OpenSubscription, pipelines.BeginReserve, pipelines.SealReservation,
    pipelines.DescribeReservation, pipelines.AckThrough, pipelines.Heartbeat, pipelines.ReleaseAll,
    pipelines.DeleteSubscription, pipelines.Settle, pipelines.JudgeMarks,
    pipelines.DescribeSubscription,
)  # fmt: skip
_APP = (
    pipelines.CloseStage, pipelines.Decide, pipelines.Decided, pipelines.GiveUpStages,
    pipelines.LastPublished,
)  # fmt: skip
_LISTED = (pipelines.Survey, pipelines.Mark, pipelines.Reveal)


def places(cluster: ClusterHost, request: wire.AnyRequest) -> Sequence[int]:
    count = cluster.view.catalogue
    if isinstance(request, wire.Push | wire.Restore | pipelines.StageBatch):
        return (of_batch(cluster, request),)
    if isinstance(request, wire.Snapshot | wire.Cancel):
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
        return (publisher.home(request.queue, request.app, count),)
    if isinstance(request, _LISTED):
        return request.partitions
    if isinstance(request, pipelines.ReadReserved):
        return (request.partition,)
    if isinstance(request, pipelines.Finish):
        return list({partition: None for partition, _ in request.holds})
    return ()


def of_batch(cluster: ClusterHost, request: wire.Push | wire.Restore | pipelines.StageBatch) -> int:
    """The partition of a batch."""
    if isinstance(request, wire.Push | wire.Restore):
        return place_of(cluster, request)
    ordered = bool(cluster.is_ordered(request.queue))
    return stage.place_of(request.queue, request, cluster.view.catalogue, ordered=ordered)

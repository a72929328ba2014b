"""The partitions of a request: a node answers only if it leads all of them.

The column `partitions` of the verb table names the rule; this module has one function per rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from weft.dht import placement
from weft.proto import pipelines, wire
from weft.proto.verb import Partitions
from weft.proto.verbs import VERBS
from weft.server.engine import commit, ledger, publisher, stage

from .cluster_host import ClusterHost


def places(cluster: ClusterHost, request: wire.AnyRequest) -> Sequence[int]:
    """The numbers of the partitions; numbers out of range are left out."""
    return _PLACES[type(request)](cluster, request)


def of_batch(cluster: ClusterHost, request: wire.Push | wire.Restore | pipelines.StageBatch) -> int:
    """The partition of a batch."""
    if isinstance(request, wire.Push | wire.Restore):
        return place_of(cluster, request)
    ordered = bool(cluster.is_ordered(request.queue))
    return stage.place_of(request.queue, request, cluster.view.catalogue, ordered=ordered)


def place_of(cluster: ClusterHost, request: wire.Push | wire.Restore, guess: bool = False) -> int:
    """The partition of a push, or of a restored batch."""
    if isinstance(request, wire.PushGroup):
        return placement.of_text(request.group, cluster.view.catalogue)
    batch = request.kept if isinstance(request, wire.Restore) else request
    if isinstance(batch, wire.Kept) and batch.group is not None:
        return placement.of_text(batch.group, cluster.view.catalogue)
    ordered = cluster.is_ordered(request.queue)
    return placement.of_push(
        request.queue, guess if ordered is None else ordered, batch.producer, batch.batch,
        batch.dedup_key, cluster.view.catalogue,
    )  # fmt: skip


# --- the rules --------------------------------------------------------------------------------


def _none(cluster: ClusterHost, request: wire.AnyRequest) -> Sequence[int]:
    return ()


def _batch(
    cluster: ClusterHost, request: wire.Push | wire.Restore | pipelines.StageBatch
) -> Sequence[int]:
    return (of_batch(cluster, request),)


def _destinations(cluster: ClusterHost, request: wire.Multicast | wire.PushTopic) -> Sequence[int]:
    place = cluster.destinations.place_of(request)
    return () if place is None else (place,)


def _number(cluster: ClusterHost, request: Any) -> Sequence[int]:
    number: int = request.partition
    return (number,) if 0 <= number < cluster.view.catalogue else ()


def _home(cluster: ClusterHost, request: wire.Commit) -> Sequence[int]:
    number = commit.home_of(request, cluster.view.catalogue)
    return (number,) if 0 <= number < cluster.view.catalogue else ()


def _numbers(cluster: ClusterHost, request: Any) -> Sequence[int]:
    numbers: list[int] = request.partitions
    return numbers


def _receipts(cluster: ClusterHost, request: Any) -> Sequence[int]:
    count = cluster.view.catalogue
    return list({r.partition: None for r in request.receipts if 0 <= r.partition < count})


def _holds(cluster: ClusterHost, request: pipelines.Finish) -> Sequence[int]:
    return list({partition: None for partition, _ in request.holds})


def _key(cluster: ClusterHost, request: Any) -> Sequence[int]:
    return (placement.of_text(request.key, cluster.view.catalogue),)


def _keys(cluster: ClusterHost, request: Any) -> Sequence[int]:
    numbers: list[int] = request.partitions
    count = cluster.view.catalogue
    if not numbers:
        return list(set(placement.of_keys((key.encode() for key in request.keys), count)))
    return [number for number in numbers if 0 <= number < count]


def _span(cluster: ClusterHost, request: Any) -> Sequence[int]:
    numbers: list[int] = request.partitions
    count = cluster.view.catalogue
    return [number for number in numbers if 0 <= number < count] if numbers else range(count)


def _queue(cluster: ClusterHost, request: Any) -> Sequence[int]:
    return (placement.of_text(request.queue, cluster.view.catalogue),)


def _catalogue(cluster: ClusterHost, request: wire.AnyRequest) -> Sequence[int]:
    return (cluster.view.catalogue,)


def _subscription(cluster: ClusterHost, request: Any) -> Sequence[int]:
    return (ledger.home(request.queue, request.subscription, cluster.view.catalogue),)


def _app(cluster: ClusterHost, request: Any) -> Sequence[int]:
    return (publisher.home(request.queue, request.app, cluster.view.catalogue),)


_RULES: Final[dict[Partitions, Callable[..., Sequence[int]]]] = {
    Partitions.NONE: _none,
    Partitions.BATCH: _batch,
    Partitions.DESTINATIONS: _destinations,
    Partitions.NUMBER: _number,
    Partitions.HOME: _home,
    Partitions.NUMBERS: _numbers,
    Partitions.RECEIPTS: _receipts,
    Partitions.HOLDS: _holds,
    Partitions.KEY: _key,
    Partitions.KEYS: _keys,
    Partitions.SPAN: _span,
    Partitions.QUEUE: _queue,
    Partitions.CATALOGUE: _catalogue,
    Partitions.SUBSCRIPTION: _subscription,
    Partitions.APP: _app,
}
_PLACES: Final = {request: _RULES[verb.partitions] for request, verb in VERBS.items()}

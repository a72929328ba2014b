"""Verbs that the node core answers itself, or with more than the engine: the cluster's view and
status, metadata lists, the catalogue, backups, and pops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from weft.proto import wire
from weft.proto.handlers import Handlers

from .data_loss_recovery import copies
from .multicast_operations import agree, coordinate
from .operation import PeerCaller
from .routing import places
from .status import cluster_info

if TYPE_CHECKING:
    from .request_router import RequestRouter

#: Registers the node core's handler of a verb. Every other verb goes to the engine.
answer_of: Final = Handlers[Callable[..., None]]()


@answer_of(wire.GetView)
def get_view(
    router: RequestRouter, request: wire.GetView, payload: Sequence[bytes], to: object
) -> None:
    router.engine.answer(to, router.view_report.info())


@answer_of(wire.ClusterStatus)
def cluster_status(
    router: RequestRouter, request: wire.ClusterStatus, payload: Sequence[bytes], to: object
) -> None:
    router.engine.answer(to, cluster_info(router.host))


@answer_of(
    wire.KnowsGroups, wire.KnowsMulticast, wire.KnowsOrderedMulticast, wire.KnowsStochastic,
    wire.KnowsLimits, wire.KnowsGraphs,
)  # fmt: skip
def knows_feature(
    router: RequestRouter, request: wire.AnyRequest, payload: Sequence[bytes], to: object
) -> None:
    router.engine.answer(to, wire.Done())


@answer_of(wire.KnowsCommits)
def knows_commits(
    router: RequestRouter, request: wire.KnowsCommits, payload: Sequence[bytes], to: object
) -> None:
    router.engine.answer(to, wire.Done())


@answer_of(wire.Multicast, wire.PushTopic)
def multicast(
    router: RequestRouter,
    request: wire.Multicast | wire.PushTopic,
    payload: Sequence[bytes],
    to: object,
) -> None:
    """Stores all copies in one entry, or starts the agreement of several partitions."""
    if payload and router.host.destinations.needs_agreement(request):
        router.start(agree(router.host, request, payload), to)
    else:
        router.engine.handle(request, payload, to)


@answer_of(wire.CoordinateMulticast)
def coordinate_multicast(
    router: RequestRouter,
    request: wire.CoordinateMulticast,
    payload: Sequence[bytes],
    to: object,
) -> None:
    router.start(coordinate(router.host, request, payload), to)


@answer_of(wire.IdleTimes)
def idle_times(
    router: RequestRouter, request: wire.IdleTimes, payload: Sequence[bytes], to: object
) -> None:
    idle = router.engine.idle_queues
    router.engine.answer(to, wire.IdleFor([idle.idle_ms(name) for name in request.queues]))


@answer_of(wire.Where)
def where(router: RequestRouter, request: wire.Where, payload: Sequence[bytes], to: object) -> None:
    router.metadata_lists.where(request, to)


@answer_of(wire.CatchUp)
def catch_up(
    router: RequestRouter, request: wire.CatchUp, payload: Sequence[bytes], to: object
) -> None:
    router.catalogue_sync.catch_up(request, to)


@answer_of(wire.Copies)
def copies_info(
    router: RequestRouter, request: wire.Copies, payload: Sequence[bytes], to: object
) -> None:
    router.engine.answer(to, copies(router.host, request))


@answer_of(wire.Snapshot)
def snapshot(
    router: RequestRouter, request: wire.Snapshot, payload: Sequence[bytes], to: object
) -> None:
    """Waits for the store; the engine refuses a partition that does not exist."""
    if places(router.host, request):
        router.backup_waits.ask(request, to)
    else:
        router.engine.handle(request, payload, to)


@answer_of(wire.Pop)
def pop(router: RequestRouter, request: wire.Pop, payload: Sequence[bytes], to: object) -> None:
    """Pops, and tells the owner of the metadata list if the queue is empty here now."""
    router.engine.handle(request, payload, to)
    forwarded = isinstance(to, PeerCaller) and to.forwarded
    router.metadata_lists.popped(request, to, forwarded=forwarded)

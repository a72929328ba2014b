"""The cluster as reported by a node: to clients that route by themselves, and to operators."""

from __future__ import annotations

from typing import Protocol

import msgspec

from weft.dht.core import Core
from weft.dht.role import Role
from weft.dht.view import Member, View
from weft.proto import wire


class StatusHost(Protocol):
    @property
    def core(self) -> Core: ...
    @property
    def cluster(self) -> str: ...
    @property
    def me(self) -> Member | None: ...
    def outage(self, number: int | None = None) -> str: ...


class ViewReport:
    """The view as clients get it: the same object until the view, the node's own entry, an outage
    or a member's liveness changes, so that an edge can keep the encoded answer, too."""

    def __init__(self, host: StatusHost) -> None:
        self._host = host
        self._view: View | None = None
        self._rest: tuple[object, ...] = ()
        self._info = wire.ViewInfo("", 0, 0, [])

    def info(self) -> wire.ViewInfo:
        host, core = self._host, self._host.core
        view = core.view
        rest = (host.me, host.outage(), *map(core.alive, view.members))
        if view is not self._view or rest != self._rest:
            self._view, self._rest = view, rest
            self._info = _view_info(host)
        return self._info


def _view_info(host: StatusHost) -> wire.ViewInfo:
    view = host.core.view
    places = {node: number for number, node in enumerate(view.members)}
    return wire.ViewInfo(
        host.cluster,
        view.version,
        host.core.catalogue,
        _nodes(host),
        primaries=[places.get(place.primary, 0) for place in view.places[:-1]],
        outage=host.outage(),
    )


def cluster_info(host: StatusHost) -> wire.ClusterInfo:
    """The view, with role and lag of the partitions led by this node."""
    core = host.core
    places: list[wire.PlaceInfo] = []
    for number, place in enumerate(core.view.places):
        role, lag = "unknown", {}
        replica = core.replicas.get(number)
        if replica is not None and place.primary == core.node:
            role = replica.role.value
            if replica.role is Role.ACTIVE:
                lag = replica.lag()
        places.append(
            wire.PlaceInfo(place.epoch, list(place.sync), list(place.learners), role, lag)
        )
    view = core.view
    return wire.ClusterInfo(
        host.cluster, view.version, view.min_sync, list(view.voters), _nodes(host), places,
        list(view.joining), view.learners, core.node,
    )  # fmt: skip


def _nodes(host: StatusHost) -> list[wire.NodeInfo]:
    """The members; the node's own entry comes from the node, and may be newer than the view."""
    core, view, me = host.core, host.core.view, host.me
    members = {
        node: msgspec.structs.replace(me, state=member.state, witness=member.witness)
        if node == core.node and me is not None
        else member
        for node, member in view.members.items()
    }
    return [
        wire.NodeInfo(
            node, member.grpc, member.zmq, member.state, node in view.deciders, member.witness,
            core.alive(node), member.peer, member.key, member.data_key,
            member.zone,
        )
        for node, member in members.items()
    ]  # fmt: skip

"""What a node says of the cluster: to clients that route by themselves, and to operators."""

from __future__ import annotations

from typing import Protocol

import msgspec

from weft.dht.core import Core
from weft.dht.role import Role
from weft.dht.view import Member
from weft.proto import wire


class House(Protocol):
    @property
    def core(self) -> Core: ...
    @property
    def cluster(self) -> str: ...
    @property
    def me(self) -> Member | None: ...


def view_info(house: House) -> wire.ViewInfo:
    view = house.core.view
    places = {node: number for number, node in enumerate(view.members)}
    return wire.ViewInfo(
        house.cluster,
        view.version,
        house.core.catalogue,
        _nodes(house),
        primaries=[places.get(place.primary, 0) for place in view.places[:-1]],
    )


def cluster_info(house: House) -> wire.ClusterInfo:
    """The view, with role and lag of the partitions that this node leads."""
    core = house.core
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
        house.cluster, view.version, view.min_sync, list(view.voters), _nodes(house), places
    )


def _nodes(house: House) -> list[wire.NodeInfo]:
    """Of itself a node says what it knows, which may be newer than what the view has."""
    core, view, me = house.core, house.core.view, house.me
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
        )
        for node, member in members.items()
    ]  # fmt: skip

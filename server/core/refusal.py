"""Reasons to refuse a request on this node: its partition has another primary, is not ready, cannot
be served by any node before a dead node returns, or a replica's disk is full."""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

from weft.dht.core import Core
from weft.proto import wire
from weft.proto.verbs import WITH_PAYLOAD

from .cluster_host import ClusterHost
from .routing import places


class Leader(ClusterHost, Protocol):
    @property
    def core(self) -> Core: ...
    @property
    def led(self) -> Set[int]: ...


def refusal(leader: Leader, request: wire.AnyRequest) -> wire.Failure | None:
    partitions, led = places(leader, request), leader.led
    for number in partitions:
        if number not in led or not leader.core.serving(number):
            return not_here(leader, number)
        if outage := leader.outage(number):
            # The request would wait for copies that cannot be made.
            return wire.Failure("UNAVAILABLE", outage, True)
    if leader.core.full_peers and _stores(request):
        full = leader.core.full_peers.intersection(leader.view.places[partitions[0]].sync)
        if full:
            return wire.Failure(
                "STORAGE_FULL", f"the disk of node {min(full)} is at its free-space reserve: "
                "ack or purge something, or add disk", True,
            )  # fmt: skip
    return None


def _stores(request: wire.AnyRequest) -> bool:
    """True if the request stores messages."""
    if isinstance(request, wire.Commit):
        return bool(request.pushes)
    return type(request) in WITH_PAYLOAD or isinstance(request, wire.Deliver)


def not_here(leader: Leader, number: int) -> wire.Failure:
    found = leader.view.places
    if found and found[number].primary != leader.node:
        return wire.Failure("NOT_PRIMARY", "another node leads this partition", True)
    if outage := leader.outage(number):
        return wire.Failure("UNAVAILABLE", outage, True)
    return wire.Failure(
        "UNAVAILABLE", "this node is not ready to serve this partition: nothing was done", True
    )

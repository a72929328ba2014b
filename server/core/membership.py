"""Joining and leaving, as operations: propose a change of the view, and wait until the view has the
change. Also: how a node publishes its addresses to the other members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from weft.dht import data_loss_recovery
from weft.dht import view as views
from weft.dht.core import Core, encode_view
from weft.dht.planner import holders
from weft.dht.view import Member
from weft.errors import InvalidArgument, StoreDamaged, UsageError
from weft.limits import check_zone
from weft.proto import wire
from weft.server.engine.engine import Engine

from .operation import Operation, Pause, operation_of


class MembershipHost(Protocol):
    @property
    def core(self) -> Core: ...
    @property
    def cluster(self) -> str: ...
    @property
    def engine(self) -> Engine: ...


@operation_of(wire.Join)
def join(host: MembershipHost, request: wire.Join, payload: Sequence[bytes] = ()) -> Operation:
    core = host.core
    for name in ("node", "peer", "key"):
        if not getattr(request, name):
            raise InvalidArgument(f"a node that joins must give its {name}")
    if not (request.knows_groups or request.witness) and (grouped := host.engine.grouped_queue):
        raise UsageError(
            f"this cluster has the grouped queue {grouped}, and node {request.node} has a version "
            "of weft without message groups: install the version of the other members"
        )
    if not (request.knows_commits or request.witness) and host.engine.commits.used:
        raise UsageError(
            f"this cluster has effects of commits, and node {request.node} has a version of weft "
            "without commits: install the version of the other members"
        )
    limited = host.engine.shares.limited_queue
    if limited and not (request.knows_limits or request.witness):
        raise UsageError(
            f"the queue {limited} of this cluster has a share or a limit, and node {request.node} "
            "has a version of weft without: install the version of the other members"
        )
    if (graphs := host.engine.graph_queue) and not (request.knows_graphs or request.witness):
        raise UsageError(
            f"the queue {graphs} of this cluster takes task graphs, and node {request.node} has a "
            "version of weft without: install the version of the other members"
        )
    if host.engine.destinations.enabled and not (request.knows_multicast or request.witness):
        raise UsageError(
            f"this cluster uses topics or multicasts, and node {request.node} has a version of "
            "weft without them: install the version of the other members"
        )
    if host.engine.destinations.ordered_enabled and not (
        request.knows_ordered_multicast or request.witness
    ):
        raise UsageError(
            f"this cluster uses multicasts to several ordered queues, and node {request.node} has "
            "a version of weft without them: install the version of the other members"
        )
    if not (request.knows_stochastic or request.witness) and (
        stochastic := next(iter(host.engine.ready.stochastic), "")
    ):
        raise UsageError(
            f"this cluster has the stochastic queue {stochastic}, and node {request.node} has a "
            "version of weft without stochastic queues: install the version of the other members"
        )
    check_zone(request.zone)
    member = Member(
        request.peer, request.key, request.grpc, request.zmq, "active", request.witness,
        request.data_key, request.zone,
    )  # fmt: skip
    while True:
        view = core.view
        known = view.members.get(request.node)
        if request.node in (*view.removed, *view.lost):
            what = "was declared lost by" if request.node in view.lost else "has left"
            raise UsageError(
                f"node {request.node} {what} this cluster for good: start it with an empty data "
                "directory, and it joins as a new one"
            )
        if known is not None and known.key != member.key:
            raise UsageError(f"node {request.node} is a member already, with another key")
        if known == member:
            return wire.Joined(host.cluster, core.catalogue, encode_view(view)), ()
        if core.proposer.idle:
            core.propose_change(views.join(request.node, member))
        yield Pause()


@operation_of(wire.Leave)
def leave(host: MembershipHost, request: wire.Leave, payload: Sequence[bytes] = ()) -> Operation:
    """Marks a node as leaving: its data moves away, then the node is removed. No data is lost."""
    core = host.core
    while True:
        view = core.view
        member = view.members.get(request.node)
        if member is None:
            raise InvalidArgument(f"{request.node} is not a member of this cluster")
        if member.state == "leaving":
            return wire.Done(), ()
        _check_offline(core, request.node)
        rest = [node for node in holders(view) if node != request.node]
        few = not member.witness and len(rest) < view.min_sync
        if few and not (request.force and rest):
            raise UsageError(
                f"without {request.node} only {len(rest)} nodes would hold data, and every message "
                f"is kept on {view.min_sync}: add a node first"
            )
        if core.proposer.idle:
            if few:
                core.propose_change(views.require(len(rest)))
            core.propose_change(views.mark(request.node, "leaving"))
        yield Pause()


def _check_offline(core: Core, node: str) -> None:
    """Refuses a dead node with partitions that no live member can take over."""
    if core.reachable(node):
        return
    gone = [each for each in core.view.members if not core.reachable(each)]
    offline = sum(
        node in core.view.places[number].sync
        for number in data_loss_recovery.offline(core.view, gone)
    )
    if offline:
        raise UsageError(
            f"node {node} does not run, and no live node can lead {offline} of its partitions. "
            "Start it again; if its disk is lost, see `weft cluster recover`"
        )


def introduce(core: Core, me: Member) -> bool:
    """Proposes this node's addresses, if the view has others; True if proposed or known."""
    before = core.view.members.get(core.node)
    if before is not None and before.key != me.key and before.key:
        raise StoreDamaged(
            "the cluster knows this node by another key: restore curve.json from a backup, or "
            "start the node with an empty data directory and --join, as a new one"
        )
    if before is None or not core.proposer.idle:
        return False
    member = msgspec.structs.replace(me, state=before.state, witness=before.witness)
    if before != member:
        core.propose_change(views.join(core.node, member))
    return True

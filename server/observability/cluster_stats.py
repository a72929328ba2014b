"""The cluster's part of a node's stats: members, roles, copies and lag, as seen by the node.

Each function is called in the node's thread on demand (`node_stats.py`), and iterates once over the
view: some hundred partitions.
"""

from __future__ import annotations

from collections import Counter

from weft.dht.core import Core
from weft.dht.role import Role
from weft.dht.safety import STATES, Verdict
from weft.server.core.local_verdict import LocalVerdict

from .node_stats import ClusterFigures, Labelled

#: State of a member without recent messages, regardless of its state in the view.
UNREACHABLE = "unreachable"


def of(core: Core, local: LocalVerdict) -> ClusterFigures:
    return {
        "weft_cluster_state": lambda: _states(local.verdict()),
        "weft_nodes_that_may_fail": lambda: _may_fail(local.verdict()),
        "weft_blocked_partitions": lambda: {(): len(local.verdict().blocked)},
        "weft_cluster_nodes": lambda: _nodes(core),
        "weft_view_version": lambda: {(): core.view.version},
        "weft_partitions": lambda: _partitions(core),
        "weft_under_replicated_partitions": lambda: {(): _under_replicated(core)},
        "weft_replication_lag_entries": lambda: _lag(core),
    }


def _states(verdict: Verdict) -> Labelled:
    """1 for the current state, 0 for the others."""
    return {(state,): float(state == verdict.state) for state in STATES}


def _may_fail(verdict: Verdict) -> Labelled:
    return {("service",): verdict.service, ("messages",): verdict.data}


def _nodes(core: Core) -> Labelled:
    states = Counter(
        member.state if core.alive(node) else UNREACHABLE
        for node, member in core.view.members.items()
    )
    return {(state,): count for state, count in states.items()}


def _partitions(core: Core) -> Labelled:
    """Counts partitions by the node's role: the replica's role, following, or learning."""
    roles: Counter[str] = Counter()
    for number, place in enumerate(core.view.places):
        replica = core.replicas.get(number)
        if place.primary == core.node:
            roles[replica.role.value if replica is not None else "unknown"] += 1
        elif core.node in place.sync:
            roles["following"] += 1
        elif core.node in place.learners:
            roles["learning"] += 1
    return {(role,): count for role, count in roles.items()}


def _under_replicated(core: Core) -> int:
    view = core.view
    return sum(
        place.primary == core.node and len(place.sync) < view.min_sync for place in view.places
    )


def _lag(core: Core) -> Labelled:
    """The largest lag of each follower over all partitions led by the node."""
    most: dict[tuple[str, ...], float] = {}
    for number, replica in core.replicas.items():
        led = number < len(core.view.places) and core.view.places[number].primary == core.node
        if led and replica.role is Role.ACTIVE:
            for follower, entries in replica.lag().items():
                most[(follower,)] = max(most.get((follower,), 0), entries)
    return most

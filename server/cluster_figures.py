"""The cluster's part of a node's figures: members, roles, copies and lag, as this node sees them.

Each function is read in the node's thread when somebody looks (`figures.py`), and goes once over
the view: some hundred partitions.
"""

from __future__ import annotations

from collections import Counter

from weft.dht.core import Core
from weft.dht.role import Role

from .figures import ClusterFigures, Labelled

#: A member that was not heard of lately, whatever the view says of it.
UNREACHABLE = "unreachable"


def of(core: Core) -> ClusterFigures:
    return {
        "weft_cluster_nodes": lambda: _nodes(core),
        "weft_view_version": lambda: {(): core.view.version},
        "weft_partitions": lambda: _partitions(core),
        "weft_under_replicated_partitions": lambda: {(): _under_replicated(core)},
        "weft_replication_lag_entries": lambda: _lag(core),
    }


def _nodes(core: Core) -> Labelled:
    states = Counter(
        member.state if core.alive(node) else UNREACHABLE
        for node, member in core.view.members.items()
    )
    return {(state,): count for state, count in states.items()}


def _partitions(core: Core) -> Labelled:
    """What this node is to each partition: what it does as its primary, or how it follows."""
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
    """The most that each follower is behind in any partition that this node leads."""
    most: dict[tuple[str, ...], float] = {}
    for number, replica in core.replicas.items():
        led = number < len(core.view.places) and core.view.places[number].primary == core.node
        if led and replica.role is Role.ACTIVE:
            for follower, entries in replica.lag().items():
                most[(follower,)] = max(most.get((follower,), 0), entries)
    return most

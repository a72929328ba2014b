"""The status of a cluster, as reported by a node, with a verdict.

A partition is *served* when the primary is active and the whole sync set is alive.
`weft.dht.safety` computes the verdict and defines the rules and states.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from weft.dht.safety import Observation, Verdict, assess
from weft.dht.view import Member, ReplicaSet, View
from weft.proto import weft_pb2 as pb

#: Number of disks that hold an acknowledged message, given enough nodes.
COPIES: Final = 2
ACTIVE: Final = "active"


@dataclass(frozen=True)
class NodeHealth:
    """A member, with the numbers of partitions led, followed and learned."""

    node: pb.Node
    leads: int
    follows: int
    learns: int

    @property
    def holds(self) -> int:
        return self.leads + self.follows + self.learns


@dataclass(frozen=True)
class ClusterHealth:
    places: pb.PlacesResponse
    nodes: list[NodeHealth]
    #: Number of partitions by role of the primary.
    roles: dict[str, int]
    verdict: Verdict

    @classmethod
    def of(cls, places: pb.PlacesResponse) -> ClusterHealth:
        return cls(
            places,
            _nodes(places),
            dict(Counter(place.role for place in places.places)),
            assess(_observation(places)),
        )

    @property
    def troubles(self) -> list[str]:
        """The reasons why the cluster is not settled, as text."""
        return list(self.verdict.reasons)

    @property
    def settled(self) -> bool:
        return self.verdict.settled


def data_nodes(places: pb.PlacesResponse) -> list[pb.Node]:
    """The members able to hold data, now and in future."""
    return [n for n in places.nodes if n.alive and n.state == ACTIVE and not n.witness]


def _observation(places: pb.PlacesResponse) -> Observation:
    members = {
        node.id: Member(
            node.peer, node.key, node.grpc, node.zmq, node.state, node.witness, node.data_key
        )
        for node in places.nodes
    }
    view = View(
        places.version, tuple(places.voters), tuple(places.joining), members,
        tuple(ReplicaSet(p.epoch, tuple(p.sync), tuple(p.learners)) for p in places.places),
        places.min_sync, (), places.learners if places.HasField("learners") else 1,
    )  # fmt: skip
    return Observation(
        view,
        frozenset(node.id for node in places.nodes if node.alive),
        [place.role for place in places.places],
        [dict(place.lag) for place in places.places],
        places.observer,
    )


def _nodes(places: pb.PlacesResponse) -> list[NodeHealth]:
    leads = Counter(place.sync[0] for place in places.places if place.sync)
    follows = Counter(node for place in places.places for node in place.sync[1:])
    learns = Counter(node for place in places.places for node in place.learners)
    return [
        NodeHealth(node, leads[node.id], follows[node.id], learns[node.id]) for node in places.nodes
    ]

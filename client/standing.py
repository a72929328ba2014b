"""How a cluster stands, counted from where its partitions are.

A partition is *served* when its primary says that it is active. It is *thin* when fewer nodes hold
it in step than there should be: two, or as many as there are to hold data. It *lags* when a
follower that is alive lacks more than what is on its way. With none of these the cluster is
settled: any one node may fail.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from weft.proto import weft_pb2 as pb

#: Disks that hold an acknowledged message, where there are so many nodes.
COPIES: Final = 2
ACTIVE: Final = "active"


@dataclass(frozen=True)
class NodeStanding:
    """A member, and in how many partitions it has which part."""

    node: pb.Node
    leads: int
    follows: int
    learns: int

    @property
    def holds(self) -> int:
        return self.leads + self.follows + self.learns


@dataclass(frozen=True)
class Standing:
    places: pb.PlacesResponse
    nodes: list[NodeStanding]
    #: Partitions by what their primary is doing.
    roles: dict[str, int]
    #: Numbers of partitions, the catalogue's last.
    idle: list[int]
    thin: list[int]
    lagging: list[int]
    #: Copies in step that each partition should have.
    wanted: int

    @classmethod
    def of(cls, places: pb.PlacesResponse) -> Standing:
        alive = {node.id for node in places.nodes if node.alive}
        wanted = max(places.min_sync, min(COPIES, len(data_nodes(places))), 1)
        numbered = list(enumerate(places.places))
        return cls(
            places,
            _nodes(places),
            dict(Counter(place.role for place in places.places)),
            [number for number, place in numbered if place.role != ACTIVE],
            [number for number, place in numbered if len(place.sync) < wanted],
            [
                number
                for number, place in numbered
                if any(place.lag[n] for n in place.lag if n in alive)
            ],
            wanted,
        )

    @property
    def _may_go_on_alone(self) -> bool:
        """Two nodes with a witness: one copy will do while one of them is down."""
        witness = any(node.witness and node.state == ACTIVE for node in self.places.nodes)
        return witness and len(data_nodes(self.places)) <= COPIES

    @property
    def troubles(self) -> list[str]:
        """What keeps the cluster from being settled, in words."""
        found = []
        if not self.places.places:
            found.append("no partitions")
        if self.idle:
            found.append(f"{len(self.idle)} not served")
        if self.thin:
            found.append(f"{len(self.thin)} with fewer than {self.wanted} copies in step")
        if self.lagging:
            found.append(f"{len(self.lagging)} with a follower behind")
        if self.places.min_sync < self.wanted and not self._may_go_on_alone:
            found.append(f"acknowledged on {self.places.min_sync} of {self.wanted} copies")
        leaving = [each.node.id for each in self.nodes if each.node.state == "leaving"]
        if leaving:
            found.append(f"{', '.join(leaving)} leaving")
        return found

    @property
    def settled(self) -> bool:
        return not self.troubles


def data_nodes(places: pb.PlacesResponse) -> list[pb.Node]:
    """The members that can hold data now, and go on to."""
    return [n for n in places.nodes if n.alive and n.state == ACTIVE and not n.witness]


def _nodes(places: pb.PlacesResponse) -> list[NodeStanding]:
    leads = Counter(place.sync[0] for place in places.places if place.sync)
    follows = Counter(node for place in places.places for node in place.sync[1:])
    learns = Counter(node for place in places.places for node in place.learners)
    return [
        NodeStanding(node, leads[node.id], follows[node.id], learns[node.id])
        for node in places.nodes
    ]

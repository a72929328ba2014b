"""The cluster view of a client: the nodes, and the primary of each partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from weft.errors import InvalidArgument, ProtocolError
from weft.proto import wire

#: Hosts for "every interface": the client uses the host of its own connection instead.
_WILDCARDS: Final = ("", "*", "0.0.0.0", "::", "[::]")


@dataclass(frozen=True)
class ClusterNode:
    """A node as this client reaches it: addresses are HOST:PORT."""

    id: str
    grpc: str
    zmq: str
    #: True if the sender of the view received a message from this node recently.
    alive: bool = True
    #: A witness has a vote and holds no data.
    witness: bool = False
    #: The public key of the node's data path, in hexadecimal digits.
    data_key: str = ""
    #: The node's zone; "" if not set.
    zone: str = ""


@dataclass(frozen=True)
class ClusterView:
    cluster: str
    partitions: int
    nodes: tuple[ClusterNode, ...]
    version: int = 1
    #: For each partition the index of its primary in `nodes`; empty: the first node leads all.
    primaries: tuple[int, ...] = ()
    #: The reason why some partitions cannot be served before a dead node is back, according to the
    #: sender of the view; "" if all partitions can be served.
    outage: str = ""

    @classmethod
    def of(cls, info: wire.ViewInfo, via: str) -> ClusterView:
        """Checks a node's answer; `via` is the address by which the client reached the node."""
        if info.wire_version != wire.WIRE_VERSION:
            raise ProtocolError(
                f"the node at {via} speaks version {info.wire_version} of the data path, this "
                f"client version {wire.WIRE_VERSION}: install the same version of weft on both"
            )
        if not info.nodes or not info.partitions:
            raise ProtocolError(f"the node at {via} knows of no node, not even itself")
        if info.primaries and (
            len(info.primaries) != info.partitions
            or not all(0 <= place < len(info.nodes) for place in info.primaries)
        ):
            raise ProtocolError(f"the node at {via} gave a view whose primaries are not its nodes")
        nodes = [
            ClusterNode(
                n.node,
                reach(n.grpc, via),
                reach(n.zmq, via),
                n.alive,
                n.witness,
                n.data_key,
                n.zone,
            )
            for n in info.nodes
        ]
        return cls(
            info.cluster, info.partitions, tuple(nodes), info.version, tuple(info.primaries),
            info.outage,
        )  # fmt: skip

    @property
    def alone(self) -> bool:
        """True if the cluster has one node: no other node can serve a request."""
        return len(self.nodes) == 1

    def supersedes(self, other: ClusterView) -> bool:
        """True if this view replaces the other.

        The only node of a cluster is always trusted: the node may have moved to other ports, or may
        have been recreated. In a cluster of several nodes, no node may lead the client into another
        cluster.
        """
        return other.alone or (self.cluster == other.cluster and self.version > other.version)

    def same_places(self, other: ClusterView) -> bool:
        """True if nodes and primaries are unchanged; liveness does not matter."""
        return self is other or (
            self.cluster == other.cluster
            and self.partitions == other.partitions
            and self.primaries == other.primaries
            and [(n.id, n.zmq) for n in self.nodes] == [(n.id, n.zmq) for n in other.nodes]
        )

    def primary(self, partition: int) -> ClusterNode:
        return self.nodes[self.primaries[partition] if self.primaries else 0]

    def leaders(self) -> list[ClusterNode]:
        """The nodes that lead a partition: together they hold all messages that can be popped."""
        places = sorted(set(self.primaries)) if self.primaries else [0]
        return [self.nodes[place] for place in places]

    def zone_of(self, node: str) -> set[str]:
        """The nodes in the zone of a node; empty if the node has no zone."""
        zones = {each.id: each.zone for each in self.nodes}
        zone = zones.get(node, "")
        return {each for each, its_zone in zones.items() if zone and its_zone == zone}

    def nearest(self, seeds: Sequence[str]) -> ClusterNode | None:
        """Returns the preferred node: the first seed, else a node on this machine, if any."""
        holding = [node for node in self.nodes if not node.witness]
        near = [node for node in holding if node.grpc == seeds[0]]
        near += [node for node in holding if is_loopback(node.zmq)]
        return near[0] if near else None


def split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidArgument(f"a server is HOST:PORT, not {address[:100]!r}")
    return host, int(port)


def reach(address: str, via: str) -> str:
    """Replaces a wildcard host with the host by which the client reached the node."""
    host, port = split_address(address)
    return f"{split_address(via)[0]}:{port}" if host in _WILDCARDS else address


def is_loopback(address: str) -> bool:
    host = split_address(address)[0]
    return host in ("localhost", "[::1]") or host.startswith("127.")

"""The cluster as a client sees it: its nodes, and which of them leads each partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from weft.errors import InvalidArgument, ProtocolError
from weft.proto import wire

#: Hosts that mean "every interface": the client goes on with the one by which it came.
_WILDCARDS: Final = ("", "*", "0.0.0.0", "::", "[::]")


@dataclass(frozen=True)
class Node:
    """A node as this client reaches it: addresses are HOST:PORT."""

    id: str
    grpc: str
    zmq: str
    #: Whether it was heard of lately, by the node that gave the view.
    alive: bool = True
    #: It has a vote and holds no data.
    witness: bool = False
    #: The public key of its data path, in hexadecimal digits.
    data_key: str = ""


@dataclass(frozen=True)
class View:
    cluster: str
    partitions: int
    nodes: tuple[Node, ...]
    version: int = 1
    #: For each partition the place of its primary in `nodes`; empty: the first has them all.
    primaries: tuple[int, ...] = ()

    @classmethod
    def of(cls, info: wire.ViewInfo, via: str) -> View:
        """A node's answer, checked; `via` is the address by which the node was reached."""
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
            Node(n.node, reach(n.grpc, via), reach(n.zmq, via), n.alive, n.witness, n.data_key)
            for n in info.nodes
        ]
        return cls(info.cluster, info.partitions, tuple(nodes), info.version, tuple(info.primaries))

    @property
    def alone(self) -> bool:
        """One node is the whole cluster: there is nowhere else to go."""
        return len(self.nodes) == 1

    def supersedes(self, other: View) -> bool:
        """Whether this view is to be believed rather than the other.

        The only node of a cluster is believed in all it says: it may have moved to other ports, or
        have been made anew. Of several nodes, none may lead this client into another cluster.
        """
        return other.alone or (self.cluster == other.cluster and self.version > other.version)

    def same_places(self, other: View) -> bool:
        """Whether everything is where it was: who was heard of lately does not matter."""
        return self is other or (
            self.cluster == other.cluster
            and self.partitions == other.partitions
            and self.primaries == other.primaries
            and [(n.id, n.zmq) for n in self.nodes] == [(n.id, n.zmq) for n in other.nodes]
        )

    def primary(self, partition: int) -> Node:
        return self.nodes[self.primaries[partition] if self.primaries else 0]

    def leaders(self) -> list[Node]:
        """The nodes that lead a partition: all messages that can be popped are there."""
        places = sorted(set(self.primaries)) if self.primaries else [0]
        return [self.nodes[place] for place in places]

    def nearest(self, seeds: Sequence[str]) -> Node | None:
        """The node to prefer: the first seed if it is one, else one on this machine, if any."""
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
    """A wildcard host means: the host by which you reached me."""
    host, port = split_address(address)
    return f"{split_address(via)[0]}:{port}" if host in _WILDCARDS else address


def is_loopback(address: str) -> bool:
    host = split_address(address)[0]
    return host in ("localhost", "[::1]") or host.startswith("127.")

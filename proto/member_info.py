"""Members and partitions, as in answers about the cluster."""

from __future__ import annotations

import msgspec


class NodeInfo(msgspec.Struct, array_like=True, frozen=True):
    """One member of the cluster; addresses are HOST:PORT."""

    #: The node's id.
    node: str
    #: The address of the gRPC API.
    grpc: str
    #: The address of the data path.
    zmq: str
    #: "active" or "leaving".
    state: str
    voter: bool = True
    witness: bool = False
    #: True if the answering node received a message from this node recently.
    alive: bool = True
    #: The node's address for other nodes, and the public CURVE key; "" when not reported.
    peer: str = ""
    key: str = ""
    #: The public key of the node's data path, in hexadecimal digits.
    data_key: str = ""
    #: The node's zone: a data centre, or a rack; "" if not set.
    zone: str = ""


class PlaceInfo(msgspec.Struct, array_like=True, frozen=True):
    """One partition, or the catalogue of queues (the last one)."""

    epoch: int
    #: Node ids; the first is the primary.
    sync: list[str]
    learners: list[str]
    #: The primary's role: "active", "sealing", ..., or "unknown" when the primary does not report.
    role: str = "unknown"
    #: The number of missing entries, for each follower that is behind.
    lag: dict[str, int] = {}

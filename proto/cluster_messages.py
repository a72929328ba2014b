"""Members, view and status on the wire.

The rules for every struct of ``wire`` apply: new fields are only added at the end.
"""

from __future__ import annotations

import msgspec

from .member_info import NodeInfo, PlaceInfo
from .request import WIRE_VERSION, Answer, Request

# --- requests ---------------------------------------------------------------------------------


class CatchUp(Request, frozen=True, tag="catch_up"):
    """Between nodes: answered once the catalogue of queues is known up to this entry. Without a
    number, the catalogue's primary answers with the commit index."""

    lsn: int = -1


class GetView(Request, frozen=True, tag="view"):
    """The members of the cluster, their ports, and the primary of each partition."""


class Status(Request, frozen=True, tag="status"):
    """This node's own stats."""


class ClusterStatus(Request, frozen=True, tag="cluster_status"):
    """The whole view, with each primary's knowledge of the replicas."""


class Join(Request, frozen=True, tag="join"):
    """A node with an empty store asks to become a member. Addresses are HOST:PORT."""

    node: str
    grpc: str
    zmq: str
    peer: str
    #: The node's public CURVE key, Z85.
    key: str
    #: The node votes and holds no data.
    witness: bool = False
    #: The version of the node's peer protocol.
    version: int = 1
    #: The public key of the node's data path, in hexadecimal digits.
    data_key: str = ""
    #: The node knows message groups; otherwise it is refused while there are grouped queues.
    knows_groups: bool = False
    #: The node knows commits; otherwise it is refused once commits had effects elsewhere.
    knows_commits: bool = False
    #: The node knows topics and multicasts.
    knows_multicast: bool = False
    #: The node knows stochastic queues; otherwise it is refused while there are such queues.
    knows_stochastic: bool = False
    #: The node's zone, for `access="near"`.
    zone: str = ""
    #: The same for shares and limits of queues.
    knows_limits: bool = False
    #: The same for queues with task graphs.
    knows_graphs: bool = False
    #: The same for multicasts to several ordered queues.
    knows_ordered_multicast: bool = False


class Leave(Request, frozen=True, tag="leave"):
    """A member hands over all its data, and is removed once it holds none."""

    node: str
    #: Leave even if messages are then kept on fewer disks.
    force: bool = False


# --- answers ----------------------------------------------------------------------------------


class ViewInfo(Answer, frozen=True, tag="view"):
    cluster: str
    version: int
    partitions: int
    nodes: list[NodeInfo]
    wire_version: int = WIRE_VERSION
    #: For each partition the index of the primary in `nodes`.
    primaries: list[int] = msgspec.field(default_factory=list)
    #: Why some partitions are unavailable until a dead node is back; "" if all are available.
    outage: str = ""


class ClusterInfo(Answer, frozen=True, tag="cluster_status"):
    cluster: str
    version: int
    #: Copies that an acknowledgement waits for.
    min_sync: int
    voters: list[str]
    nodes: list[NodeInfo]
    places: list[PlaceInfo]
    #: The voters that replace `voters`, while the change is in progress.
    joining: list[str] = msgspec.field(default_factory=list)
    #: The target number of learners of a partition, where there are enough nodes.
    learners: int = 1
    #: The answering node: `NodeInfo.alive` is this node's observation.
    observer: str = ""


class Joined(Answer, frozen=True, tag="joined"):
    """The view with the new member, in the encoding between nodes."""

    cluster: str
    partitions: int
    view: bytes


class StatusInfo(Answer, frozen=True, tag="status"):
    node: str
    version: str
    uptime_ms: int
    durability: str
    queues: int
    ready: int
    leased: int
    delayed: int
    store_bytes: int
    free_bytes: int
    reserve_bytes: int
    commits: int
    cpu_us: int
    rss_bytes: int
    #: Messages and bytes sent to other nodes.
    peer_messages: int = 0
    peer_bytes: int = 0
    #: Searches for plain clients, the searches' requests to other nodes, and messages taken from
    #: other nodes beyond the requested number.
    searches: int = 0
    hops: int = 0
    stolen: int = 0
    #: The node's clock, in milliseconds since 1970.
    now_ms: int = 0
    #: Messages to other nodes that contain a ping, and so are sent in any case.
    peer_pings: int = 0
    #: Stolen messages returned unused.
    stolen_returned: int = 0
    #: The disk is at its reserve: the node refuses pushes while less than `limit_bytes` are free.
    full: bool = False
    limit_bytes: int = 0
    #: Ids of other nodes with a full disk: pushes replicated to such a node are refused.
    full_peers: list[str] = msgspec.field(default_factory=list)
    #: Effects of commits that other partitions have not taken, and effects that found their queue
    #: deleted or purged, or no room.
    undelivered: int = 0
    dropped: int = 0

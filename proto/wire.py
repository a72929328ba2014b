"""The ZeroMQ data path: requests and answers, one struct per verb.

A request is a multipart message ``[call, payload...]``, an answer ``[reply, payload...]``. The
first frame is msgpack, decoded straight into one of these structs, so a frame of another shape is
refused before any code sees it. Every struct is an array on the wire whose first element is the
verb; fields are only ever added at the end, with a default.

Payload frames carry message batches as they are stored (see ``Payload``): the node does not take
them apart on the way in or out unless a pop wants a part of a batch. ``Push`` and ``Stage`` have
exactly one payload frame, ``Popped`` and ``Peeked`` have one per lent range, every other verb has
none. Subscriptions and stages are in ``streams``.

The gRPC service fills the same structs, so one handler stands behind both wires.
"""

from __future__ import annotations

import msgspec

from .settings import Settings
from .streams import INNER_REQUESTS, STREAM_ANSWERS, STREAM_REQUESTS
from .verb import Answer as Answer
from .verb import Request as Request
from .zmtp import Frame as Frame

#: Raised when an old peer could misread a new frame; a node refuses any other.
WIRE_VERSION = 2


class Payload(msgspec.Struct, array_like=True, frozen=True):
    """A batch's messages by column; `headers` and `keys` are nil or as long as `bodies`."""

    bodies: list[bytes]
    headers: list[dict[str, str] | None] | None = None
    keys: list[str | None] | None = None


class PayloadViews(msgspec.Struct, array_like=True, frozen=True):
    """The same, to be looked at: the bodies stay where they are."""

    bodies: list[memoryview]
    headers: list[dict[str, str] | None] | None = None
    keys: list[str | None] | None = None


# --- requests ---------------------------------------------------------------------------------


class Push(Request, frozen=True, tag="push"):
    queue: str
    producer: int
    batch: int
    count: int
    delay_ms: int = 0
    priority: int = 0
    dedup_key: str | None = None


class Pop(Request, frozen=True, tag="pop"):
    queue: str
    limit: int
    wait_ms: int = 0
    #: 0 means the queue's own lease_ms.
    lease_ms: int = 0
    #: What the answer says of the node's fall (`Popped.fell`) goes to the keeper of the queue's
    #: list with the caller's next `Where`: the node need not send it.
    passes_on: bool = False


class Peek(Request, frozen=True, tag="peek"):
    queue: str
    limit: int


class Receipt(msgspec.Struct, array_like=True, frozen=True):
    """Names a lease and, by index in its batch, some of its messages; no ranges means all."""

    partition: int
    lsn: int
    nonce: int
    ranges: list[tuple[int, int]] = []


class Ack(Request, frozen=True, tag="ack"):
    queue: str
    receipts: list[Receipt]


class Nack(Request, frozen=True, tag="nack"):
    queue: str
    receipts: list[Receipt]
    delay_ms: int = 0
    reason: str = ""
    #: False gives messages back that the caller never looked at: no delivery is counted.
    counted: bool = True


class Extend(Request, frozen=True, tag="extend"):
    queue: str
    receipts: list[Receipt]
    lease_ms: int


class CreateQueue(Request, frozen=True, tag="create_queue"):
    queue: str
    settings: Settings


class UpdateQueue(Request, frozen=True, tag="update_queue"):
    """Changes the settings named in `changes`; the others stay."""

    queue: str
    changes: dict[str, int | str | bool]


class DeleteQueue(Request, frozen=True, tag="delete_queue"):
    queue: str


class ListQueues(Request, frozen=True, tag="list_queues"):
    prefix: str = ""
    #: Names after this one: pages of `limit`.
    after: str = ""
    limit: int = 1000


class DescribeQueue(Request, frozen=True, tag="describe_queue"):
    queue: str


class PurgeQueue(Request, frozen=True, tag="purge_queue"):
    queue: str


class Redrive(Request, frozen=True, tag="redrive"):
    """Sends dead letters back to the queues they came from; `limit` 0 means all."""

    queue: str
    limit: int = 0


class KeptPart(msgspec.Struct, array_like=True, frozen=True):
    """Messages `first` to `first + count - 1` of a batch that is kept."""

    first: int
    count: int
    #: The name of the queue they wait in.
    queue: str
    deliveries: int = 0
    #: Not before this time, in microseconds since 1970.
    due: int = 0
    #: Why they are dead letters, and the queue they came from.
    reason: str = ""
    origin: str = ""


class Kept(msgspec.Struct, array_like=True, frozen=True):
    """A batch out of a node, as it is kept in a backup. Fields are only ever added at the end."""

    #: The queue it was pushed to.
    queue: str
    producer: int
    batch: int
    count: int
    #: When it was pushed, in microseconds since 1970.
    stamp: int
    priority: int
    dedup_key: str | None
    parts: list[KeptPart]
    #: A `Payload`; messages that are in no part have empty bodies.
    payload: bytes


class Snapshot(Request, frozen=True, tag="snapshot"):
    """A page of what a partition holds, asked of its primary: batches, then rows of the table.

    The next page is asked for with the `lsn` and the `key` of the answer.
    """

    partition: int
    #: Only the messages of this queue, and no rows.
    queue: str | None = None
    after_lsn: int = 0
    #: Nil: batches first.
    after_key: str | None = None


class Restore(Request, frozen=True, tag="restore"):
    """Puts a batch back. Batches of one backup come to a partition in the order of `number`; one
    that the partition has taken before is not taken again."""

    queue: str
    #: The backup's 128 bits as two numbers.
    backup: tuple[int, int]
    number: int
    kept: Kept


class Insert(Request, frozen=True, tag="insert"):
    key: str
    value: bytes


class Lookup(Request, frozen=True, tag="lookup"):
    key: str


class Remove(Request, frozen=True, tag="remove"):
    key: str


class Append(Request, frozen=True, tag="append"):
    key: str
    value: bytes


class CompareAndSwap(Request, frozen=True, tag="compare_and_swap"):
    """`old` nil: only if the key is absent; `new` nil: remove it."""

    key: str
    old: bytes | None
    new: bytes | None


class Where(Request, frozen=True, tag="where"):
    """Which nodes have messages of a queue ready. Asked of the primary of the queue's name: it
    keeps the queue's metadata list. With `wait_ms` it answers when there is such a node."""

    queue: str
    wait_ms: int = 0
    #: Nodes that had nothing left when the caller was there, as each of them said.
    fallen: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)


class CatchUp(Request, frozen=True, tag="catch_up"):
    """Between nodes: answered when the catalogue of queues is known up to this entry. Without a
    number, its primary says how far it is committed."""

    lsn: int = -1


class View(Request, frozen=True, tag="view"):
    """Who is in the cluster, where its ports are, and which node leads each partition."""


class Status(Request, frozen=True, tag="status"):
    """This node's own figures."""


class ClusterStatus(Request, frozen=True, tag="cluster_status"):
    """The whole view, with what each primary knows of its replicas."""


class Join(Request, frozen=True, tag="join"):
    """A node with an empty store asks to become a member. Addresses are HOST:PORT."""

    node: str
    grpc: str
    zmq: str
    peer: str
    #: Its public CURVE key, Z85.
    key: str
    #: It has a vote and holds no data.
    witness: bool = False
    #: The version of what it says to other nodes.
    version: int = 1
    #: The public key of its data path, in hexadecimal digits.
    data_key: str = ""


class Leave(Request, frozen=True, tag="leave"):
    """A member is to hand over what it holds, and is removed when it holds nothing."""

    node: str
    #: Even if from then on messages are kept on fewer disks.
    force: bool = False


QUEUE_REQUESTS = (
    Push | Pop | Peek | Ack | Nack | Extend
    | CreateQueue | UpdateQueue | DeleteQueue | ListQueues | DescribeQueue | PurgeQueue | Redrive
    | Snapshot | Restore
)  # fmt: skip
TABLE_REQUESTS = Insert | Lookup | Remove | Append | CompareAndSwap
CLUSTER_REQUESTS = Where | CatchUp | View | Status | ClusterStatus | Join | Leave
AnyRequest = QUEUE_REQUESTS | TABLE_REQUESTS | CLUSTER_REQUESTS | STREAM_REQUESTS | INNER_REQUESTS

# --- answers ----------------------------------------------------------------------------------


class Failure(Answer, frozen=True, tag="failure"):
    code: str
    message: str
    retriable: bool


class Pushed(Answer, frozen=True, tag="pushed"):
    """Where the batch is. A duplicate gets the ids of the first push."""

    partition: int
    producer: int
    batch: int
    count: int
    duplicate: bool
    #: "disk" (fsynced before this answer) or "os" (in the page cache).
    durability: str


class Lent(msgspec.Struct, array_like=True, frozen=True):
    """Messages `first` to `first + count - 1` of one batch, lent under one nonce.

    In a `Peeked` the nonce is 0 and nothing was lent. Its payload frame holds just these messages.
    """

    partition: int
    lsn: int
    nonce: int
    first: int
    count: int
    producer: int
    batch: int
    #: Including this one.
    deliveries: int
    #: When the batch was pushed, in milliseconds since 1970.
    pushed_ms: int
    lease_ms: int
    priority: int = 0
    #: Why it is a dead letter, if it is one.
    reason: str = ""


class Popped(Answer, frozen=True, tag="popped"):
    lent: list[Lent]
    #: Messages of the queue that are still ready on this node.
    left: int = 0
    #: It has none left: what it told the keeper of the list, up to this (boot, number), is over.
    fell: tuple[int, int] | None = None


class Peeked(Answer, frozen=True, tag="peeked"):
    lent: list[Lent]


class Snapped(Answer, frozen=True, tag="snapped"):
    batches: list[Kept]
    rows: list[tuple[str, bytes]]
    #: Where the next page begins, if there is `more`.
    lsn: int
    key: str | None
    more: bool


class Settled(Answer, frozen=True, tag="settled"):
    """What an ack, nack or extend did, in messages."""

    done: int
    #: Acked before under this very receipt: a retry.
    already: int
    #: Positions, in the request's receipts, whose lease (or part of it) is lost.
    lost: list[int]


class QueueInfo(msgspec.Struct, array_like=True, frozen=True):
    name: str
    settings: Settings
    ready: int
    leased: int
    delayed: int
    bytes: int
    #: Age of the oldest waiting message, in milliseconds; 0 when there is none.
    oldest_ms: int
    pushed: int
    delivered: int
    acked: int
    dead_lettered: int
    expired_leases: int
    duplicates: int
    waiting_pops: int
    #: Held for subscriptions, and staged but not published.
    reserved: int = 0
    staged: int = 0
    #: Bytes that are neither.
    backlog_bytes: int = 0


class Queues(Answer, frozen=True, tag="queues"):
    queues: list[QueueInfo]
    more: bool


class Created(Answer, frozen=True, tag="created"):
    """`created` is False when a queue with exactly these settings was there already."""

    created: bool


class Done(Answer, frozen=True, tag="done"):
    """`count`: the messages that were purged, deleted or redriven."""

    count: int = 0


class Value(Answer, frozen=True, tag="value"):
    value: bytes | None


class Swapped(Answer, frozen=True, tag="swapped"):
    swapped: bool
    #: What stood there; nil when nothing did.
    current: bytes | None


class Nodes(Answer, frozen=True, tag="nodes"):
    """Ids of nodes that have messages of the queue ready, those with most first."""

    nodes: list[str]
    #: Whether the keeper takes it from this caller that a node has nothing left.
    heeds: bool = False


class NodeInfo(msgspec.Struct, array_like=True, frozen=True):
    node: str
    grpc: str
    zmq: str
    #: "active" or "leaving".
    state: str
    voter: bool = True
    witness: bool = False
    #: Whether the node that answers has heard of it lately.
    alive: bool = True
    #: Where it listens for other nodes, and its public CURVE key; "" when that is not said.
    peer: str = ""
    key: str = ""
    #: The public key of its data path, in hexadecimal digits.
    data_key: str = ""


class ViewInfo(Answer, frozen=True, tag="view"):
    cluster: str
    version: int
    partitions: int
    nodes: list[NodeInfo]
    wire_version: int = WIRE_VERSION
    #: For each partition the place of its primary in `nodes`.
    primaries: list[int] = msgspec.field(default_factory=list)


class PlaceInfo(msgspec.Struct, array_like=True, frozen=True):
    """One partition, or the catalogue of queues (the last one)."""

    epoch: int
    #: Node ids; the first is the primary.
    sync: list[str]
    learners: list[str]
    #: What its primary is doing: "active", "sealing", ..., or "unknown" when it does not say.
    role: str = "unknown"
    #: Entries that each follower is behind, for those that are.
    lag: dict[str, int] = {}


class ClusterInfo(Answer, frozen=True, tag="cluster_status"):
    cluster: str
    version: int
    #: Copies that an acknowledgement waits for.
    min_sync: int
    voters: list[str]
    nodes: list[NodeInfo]
    places: list[PlaceInfo]


class Joined(Answer, frozen=True, tag="joined"):
    """The view with the new member, as nodes hand it to each other."""

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
    #: What it has said to other nodes.
    peer_messages: int = 0
    peer_bytes: int = 0
    #: Searches for plain clients, questions in them that left this node, and messages that were
    #: taken from other nodes beyond what was asked for.
    searches: int = 0
    hops: int = 0
    stolen: int = 0
    #: The node's clock, in milliseconds since 1970.
    now_ms: int = 0
    #: Of the messages to other nodes those that go out in any case: there was a ping in them.
    peer_pings: int = 0


AnyAnswer = (
    Failure | Pushed | Popped | Peeked | Snapped | Settled | Queues | Created | Done
    | Value | Swapped | Nodes | ViewInfo | StatusInfo | ClusterInfo | Joined
    | STREAM_ANSWERS
)  # fmt: skip

# --- frames -----------------------------------------------------------------------------------


class Call(msgspec.Struct, array_like=True, frozen=True):
    """The first frame of a request. `rid` is the caller's own number, echoed in the reply."""

    version: int
    rid: int
    request: AnyRequest
    #: For a node that wants one.
    token: str = ""


class Reply(msgspec.Struct, array_like=True, frozen=True):
    """The first frame of an answer."""

    rid: int
    answer: AnyAnswer


_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode
decode_call = msgspec.msgpack.Decoder(Call).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode
decode_payload = msgspec.msgpack.Decoder(Payload).decode
decode_payload_views = msgspec.msgpack.Decoder(PayloadViews).decode

#: What a decoder raises for bytes that are not its struct. Text that is not UTF-8 and arrays nested
#: too deeply come as errors of Python's own.
MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

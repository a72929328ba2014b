"""The ZeroMQ data path: requests and answers, one struct per verb.

A request is a multipart message ``[call, payload...]``, an answer ``[reply, payload...]``. The
first frame is msgpack, decoded straight into one of these structs, so the decoder refuses a
malformed frame before any other code runs. Every struct is an array on the wire with the verb as
first element; new fields are only added at the end, with a default.

Payload frames carry message batches as stored (see ``Payload``): the node does not decode a payload
on the way in or out unless a pop takes a part of a batch. ``Push`` and ``StageBatch`` have exactly
one payload frame, ``Popped`` and ``Peeked`` have one per leased range, every other verb has none.
Subscriptions and stages are in ``pipelines``.

The gRPC service fills the same structs, so both wires share one handler per verb.
"""

from __future__ import annotations

import msgspec

from weft.transport.zmtp import Frame as Frame

from .member_info import NodeInfo as NodeInfo
from .member_info import PlaceInfo as PlaceInfo
from .pipelines import INNER_REQUESTS, STREAM_ANSWERS, STREAM_REQUESTS
from .recovery_messages import RECOVERY_ANSWERS
from .recovery_messages import Copies as Copies
from .recovery_messages import CopiesInfo as CopiesInfo
from .recovery_messages import CopyInfo as CopyInfo
from .recovery_messages import LostPlace as LostPlace
from .recovery_messages import Recover as Recover
from .recovery_messages import Recovery as Recovery
from .request import Answer as Answer
from .request import Request as Request
from .settings import Settings

#: Incremented when an old peer could misread a new frame; a node refuses any other version.
WIRE_VERSION = 2


class Payload(msgspec.Struct, array_like=True, frozen=True):
    """A batch's messages by column; `headers` and `keys` are nil or as long as `bodies`."""

    bodies: list[bytes]
    headers: list[dict[str, str] | None] | None = None
    keys: list[str | None] | None = None


class PayloadViews(msgspec.Struct, array_like=True, frozen=True):
    """A `Payload` decoded without copying: the bodies are views into the frame."""

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
    #: The caller reports `Popped.fell` to the owner of the queue's metadata list with the next
    #: `Where`, so the node need not send the report (see `Nodes.heeds`).
    passes_on: bool = False
    #: The caller buffers the messages: a delivery counts only once the caller reports the hand-out
    #: (`Extend.handed`). If the lease expires first, the messages return uncounted.
    prefetch: bool = False
    #: With `prefetch`, for an application that processes a whole lot in milliseconds: messages that
    #: need not be handed out `alone` count as handed out at once.
    handed: bool = False


class StopWaiting(Request, frozen=True, tag="stop_waiting"):
    """Ends the wait of a `Pop` or `Where`, sent on this connection as call number `call`: the node
    answers the call at once, empty. Otherwise a pop of a departed caller would lease messages,
    including messages that the caller is just returning."""

    call: int


class Peek(Request, frozen=True, tag="peek"):
    queue: str
    limit: int
    #: Show messages that are not due yet, in order of due time, instead of the ready messages.
    delayed: bool = False


class Receipt(msgspec.Struct, array_like=True, frozen=True):
    """Names a lease and, by index in the batch, some of the messages; no ranges means all."""

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
    #: False returns messages that the application never received: no delivery is counted.
    counted: bool = True
    #: No further attempt: the messages move to the dead-letter queue now, if the queue has one.
    final: bool = False


class Extend(Request, frozen=True, tag="extend"):
    queue: str
    receipts: list[Receipt]
    lease_ms: int
    #: The application receives these messages now: from here on the delivery counts, even if no
    #: ack or nack follows. Only a lease of a prefetching pop needs this flag.
    handed: bool = False


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
    #: Return names after this one, in pages of `limit`.
    after: str = ""
    limit: int = 1000


class DescribeQueue(Request, frozen=True, tag="describe_queue"):
    queue: str


class PurgeQueue(Request, frozen=True, tag="purge_queue"):
    queue: str


class Redrive(Request, frozen=True, tag="redrive"):
    """Returns dead letters to their original queues; `limit` 0 means all."""

    queue: str
    limit: int = 0


class Cancel(Request, frozen=True, tag="cancel"):
    """Removes one ready or delayed message, by the parts of the message id. `Done` counts 0 if the
    message is missing; a message held by a consumer or a subscription is refused."""

    queue: str
    partition: int
    producer: int
    batch: int
    index: int


class KeptPart(msgspec.Struct, array_like=True, frozen=True):
    """Messages `first` to `first + count - 1` of a batch in a backup."""

    first: int
    count: int
    #: The name of the queue with the waiting messages.
    queue: str
    deliveries: int = 0
    #: Not before this time, in microseconds since 1970.
    due: int = 0
    #: The dead-letter reason, and the original queue.
    reason: str = ""
    origin: str = ""


class Kept(msgspec.Struct, array_like=True, frozen=True):
    """A batch of a node, as stored in a backup. New fields are only added at the end."""

    #: The queue of the push.
    queue: str
    producer: int
    batch: int
    count: int
    #: The time of the push, in microseconds since 1970.
    stamp: int
    priority: int
    dedup_key: str | None
    parts: list[KeptPart]
    #: A `Payload`; messages in no part have empty bodies.
    payload: bytes


class Snapshot(Request, frozen=True, tag="snapshot"):
    """A page of a partition's contents, requested from the primary: batches, then table rows.

    The caller requests the next page with the `lsn` and the `key` of the answer.
    """

    partition: int
    #: Only the messages of this queue, and no rows.
    queue: str | None = None
    after_lsn: int = 0
    #: Nil: batches first.
    after_key: str | None = None


class Restore(Request, frozen=True, tag="restore"):
    """Restores a batch. The batches of one backup reach a partition in the order of `number`; the
    partition skips a batch that it has taken before."""

    queue: str
    #: The backup's 128-bit id as two numbers.
    backup: tuple[int, int]
    number: int
    kept: Kept
    #: Restore only messages of the batch that a purge or a delete removed from this cluster.
    #: `number` then counts down from -1: a node that does not know this field refuses the request
    #: instead of restoring all messages.
    purged_only: bool = False
    #: The batch's second name, as `backup` and `number`: a restore of one queue and a restore of
    #: the whole backup recognise each other's batches by this name. Zeros: no second name.
    also: tuple[int, int, int] = (0, 0, 0)


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
    """`old` nil: only if the key is absent; `new` nil: remove the key."""

    key: str
    old: bytes | None
    new: bytes | None


class Where(Request, frozen=True, tag="where"):
    """The nodes with ready messages of a queue. Sent to the primary of the queue's name, the owner
    of the queue's metadata list. With `wait_ms` the owner answers when there is such a node."""

    queue: str
    wait_ms: int = 0
    #: Nodes that were empty when the caller popped there, with each node's `Popped.fell`.
    fallen: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    #: Between nodes: the waiting pop. The list's owner may forward the pop to a node with messages,
    #: and the holder answers the waiting node with `Popped`.
    pop: Pop | None = None


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


class Leave(Request, frozen=True, tag="leave"):
    """A member hands over all its data, and is removed once it holds none."""

    node: str
    #: Leave even if messages are then kept on fewer disks.
    force: bool = False


QUEUE_REQUESTS = (
    Push | Pop | StopWaiting | Peek | Ack | Nack | Extend
    | CreateQueue | UpdateQueue | DeleteQueue | ListQueues | DescribeQueue | PurgeQueue | Redrive
    | Snapshot | Restore | Cancel
)  # fmt: skip
TABLE_REQUESTS = Insert | Lookup | Remove | Append | CompareAndSwap
CLUSTER_REQUESTS = (
    Where | CatchUp | GetView | Status | ClusterStatus | Join | Leave | Recover | Copies
)
AnyRequest = QUEUE_REQUESTS | TABLE_REQUESTS | CLUSTER_REQUESTS | STREAM_REQUESTS | INNER_REQUESTS

# --- answers ----------------------------------------------------------------------------------


class Failure(Answer, frozen=True, tag="failure"):
    code: str
    message: str
    retriable: bool


class Pushed(Answer, frozen=True, tag="pushed"):
    """The place of the batch. A duplicate gets the ids of the first push."""

    partition: int
    producer: int
    batch: int
    count: int
    duplicate: bool
    #: "disk" (fsynced before this answer) or "os" (in the page cache).
    durability: str


class Lent(msgspec.Struct, array_like=True, frozen=True):
    """Messages `first` to `first + count - 1` of one batch, leased under one nonce.

    In a `Peeked` the nonce is 0 and there is no lease. The payload frame holds only these messages.
    """

    partition: int
    lsn: int
    nonce: int
    first: int
    count: int
    producer: int
    batch: int
    #: Including this delivery.
    deliveries: int
    #: When the batch was pushed, in milliseconds since 1970.
    pushed_ms: int
    lease_ms: int
    priority: int = 0
    #: The dead-letter reason, for a dead letter (see ``dead_letter``).
    reason: str = ""
    #: A worker died with this message before, and this is the last delivery: hand the message out
    #: alone, with every earlier ack confirmed. Otherwise a message that kills the worker takes this
    #: message along.
    alone: bool = False
    #: The original queue of a dead letter.
    origin: str = ""
    #: When a delayed message is, or was, due, in milliseconds since 1970; 0: no delay.
    due_ms: int = 0


class Popped(Answer, frozen=True, tag="popped"):
    lent: list[Lent]
    #: Ready messages of the queue left on this node.
    left: int = 0
    #: No message is left: the node's announcements to the list's owner, up to this (boot, number),
    #: are void.
    fell: tuple[int, int] | None = None


class Peeked(Answer, frozen=True, tag="peeked"):
    lent: list[Lent]


class Snapped(Answer, frozen=True, tag="snapped"):
    batches: list[Kept]
    rows: list[tuple[str, bytes]]
    #: The start of the next page, if there is `more`.
    lsn: int
    key: str | None
    more: bool


class Settled(Answer, frozen=True, tag="settled"):
    """The result of an ack, nack or extend, in messages."""

    done: int
    #: Acked before under the same receipt: a retry.
    already: int
    #: Positions, in the request's receipts, of leases that are lost, in whole or in part.
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
    #: Messages held for subscriptions, and messages staged but not published.
    reserved: int = 0
    staged: int = 0
    #: Bytes that are neither reserved nor staged.
    backlog_bytes: int = 0
    #: Partitions missing from these counts, because no node that answered leads them.
    uncounted_partitions: int = 0
    #: Ids of the nodes that lead such partitions and did not answer.
    missing_nodes: list[str] = msgspec.field(default_factory=list)


class Queues(Answer, frozen=True, tag="queues"):
    queues: list[QueueInfo]
    more: bool
    #: Number of counted partitions, without the catalogue; -1 if not reported.
    counted: int = -1


class Created(Answer, frozen=True, tag="created"):
    """`created` is False when a queue with exactly these settings existed already."""

    created: bool


class Done(Answer, frozen=True, tag="done"):
    """`count`: the messages that were purged, deleted, redriven or cancelled."""

    count: int = 0


class Value(Answer, frozen=True, tag="value"):
    value: bytes | None


class Swapped(Answer, frozen=True, tag="swapped"):
    swapped: bool
    #: The value before the call; nil when the key was absent.
    current: bytes | None


class Nodes(Answer, frozen=True, tag="nodes"):
    """Ids of nodes with ready messages of the queue, in descending order of messages."""

    nodes: list[str]
    #: True if the list's owner accepts this caller's reports of empty nodes (`Pop.passes_on`).
    heeds: bool = False


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


AnyAnswer = (
    Failure | Pushed | Popped | Peeked | Snapped | Settled | Queues | Created | Done
    | Value | Swapped | Nodes | ViewInfo | StatusInfo | ClusterInfo | Joined
    | RECOVERY_ANSWERS
    | STREAM_ANSWERS
)  # fmt: skip

# --- frames -----------------------------------------------------------------------------------


class Call(msgspec.Struct, array_like=True, frozen=True):
    """The first frame of a request. `rid` is the caller's own number, echoed in the reply."""

    version: int
    rid: int
    request: AnyRequest
    #: For a node that requires a token.
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

#: Errors of a decoder for malformed bytes. Text that is not UTF-8 and too deeply nested arrays
#: raise Python's own errors.
MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

"""The facts of a verb: all that routing, access, audit, retry and dispatch know of a request.

``verbs`` has one row per request type. Other modules derive sets and dicts from the rows when they
are imported, so a request on the data path costs one look-up, and no module has a list of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .request import Answer, Request


class Route(Enum):
    """The nodes that execute a client's request."""

    #: The receiving node's driver: the request concerns the process or the connection.
    DRIVER = "driver"
    #: The receiving node's core. The node refuses the request if it does not lead its partition.
    NODE = "node"
    #: The primaries of the request's partitions. A smart client sends the request there; for a
    #: plain client the receiving node does so.
    PRIMARY = "primary"
    #: A node that has messages of the queue. A smart client searches; for a plain client the
    #: receiving node searches.
    SEARCH = "search"
    #: All nodes, by an operation of the receiving node; a node alone in its cluster needs none.
    CLUSTER = "cluster"
    #: Several steps, by an operation of the receiving node, in a cluster of one node too.
    OPERATION = "operation"
    #: A node, in the course of an operation of another node: refused from a client.
    INTERNAL = "internal"


class Partitions(Enum):
    """How a request names its partitions. A node answers only if it leads all of them."""

    #: By none: the request concerns a node, or whatever the node leads.
    NONE = "none"
    #: By the hash of a batch's name, or of an ordered queue's name.
    BATCH = "batch"
    #: By the destinations of a multicast, or of a push to a topic.
    DESTINATIONS = "destinations"
    #: By the field `partition`.
    NUMBER = "number"
    #: By the field `partition`; if it is -1, by the receipts, keys and pushes of a commit.
    HOME = "home"
    #: By the field `partitions`.
    NUMBERS = "numbers"
    #: By the partition in each receipt.
    RECEIPTS = "receipts"
    #: By the partition in each hold.
    HOLDS = "holds"
    #: By the hash of the table key.
    KEY = "key"
    #: By the field `partitions`; if empty, by the hash of each table key in `keys`.
    KEYS = "keys"
    #: By the field `partitions`; if empty, all partitions.
    SPAN = "span"
    #: By the hash of the queue's name: the owner of the queue's metadata list.
    QUEUE = "queue"
    #: The catalogue of queues.
    CATALOGUE = "catalogue"
    #: The home of the subscription's ledger.
    SUBSCRIPTION = "subscription"
    #: The home of the publisher's record.
    APP = "app"


class Permission(Enum):
    """What a client's token must grant. The first four: that permission on the queue or key."""

    PUSH = "push"
    CONSUME = "consume"
    ADMIN = "admin"
    TABLE = "table"
    #: Any grant on the queue.
    ANY_GRANT = "any grant on the queue"
    #: ``watch`` or ``admin`` on every name with the prefix.
    LISTING = "watch or admin on the prefix"
    #: ``table`` on every key with the prefix.
    TABLE_PREFIX = "table on the prefix"
    #: For each effect, the permission of the verb with that effect alone.
    EFFECTS = "the permission of each effect"
    #: ``admin:*``.
    OPERATOR = "admin:*"
    #: Any valid token.
    ANYONE = "any token"
    #: No token suffices: the default, so that a new verb is denied.
    NOBODY = "no token"


class Repeat(Enum):
    """Whether a client or a node may send a request again after a failure."""

    #: A batch has a name, and a settled receipt is answered "already": a resend is safe.
    FREELY = "freely"
    #: A connection sends one copy; after its failure the caller may send another. See `Cancel`.
    ONE_COPY = "one copy"
    #: Only after a failure which proves that the request was not executed: a second execution has
    #: a second effect, or its answer hides the result of the first.
    ONCE = "once"


class Wait(Enum):
    """Whether a node may answer late, by the time in the request's field `wait_ms`."""

    NO = "no"
    #: The node waits for messages, or for changes of table keys: it is idle meanwhile, and
    #: `StopWaiting` ends the wait.
    MESSAGES = "messages"
    #: The node asks other nodes.
    WORK = "work"


class Quota(Enum):
    """The quota that a request counts against."""

    NONE = "none"
    #: Messages and bytes pushed.
    PUSHES = "pushes"
    #: Queues: the request may make some.
    QUEUES = "queues"


@dataclass(frozen=True, slots=True)
class Verb:
    """One row of the table: the facts of one request type."""

    request: type[Request]
    #: The types of its answer, beside `Failure`; an operation may turn one into another.
    answers: tuple[type[Answer], ...]
    route: Route
    permission: Permission = Permission.NOBODY
    partitions: Partitions = Partitions.NONE
    repeat: Repeat = Repeat.FREELY
    wait: Wait = Wait.NO
    quota: Quota = Quota.NONE
    #: The request has one payload frame; every other request has none.
    payload: bool = False
    #: The audit log has a line for each success; refusals have a line for every verb.
    audited: bool = False
    #: A verb of the data path, about one queue: access decisions are cached.
    cached_access: bool = False
    #: The named queue need not exist: a node that does not know the queue need not ask for it.
    creates_queue: bool = False
    #: The gRPC methods, ``Service.Method``, that send this request.
    grpc: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The tag on the wire."""
        return str(self.request.__struct_config__.tag)

    @property
    def names_queue(self) -> bool:
        """True if the request names a queue that must exist."""
        return "queue" in self.request.__struct_fields__ and not self.creates_queue

"""The data path on the wire: push, pop and settle messages, and find the nodes that hold them.

A payload frame carries a batch as stored (see ``Payload``). The rules for every struct of ``wire``
apply: new fields are only added at the end.
"""

from __future__ import annotations

import msgspec

from .request import Answer, Request


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


class PushGroup(Push, frozen=True, tag="push_group"):
    """A push to a grouped queue: a batch has one group. The verb has a tag of its own because a
    node of an older version would ignore an unknown field of `Push`, and lose the order."""

    group: str = ""


class PushTenant(Push, frozen=True, tag="push_tenant"):
    """A push with a tenant: a batch has one tenant. The verb has a tag of its own because a node of
    an older version would ignore an unknown field of `Push`."""

    tenant: str = ""


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


class Room(Request, frozen=True, tag="room"):
    """Waits for room in the node's buffer of a stochastic queue, for one batch. `Done` counts 1 if
    the batch may be pushed now, and its room is kept for `ROOM_KEPT_US`; 0 after `wait_ms`."""

    queue: str
    partition: int
    producer: int
    batch: int
    #: The messages of the batch.
    count: int = 1
    wait_ms: int = 0


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


class Move(Request, frozen=True, tag="move"):
    """Moves leased messages to another queue, ready at once, in one log entry per partition. The
    messages keep ids, bodies, priorities and delivery counts; this delivery is not counted."""

    queue: str
    receipts: list[Receipt]
    #: The queue of destination.
    to: str


class Extend(Request, frozen=True, tag="extend"):
    queue: str
    receipts: list[Receipt]
    lease_ms: int
    #: The application receives these messages now: from here on the delivery counts, even if no
    #: ack or nack follows. Only a lease of a prefetching pop needs this flag.
    handed: bool = False


class Cancel(Request, frozen=True, tag="cancel"):
    """Removes one ready or delayed message, by the parts of the message id. `Done` counts 0 if the
    message is missing; a message held by a consumer or a subscription is refused."""

    queue: str
    partition: int
    producer: int
    batch: int
    index: int


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


# --- answers ----------------------------------------------------------------------------------


class Pushed(Answer, frozen=True, tag="pushed"):
    """The place of the batch. A duplicate gets the ids of the first push."""

    partition: int
    producer: int
    batch: int
    count: int
    duplicate: bool
    #: "disk" (fsynced before this answer) or "os" (in the page cache).
    durability: str
    #: The index of the first message: of a duplicate under the dedup key of a multicast.
    first: int = 0
    #: The kind of the queue: `Settings.kind`.
    kind: str = ""


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
    #: The group, for a message of a grouped queue.
    group: str | None = None


class ProbeReport(msgspec.Struct, array_like=True, frozen=True):
    """What a node of a stochastic queue reports with each answer to a pop: what a consumer needs to
    choose the node of its next probe."""

    #: Messages pushed to this node per second, measured over the last seconds.
    rate: float
    max_hops: int
    access: str


class Popped(Answer, frozen=True, tag="popped"):
    lent: list[Lent]
    #: Messages of the queue left on this node that another pop could take now.
    left: int = 0
    #: No message is left: the node's announcements to the list's owner, up to this (boot, number),
    #: are void.
    fell: tuple[int, int] | None = None
    #: From a node that holds messages of a stochastic queue; None for every other queue.
    probe: ProbeReport | None = None


class Peeked(Answer, frozen=True, tag="peeked"):
    lent: list[Lent]


class Settled(Answer, frozen=True, tag="settled"):
    """The result of an ack, nack or extend, in messages."""

    done: int
    #: Acked before under the same receipt: a retry.
    already: int
    #: Positions, in the request's receipts, of leases that are lost, in whole or in part.
    lost: list[int]


class Nodes(Answer, frozen=True, tag="nodes"):
    """Ids of nodes with ready messages of the queue, in descending order of messages."""

    nodes: list[str]
    #: True if the list's owner accepts this caller's reports of empty nodes (`Pop.passes_on`).
    heeds: bool = False

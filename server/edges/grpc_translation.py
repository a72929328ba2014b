"""Translation between the public proto and the engine's structs.

Only the representation changes here. The engine validates values, in one place for both protocols;
this module only decides the meaning of an unset field, as ``weft.proto`` documents it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from weft.errors import InvalidArgument, TooLarge
from weft.ids import MessageId
from weft.proto import dead_letter, wire
from weft.proto import weft_pb2 as pb
from weft.proto.settings import Settings

from . import grpc_receipts

POP_LIMIT_DEFAULT = 1
LIST_LIMIT_DEFAULT = 1000
#: The tag and the length in front of a message in a response.
_FIELD_BYTES = 6

_DEFAULTS = Settings()
_CHANGES = [field.name for field in pb.UpdateQueueRequest.DESCRIPTOR.fields][1:]

# --- queues -----------------------------------------------------------------------------------


def settings_in(settings: pb.Settings) -> Settings:
    return Settings(
        lease_ms=settings.lease_ms or _DEFAULTS.lease_ms,
        max_deliveries=settings.max_deliveries,
        dead_letter=settings.dead_letter,
        retention_ms=settings.retention_ms,
        dedup_window_ms=(
            settings.dedup_window_ms
            if settings.HasField("dedup_window_ms")
            else _DEFAULTS.dedup_window_ms
        ),
        max_messages=settings.max_messages,
        ordered=settings.ordered,
    )


def settings_out(settings: Settings) -> pb.Settings:
    return pb.Settings(
        lease_ms=settings.lease_ms,
        max_deliveries=settings.max_deliveries,
        dead_letter=settings.dead_letter,
        retention_ms=settings.retention_ms,
        dedup_window_ms=settings.dedup_window_ms,
        max_messages=settings.max_messages,
        ordered=settings.ordered,
    )


def create_queue(request: pb.CreateQueueRequest) -> wire.CreateQueue:
    return wire.CreateQueue(request.queue, settings_in(request.settings))


def update_queue(request: pb.UpdateQueueRequest) -> wire.UpdateQueue:
    changes = {name: getattr(request, name) for name in _CHANGES if request.HasField(name)}
    return wire.UpdateQueue(request.queue, changes)


def list_queues(request: pb.ListQueuesRequest) -> wire.ListQueues:
    return wire.ListQueues(request.prefix, request.after, request.limit or LIST_LIMIT_DEFAULT)


def queue_description(info: wire.QueueInfo) -> pb.QueueDescription:
    return pb.QueueDescription(
        name=info.name,
        settings=settings_out(info.settings),
        ready=info.ready,
        leased=info.leased,
        delayed=info.delayed,
        bytes=info.bytes,
        oldest_ms=info.oldest_ms,
        pushed=info.pushed,
        delivered=info.delivered,
        acked=info.acked,
        dead_lettered=info.dead_lettered,
        expired_leases=info.expired_leases,
        duplicates=info.duplicates,
        waiting_pops=info.waiting_pops,
        reserved=info.reserved,
        staged=info.staged,
        backlog_bytes=info.backlog_bytes,
        uncounted_partitions=info.uncounted_partitions,
        missing_nodes=info.missing_nodes,
    )


# --- messages ---------------------------------------------------------------------------------


def push(request: pb.PushRequest, drawn: Iterator[tuple[int, int]]) -> tuple[wire.Push, bytes]:
    """The request and its payload frame; an unnamed push takes the next drawn (producer, batch)."""
    named = request.HasField("producer")
    if named != request.HasField("batch"):
        raise InvalidArgument("producer and batch go together: give both, or neither")
    producer, batch = (request.producer, request.batch) if named else next(drawn)
    dedup_key = request.dedup_key if request.HasField("dedup_key") else None
    asked = wire.Push(
        queue=request.queue,
        producer=producer,
        batch=batch,
        count=len(request.messages),
        delay_ms=request.delay_ms,
        priority=request.priority,
        dedup_key=dedup_key,
    )
    return asked, wire.encode(payload(request.messages))


def payload(messages: Sequence[pb.OutMessage]) -> wire.Payload:
    """A batch by column; a column unused by all messages is left out."""
    headers = [dict(message.headers) or None for message in messages]
    keys = [message.key if message.HasField("key") else None for message in messages]
    return wire.Payload(
        bodies=[message.body for message in messages],
        headers=headers if any(headers) else None,
        keys=None if all(key is None for key in keys) else keys,
    )


def pushed(answer: wire.Pushed) -> pb.PushResponse:
    first = MessageId.of(answer.partition, answer.producer, answer.batch, 0)
    return pb.PushResponse(
        ids=[f"{number:032x}" for number in range(first, first + answer.count)],
        duplicate=answer.duplicate,
        durability=answer.durability,
    )


def pop(request: pb.PopRequest, wait_ms: int) -> wire.Pop:
    limit = request.limit or POP_LIMIT_DEFAULT
    return wire.Pop(request.queue, limit, wait_ms, request.lease_ms)


def peek(request: pb.PeekRequest) -> wire.Peek:
    return wire.Peek(request.queue, request.limit or POP_LIMIT_DEFAULT, request.delayed)


def cancel(request: pb.CancelRequest) -> wire.Cancel:
    name = MessageId.parse(request.id)
    return wire.Cancel(request.queue, name.partition, name.producer, name.batch, name.index)


def messages(lent: Iterable[wire.Lent], frames: Iterable[bytes]) -> list[pb.Message]:
    """Leased messages (or, with nonce 0, only shown ones), one proto per message."""
    pairs = zip(lent, frames, strict=True)
    return [message for one, frame in pairs for message in _range(one, frame)]


def _range(lent: wire.Lent, frame: bytes) -> Iterator[pb.Message]:
    batch = wire.decode_payload(frame)
    assert len(batch.bodies) == lent.count, "a payload frame holds just the messages of its range"
    first = MessageId.of(lent.partition, lent.producer, lent.batch, lent.first)
    lease = (lent.partition, lent.lsn, lent.nonce)
    nothing = [None] * lent.count
    columns = zip(batch.bodies, batch.headers or nothing, batch.keys or nothing, strict=True)
    for place, (body, headers, key) in enumerate(columns):
        yield pb.Message(
            id=f"{first + place:032x}",
            body=body,
            headers=headers,
            key=key,
            receipt=grpc_receipts.pack(lease, lent.first + place) if lent.nonce else b"",
            deliveries=lent.deliveries,
            pushed_ms=lent.pushed_ms,
            lease_ms=lent.lease_ms,
            priority=lent.priority,
            dead_reason=lent.reason,
            dead_origin=lent.origin,
            dead_deliveries=dead_letter.deliveries_of(lent.reason),
            due_ms=lent.due_ms,
        )


def pages(messages: Sequence[pb.Message], bytes_max: int) -> Iterator[list[pb.Message]]:
    """Splits messages into responses of at most `bytes_max` bytes.

    A message too large for a response of its own raises TooLarge when its turn comes.
    """
    page: list[pb.Message] = []
    room = bytes_max
    for message in messages:
        size = message.ByteSize() + _FIELD_BYTES
        if size > bytes_max:
            if page:
                yield page
            raise TooLarge(
                f"the message {message.id} takes {size} bytes in an answer, more than max_bytes "
                f"{bytes_max}: raise the receive limit of the gRPC channel "
                f"(max_receive_message_length) and ask with max_bytes of at least {size}"
            )
        if page and size > room:
            yield page
            page, room = [], bytes_max
        page.append(message)
        room -= size
    if page:
        yield page


def fitting(messages: Sequence[pb.QueueDescription], bytes_max: int) -> int:
    """The number of messages that fit into one response of `bytes_max` bytes; at least one."""
    for count, total in enumerate(
        accumulate(message.ByteSize() + _FIELD_BYTES for message in messages)
    ):
        if total > bytes_max:
            return max(1, count)
    return len(messages)


# --- the cluster ------------------------------------------------------------------------------


def view(answer: wire.ViewInfo) -> pb.ViewResponse:
    return pb.ViewResponse(
        cluster=answer.cluster,
        version=answer.version,
        partitions=answer.partitions,
        nodes=map(_node, answer.nodes),
        wire_version=answer.wire_version,
        primaries=answer.primaries,
        outage=answer.outage,
    )


def places(answer: wire.ClusterInfo) -> pb.PlacesResponse:
    return pb.PlacesResponse(
        cluster=answer.cluster,
        version=answer.version,
        min_sync=answer.min_sync,
        voters=answer.voters,
        nodes=map(_node, answer.nodes),
        places=[
            pb.Place(
                epoch=place.epoch,
                sync=place.sync,
                learners=place.learners,
                role=place.role,
                lag=place.lag,
            )
            for place in answer.places
        ],
        joining=answer.joining,
        learners=answer.learners,
        observer=answer.observer,
    )


def recovery(answer: wire.Recovery) -> pb.RecoverResponse:
    return pb.RecoverResponse(
        lost=answer.lost,
        unreachable=answer.unreachable,
        places=[
            pb.LostPlace(
                partition=place.partition,
                sync=place.sync,
                base=place.base,
                messages=place.messages,
                more=place.more,
            )
            for place in answer.places
        ],
        quorum=answer.quorum,
        catalogue=answer.catalogue,
        done=answer.done,
    )


def join(request: pb.JoinRequest) -> wire.Join:
    return wire.Join(
        request.node, request.grpc, request.zmq, request.peer, request.key, request.witness,
        request.peer_version or 1, request.data_key,
    )  # fmt: skip


def _node(node: wire.NodeInfo) -> pb.Node:
    return pb.Node(
        id=node.node,
        grpc=node.grpc,
        zmq=node.zmq,
        state=node.state,
        voter=node.voter,
        witness=node.witness,
        alive=node.alive,
        peer=node.peer,
        key=node.key,
        data_key=node.data_key,
    )


def status(answer: wire.StatusInfo) -> pb.StatusResponse:
    return pb.StatusResponse(
        node=answer.node,
        version=answer.version,
        uptime_ms=answer.uptime_ms,
        durability=answer.durability,
        queues=answer.queues,
        ready=answer.ready,
        leased=answer.leased,
        delayed=answer.delayed,
        store_bytes=answer.store_bytes,
        free_bytes=answer.free_bytes,
        reserve_bytes=answer.reserve_bytes,
        commits=answer.commits,
        cpu_us=answer.cpu_us,
        rss_bytes=answer.rss_bytes,
        peer_messages=answer.peer_messages,
        peer_bytes=answer.peer_bytes,
        searches=answer.searches,
        hops=answer.hops,
        stolen=answer.stolen,
        now_ms=answer.now_ms,
        peer_pings=answer.peer_pings,
        full=answer.full,
        limit_bytes=answer.limit_bytes,
        full_peers=answer.full_peers,
        stolen_returned=answer.stolen_returned,
    )


# --- backups ----------------------------------------------------------------------------------


def snapshot(request: pb.SnapshotRequest) -> wire.Snapshot:
    return wire.Snapshot(
        request.partition,
        request.queue if request.HasField("queue") else None,
        request.after_lsn,
        request.after_key if request.HasField("after_key") else None,
    )


def snapped(answer: wire.Snapped) -> pb.SnapshotResponse:
    rows = [pb.Row(key=key, value=value) for key, value in answer.rows]
    batches = map(_kept_out, answer.batches)
    return pb.SnapshotResponse(
        batches=batches, rows=rows, lsn=answer.lsn, key=answer.key, more=answer.more
    )


def _kept_out(kept: wire.Kept) -> pb.Kept:
    return pb.Kept(
        queue=kept.queue,
        producer=kept.producer,
        batch=kept.batch,
        count=kept.count,
        stamp_us=kept.stamp,
        priority=kept.priority,
        dedup_key=kept.dedup_key,
        parts=[
            pb.KeptPart(
                first=part.first, count=part.count, queue=part.queue, deliveries=part.deliveries,
                due_us=part.due, reason=part.reason, origin=part.origin,
            )
            for part in kept.parts
        ],
        payload=kept.payload,
    )  # fmt: skip


def restore(request: pb.RestoreRequest) -> wire.Restore:
    if len(request.backup) != 16:
        raise InvalidArgument(f"a backup's name has 16 bytes, not {len(request.backup)}")
    halves = (int.from_bytes(request.backup[:8], "big"), int.from_bytes(request.backup[8:], "big"))
    return wire.Restore(request.queue, halves, request.number, _kept_in(request.kept))


def _kept_in(kept: pb.Kept) -> wire.Kept:
    parts = [
        wire.KeptPart(
            part.first, part.count, part.queue, part.deliveries, part.due_us, part.reason,
            part.origin,
        )
        for part in kept.parts
    ]  # fmt: skip
    dedup_key = kept.dedup_key if kept.HasField("dedup_key") else None
    return wire.Kept(
        kept.queue, kept.producer, kept.batch, kept.count, kept.stamp_us, kept.priority, dedup_key,
        parts, kept.payload,
    )  # fmt: skip

"""Translation of messages with the generated classes: the reference for what is written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from weft.errors import InvalidArgument
from weft.ids import MessageId
from weft.proto import dead_letter, wire
from weft.proto import weft_pb2 as pb
from weft.server.edges import grpc_receipts


def push(request: pb.PushRequest, drawn: Iterator[tuple[int, int]]) -> tuple[wire.Push, bytes]:
    """The request and its payload frame; an unnamed push takes the next drawn (producer, batch)."""
    named = request.HasField("producer")
    if named != request.HasField("batch"):
        raise InvalidArgument("producer and batch go together: set both, or neither")
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

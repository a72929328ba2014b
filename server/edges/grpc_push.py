"""The gRPC methods Push and PushBatch: messages in, ids out, without an object per message.

`Push` has a message for each body on the wire. Its messages are parsed as bytes, and a message with
a body alone, the most common one, is a known start and the body; a batch with headers or keys is
parsed with the generated class. `PushBatch` has its messages by column, as the store has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import repeat
from operator import itemgetter
from typing import Any, Final

from google.protobuf.message import DecodeError

from weft.errors import InvalidArgument
from weft.ids import MessageId
from weft.proto import weft_pb2 as pb
from weft.proto import wire

from .grpc_method import Asked, malformed, parse
from .grpc_services import GrpcServices
from .proto_fields import INDEX_DIGITS, SoleFieldStarts, id_start, with_bytes

_RAW_PUSH: Final = with_bytes(pb.PushRequest, "messages")
_BODY_STARTS: Final = SoleFieldStarts(pb.OutMessage.BODY_FIELD_NUMBER)


def ask_push(services: GrpcServices, message: bytes, remaining_s: float | None) -> Asked:
    request = parse(message, _RAW_PUSH)
    raw = list(request.messages)  # each pass over protobuf's own list makes all bytes again
    drawn = services.local_names if request.queue in services.local else services.drawn
    return Asked(push_request(request, len(raw), drawn), (payload_of(raw),))


def reply_push(
    _: GrpcServices, asked: Asked, answer: wire.Pushed, frames: Sequence[bytes]
) -> bytes:
    return ids_field(answer) + _push_response(answer.duplicate, answer.durability)


def ask_push_batch(services: GrpcServices, message: bytes, remaining_s: float | None) -> Asked:
    request = parse(message, pb.PushBatchRequest)
    columns = request.messages
    drawn = services.local_names if request.queue in services.local else services.drawn
    asked = push_request(request, len(columns.bodies), drawn)
    return Asked(asked, (payload_of_columns(columns),))


def reply_push_batch(
    _: GrpcServices, asked: Asked, answer: wire.Pushed, frames: Sequence[bytes]
) -> bytes:
    return pb.PushBatchResponse(
        first_id=first_id(answer),
        count=answer.count,
        duplicate=answer.duplicate,
        durability=answer.durability,
    ).SerializeToString()


def push_request(request: Any, count: int, drawn: Iterator[tuple[int, int]]) -> wire.Push:
    """The fields that PushRequest, PushBatchRequest and ProduceRequest have in common.

    A push without a name takes the next drawn (producer, batch).
    """
    named = request.HasField("producer")
    if named != request.HasField("batch"):
        raise InvalidArgument("producer and batch go together: set both, or neither")
    producer, batch = (request.producer, request.batch) if named else next(drawn)
    dedup_key = request.dedup_key if request.HasField("dedup_key") else None
    if request.HasField("group") and request.HasField("tenant"):
        raise InvalidArgument("a push has a group or a tenant, not both")
    if request.HasField("tenant"):
        return wire.PushTenant(
            request.queue, producer, batch, count, request.delay_ms, request.priority, dedup_key,
            request.tenant,
        )  # fmt: skip
    if request.HasField("group"):
        return wire.PushGroup(
            request.queue, producer, batch, count, request.delay_ms, request.priority, dedup_key,
            request.group,
        )  # fmt: skip
    return wire.Push(
        request.queue, producer, batch, count, request.delay_ms, request.priority, dedup_key
    )


def ask_room(services: GrpcServices, message: bytes, remaining_s: float | None) -> Asked:
    """Waits for room for a batch with a drawn name: the push after it takes this name."""
    request = parse(message, pb.RoomRequest)
    name = next(services.names(request.queue))
    asked = wire.Room(
        request.queue, services.partition(name), *name, request.messages or 1, request.wait_ms
    )
    return Asked(asked, (), name)


def reply_room(_: GrpcServices, asked: Asked, answer: wire.Done, frames: Sequence[bytes]) -> bytes:
    producer, batch = asked.kept
    room = answer.count > 0
    return pb.RoomResponse(room=room, producer=producer, batch=batch).SerializeToString()


def payload_of(raw: Sequence[bytes]) -> bytes:
    """The payload frame of serialized OutMessages."""
    if len(raw) == 1 and raw[0].startswith(start := _BODY_STARTS[len(raw[0])]):
        return wire.encode(wire.Payload([raw[0][len(start) :]]))
    if len(set(map(len, raw))) == 1:  # equal lengths, so equal starts
        start = _BODY_STARTS[len(raw[0])]
        if all(map(bytes.startswith, raw, repeat(start))):
            return wire.encode(wire.Payload(list(map(itemgetter(slice(len(start), None)), raw))))
    starts = list(map(_BODY_STARTS.__getitem__, map(len, raw)))
    if all(map(bytes.startswith, raw, starts)):
        bodies = [one[len(start) :] for one, start in zip(raw, starts, strict=True)]
        return wire.encode(wire.Payload(bodies))
    try:
        return wire.encode(payload(list(map(pb.OutMessage.FromString, raw))))
    except DecodeError:
        raise malformed(pb.OutMessage.DESCRIPTOR.full_name) from None


def payload(messages: Sequence[pb.OutMessage]) -> wire.Payload:
    """A batch by column; a column unused by all messages is left out."""
    headers = [dict(message.headers) or None for message in messages]
    keys = [message.key if message.HasField("key") else None for message in messages]
    return wire.Payload(
        bodies=[message.body for message in messages],
        headers=headers if any(headers) else None,
        keys=None if all(key is None for key in keys) else keys,
    )


def payload_of_columns(columns: pb.Columns) -> bytes:
    """The payload frame of a batch by column."""
    count = len(columns.bodies)
    for name, column in (("headers", columns.headers), ("keys", columns.keys)):
        if column and len(column) != count:
            raise InvalidArgument(
                f"the column {name} has {len(column)} values and bodies has {count}: give one for "
                "each body, or leave the column empty"
            )
    headers: list[dict[str, str] | None] | None = None
    if columns.headers:
        headers = [dict(each.values) or None for each in columns.headers]
    keys: list[str | None] | None = None
    if any(columns.keys):
        keys = [key or None for key in columns.keys]
    return wire.encode(
        wire.Payload(list(columns.bodies), headers if headers and any(headers) else None, keys)
    )


def first_id(answer: wire.Pushed) -> str:
    return str(MessageId.of(answer.partition, answer.producer, answer.batch, answer.first))


def ids_field(answer: wire.Pushed) -> bytes:
    """The field `ids` of a PushResponse: only the last digits differ from message to message."""
    if not answer.count:
        return b""
    shared = id_start(answer.partition, answer.producer, answer.batch)
    return shared + shared.join(INDEX_DIGITS[answer.first : answer.first + answer.count])


@cache
def _push_response(duplicate: bool, durability: str) -> bytes:
    return pb.PushResponse(duplicate=duplicate, durability=durability).SerializeToString()

"""The gRPC method Commit: acks, pushes and table writes, all or nothing.

A push without a name gets one that follows from the commit's name and the push's position, so a
resent commit has the same ids.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterable, Sequence
from typing import Final

import xxhash

from weft.errors import InvalidArgument, LeaseLost
from weft.ids import BATCH_BITS, PRODUCER_BITS, MessageId
from weft.proto import weft_pb2 as pb
from weft.proto import wire

from . import grpc_push, grpc_table
from .grpc_method import Asked, parse
from .grpc_receipts import Grouped
from .grpc_services import GrpcServices

_place: Final = struct.Struct(">QQI")


def ask_commit(_: GrpcServices, data: bytes, remaining_s: float | None) -> Asked:
    asked = parse(data, pb.CommitRequest)
    producer, number = _name(asked)
    grouped = [Grouped.of(each.receipts, each.lots) for each in asked.acks]
    if any(each.malformed or each.malformed_lots for each in grouped):
        raise LeaseLost("a receipt of the commit is malformed: nothing was changed")
    acks = [
        wire.CommitAck(each.queue, receipts.receipts())
        for each, receipts in zip(asked.acks, grouped, strict=True)
    ]
    names = (_push_name(producer, number, index) for index in range(1 << 32))
    pushes = [
        *(_push(each, _payload(each.messages), names) for each in asked.pushes),
        *(_push_batch(each, names) for each in asked.push_batches),
    ]
    writes = [_write(each) for each in asked.writes]
    home = asked.partition if asked.HasField("partition") else -1
    return Asked(wire.Commit(home, producer, number, acks, pushes, writes), (), grouped)


def reply_commit(
    services: GrpcServices, asked: Asked, answer: wire.Committed, frames: Sequence[bytes]
) -> bytes:
    for grouped in asked.kept:
        services.holders.settle(grouped.leases)
    assert isinstance(asked.request, wire.Commit), "the request of `ask_commit`"
    pushed = [
        pb.CommittedPush(
            first_id=str(MessageId.of(partition, each.push.producer, each.push.batch, 0)),
            count=each.push.count,
        )
        for each, partition in zip(asked.request.pushes, answer.partitions, strict=True)
    ]
    return pb.CommitResponse(already=answer.already, pushed=pushed).SerializeToString()


def _name(asked: pb.CommitRequest) -> tuple[int, int]:
    """The name of a commit. A node resends the commit of a plain client, so it always has one."""
    if not asked.HasField("name"):
        return secrets.randbits(PRODUCER_BITS), 1 + secrets.randbits(BATCH_BITS - 1)
    if not asked.name.number:
        raise InvalidArgument("the number of a commit's name must be at least 1")
    return asked.name.producer, asked.name.number


def _push_name(producer: int, number: int, index: int) -> tuple[int, int]:
    place = _place.pack(producer, number, index)
    return xxhash.xxh3_64_intdigest(place) >> (64 - PRODUCER_BITS), number


def _payload(messages: Sequence[pb.OutMessage]) -> bytes:
    return wire.encode(grpc_push.payload(messages))


def _push(
    asked: pb.PushRequest, payload: bytes, names: Iterable[tuple[int, int]]
) -> wire.CommitPush:
    push = grpc_push.push_request(asked, len(asked.messages), iter(names))
    return wire.CommitPush(push, payload)


def _push_batch(asked: pb.PushBatchRequest, names: Iterable[tuple[int, int]]) -> wire.CommitPush:
    columns = asked.messages
    push = grpc_push.push_request(asked, len(columns.bodies), iter(names))
    payload = grpc_push.payload_of_columns(columns)
    return wire.CommitPush(push, payload)


def _write(asked: pb.CommitWrite) -> wire.AnyWrite:
    match asked.WhichOneof("write"):
        case "put":
            return grpc_table.put(asked.put)
        case "remove":
            return grpc_table.remove_key(asked.remove)
        case "append":
            return grpc_table.append_key(asked.append)
        case "swap":
            return grpc_table.swap_key(asked.swap)
    raise InvalidArgument("a write of a commit is a put, a remove, an append or a swap")

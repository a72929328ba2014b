"""The gRPC methods of the hash table, as requests and answers of ``weft.proto.wire``."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft import limits
from weft.errors import InvalidArgument
from weft.ids import BATCH_BITS, PRODUCER_BITS
from weft.proto import weft_pb2 as pb
from weft.proto import wire

from .grpc_method import Asked, parse

if TYPE_CHECKING:
    from .grpc_services import GrpcServices

_Named = (
    pb.PutRequest
    | pb.RemoveKeyRequest
    | pb.AppendKeyRequest
    | pb.SwapKeyRequest
    | pb.InsertManyRequest
    | pb.RemoveManyRequest
)


def _name(asked: _Named) -> tuple[int, int]:
    """The name of a write. A node resends the write of a plain client, so it always has a name."""
    if not asked.HasField("name"):
        return secrets.randbits(PRODUCER_BITS), 1 + secrets.randbits(BATCH_BITS - 1)
    if not asked.name.number:
        raise InvalidArgument("the number of a write's name must be at least 1")
    return asked.name.producer, asked.name.number


def _condition(asked: pb.PutRequest | pb.RemoveKeyRequest) -> int:
    return asked.if_version if asked.HasField("if_version") else -1


def put(asked: pb.PutRequest) -> wire.Put:
    return wire.Put(asked.key, asked.value, *_name(asked), asked.ttl_ms, _condition(asked))


def remove_key(asked: pb.RemoveKeyRequest) -> wire.RemoveKey:
    return wire.RemoveKey(asked.key, *_name(asked), _condition(asked))


def append_key(asked: pb.AppendKeyRequest) -> wire.AppendKey:
    return wire.AppendKey(asked.key, asked.value, *_name(asked))


def written(said: wire.KeyWritten) -> pb.KeyWrittenResponse:
    return pb.KeyWrittenResponse(done=said.done, version=said.version, length=said.size)


def swap_key(asked: pb.SwapKeyRequest) -> wire.SwapKey:
    old = asked.old if asked.HasField("old") else None
    new = asked.new if asked.HasField("new") else None
    return wire.SwapKey(asked.key, old, new, *_name(asked))


def swapped(said: wire.Swapped) -> pb.SwapKeyResponse:
    return pb.SwapKeyResponse(swapped=said.swapped, current=said.current, version=said.version)


def insert_many(asked: pb.InsertManyRequest) -> wire.InsertMany:
    keys, values = list(asked.keys), list(asked.values)
    return wire.InsertMany([], keys, values, *_name(asked), asked.ttl_ms)


def remove_many(asked: pb.RemoveManyRequest) -> wire.RemoveMany:
    return wire.RemoveMany([], list(asked.keys), *_name(asked))


def ask_lookup_many(_: GrpcServices, data: bytes, remaining_s: float | None) -> Asked:
    keys = list(parse(data, pb.LookupManyRequest).keys)
    return Asked(wire.LookupMany([], keys), kept=keys)


def reply_lookup_many(
    _: GrpcServices, asked: Asked, answer: Any, frames: Sequence[bytes]
) -> bytes:  # fmt: skip
    assert isinstance(answer, wire.FoundRows), f"LookupMany is not answered with {answer}"
    rows = zip(asked.kept, answer.values, answer.versions, strict=True)
    found = [
        pb.TableEntry(key=key, value=value, version=version)
        for key, value, version in rows
        if value is not None
    ]
    return pb.LookupManyResponse(entries=found).SerializeToString()


def scan(asked: pb.ScanRequest) -> wire.ScanKeys:
    limit = asked.limit or limits.TABLE_SCAN_DEFAULT
    return wire.ScanKeys([], asked.prefix, asked.after, limit)


def page(found: wire.KeyPage) -> pb.ScanResponse:
    rows = zip(found.keys, found.values, found.versions, strict=True)
    entries = [pb.TableEntry(key=k, value=value, version=version) for k, value, version in rows]
    return pb.ScanResponse(entries=entries, after=found.after, more=found.more)

"""etcd's key-value calls over gRPC; messages as in its public rpc.proto."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_BYTES: Final = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
_MESSAGE: Final = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
_PACKAGE: Final = "etcdserverpb"

#: By message: (field, number, message type or "", repeated). Only the fields that are used.
_FIELDS: Final[dict[str, list[tuple[str, int, str, bool]]]] = {
    "KeyValue": [("key", 1, "", False), ("value", 5, "", False)],
    "PutRequest": [("key", 1, "", False), ("value", 2, "", False)],
    "PutResponse": [],
    "RangeRequest": [("key", 1, "", False)],
    "RangeResponse": [("kvs", 2, "KeyValue", True)],
    "RequestOp": [("request_range", 1, "RangeRequest", False),
                  ("request_put", 2, "PutRequest", False)],
    "ResponseOp": [("response_range", 1, "RangeResponse", False),
                   ("response_put", 2, "PutResponse", False)],
    "TxnRequest": [("success", 2, "RequestOp", True)],
    "TxnResponse": [("responses", 3, "ResponseOp", True)],
}  # fmt: skip


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="weft_bench_etcd.proto", package=_PACKAGE, syntax="proto3"
    )
    for message, fields in _FIELDS.items():
        described = file.message_type.add(name=message)
        for name, number, kind, repeated in fields:
            described.field.add(
                name=name,
                number=number,
                type=_MESSAGE if kind else _BYTES,
                type_name=f".{_PACKAGE}.{kind}" if kind else None,
                label=3 if repeated else 1,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _FIELDS
    }


_pb: Final = _classes()


class EtcdTable:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        def method(name: str, request: str, response: str) -> Any:
            return channel.unary_unary(
                f"/{_PACKAGE}.KV/{name}",
                request_serializer=_pb[request].SerializeToString,
                response_deserializer=_pb[response].FromString,
            )

        self._put = method("Put", "PutRequest", "PutResponse")
        self._range = method("Range", "RangeRequest", "RangeResponse")
        self._txn = method("Txn", "TxnRequest", "TxnResponse")

    async def insert(self, key: str, value: bytes) -> object:
        return await self._put(_pb["PutRequest"](key=key.encode(), value=value))

    async def lookup(self, key: str) -> bytes | None:
        found = await self._range(_pb["RangeRequest"](key=key.encode()))
        return bytes(found.kvs[0].value) if found.kvs else None

    async def insert_many(self, items: Mapping[str, bytes]) -> object:
        txn = _pb["TxnRequest"]()
        for key, value in items.items():
            put = txn.success.add().request_put
            put.key, put.value = key.encode(), value
        return await self._txn(txn)

    async def lookup_many(self, keys: Sequence[str]) -> Iterable[bytes | None]:
        txn = _pb["TxnRequest"]()
        for key in keys:
            txn.success.add().request_range.key = key.encode()
        found = await self._txn(txn)
        return [each.response_range.kvs[0].value for each in found.responses]


def connect(target: str) -> grpc.aio.Channel:
    sizes = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    return grpc.aio.insecure_channel(target, options=sizes)

"""A real node with its gRPC edge in this process, and client stubs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2_grpc

from weft import errors, limits
from weft.persistence.directory import DataDirectory
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc
from weft.server.config import Config
from weft.server.edges.grpc_edge import GrpcEdge
from weft.server.edges.grpc_status import STATUS
from weft.server.edges.native_grpc_edge import NativeGrpcEdge
from weft.server.node.node import Node

NAMES = (f"queue-{number}" for number in itertools.count())


def grpc_edge(config: Config, node: Node) -> GrpcEdge | NativeGrpcEdge:
    if config.grpc_server == "native":
        return NativeGrpcEdge(config, node)
    return GrpcEdge(config, node)


class Served:
    """A node, its gRPC edge, and client stubs."""

    def __init__(self, config: Config) -> None:
        self.directory = DataDirectory.open(config.data)
        self.store = self.directory.open_store()
        self.node = Node(config, self.directory, self.store)
        self.node.start()
        self.edge = grpc_edge(config, self.node)
        self.address = str(self.edge.start())
        options = [
            ("grpc.max_receive_message_length", limits.GRPC_BYTES_MAX),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        self.channel = grpc.insecure_channel(self.address, options=options)
        self.queue = weft_pb2_grpc.QueueStub(self.channel)  # type: ignore[no-untyped-call]
        self.table = weft_pb2_grpc.TableStub(self.channel)  # type: ignore[no-untyped-call]
        self.cluster = weft_pb2_grpc.ClusterStub(self.channel)  # type: ignore[no-untyped-call]
        self.stream = weft_pb2_grpc.StreamStub(self.channel)  # type: ignore[no-untyped-call]
        self.health = health_pb2_grpc.HealthStub(self.channel)

    def close(self) -> None:
        self.channel.close()
        self.edge.stop(1)
        self.node.stop()
        self.store.close()
        self.directory.close()

    def make(self, **settings: Any) -> str:
        name = next(NAMES)
        self.queue.CreateQueue(pb.CreateQueueRequest(queue=name, settings=pb.Settings(**settings)))
        return name

    def push(self, name: str, *bodies: bytes) -> list[str]:
        messages = [pb.OutMessage(body=body) for body in bodies]
        answer = self.queue.Push(pb.PushRequest(queue=name, messages=messages))
        return list(answer.ids)

    def pop(self, name: str, limit: int = 1, wait_ms: int = 0) -> list[pb.Message]:
        answer = self.queue.Pop(pb.PopRequest(queue=name, limit=limit, wait_ms=wait_ms))
        return list(answer.messages)

    def describe(self, name: str) -> pb.QueueDescription:
        answer: pb.QueueDescription = self.queue.DescribeQueue(pb.DescribeQueueRequest(queue=name))
        return answer

    def ack(self, name: str, *receipts: bytes) -> pb.SettleResponse:
        answer: pb.SettleResponse = self.queue.Ack(pb.AckRequest(queue=name, receipts=receipts))
        return answer


def serve(path: Path, **settings: Any) -> Served:
    return Served(Config(data=str(path), listen="127.0.0.1:0", durability="os", **settings))


def refused(call: Callable[[], object], error: type[errors.WeftError], says: str = "") -> None:
    """The call fails with this error, as a gRPC status and as a Weft code."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert isinstance(caught.value, grpc.Call)
    trailing = dict(caught.value.trailing_metadata() or ())
    assert trailing.get("weft-code") == error.code, caught.value
    assert trailing["weft-retriable"] == ("true" if error.retriable else "false")
    assert caught.value.code() is STATUS[error.code]
    assert says in (caught.value.details() or "")


def eventually(check: Callable[[], bool], seconds: float = 100) -> None:
    """Wait until the check succeeds. Only a hang exceeds the limit, however busy the machine is."""
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def consume(served: Served, name: str, **values: int) -> grpc.Call:
    call: grpc.Call = served.queue.Consume(pb.ConsumeRequest(queue=name, **values))
    return call

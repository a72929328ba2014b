"""A scripted Cluster service: a real gRPC server, without a node behind it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from weft.errors import WeftError
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc
from weft.proto.wire import WIRE_VERSION
from weft.server.edges.grpc_status import STATUS

CLUSTER = "ab" * 16


class FakeCluster(weft_pb2_grpc.ClusterServicer):
    """Admits every joining node, and marks leaving ones. A test changes the fields."""

    def __init__(self) -> None:
        self.address = ""
        self.view = pb.ViewResponse(
            cluster=CLUSTER, version=1, partitions=16, wire_version=WIRE_VERSION
        )
        self.places = pb.PlacesResponse(cluster=CLUSTER, version=1, min_sync=2)
        self.joins: list[pb.JoinRequest] = []
        self.leaves: list[str] = []
        #: The answer of `Recover`, and the requests received.
        self.recovery = pb.RecoverResponse()
        self.recovers: list[pb.RecoverRequest] = []
        #: Errors raised by the next calls, one each; later calls succeed.
        self.failures: list[WeftError] = []
        #: Raised by every join.
        self.refuse_joins: WeftError | None = None
        self.on_places: Callable[[], None] = lambda: None
        self.called = threading.Event()

    def View(self, request: pb.ViewRequest, context: grpc.ServicerContext) -> pb.ViewResponse:
        self._fail(context)
        return self.view

    def Places(self, request: pb.PlacesRequest, context: grpc.ServicerContext) -> Any:
        self._fail(context)
        self.on_places()
        return self.places

    def Join(self, request: pb.JoinRequest, context: grpc.ServicerContext) -> pb.JoinResponse:
        self._fail(context)
        if self.refuse_joins is not None:
            _abort(context, self.refuse_joins)
        self.joins.append(request)
        return pb.JoinResponse(
            cluster=self.view.cluster, partitions=self.view.partitions, view=b"the view"
        )

    def Leave(self, request: pb.LeaveRequest, context: grpc.ServicerContext) -> pb.LeaveResponse:
        self._fail(context)
        self.leaves.append(request.node)
        return pb.LeaveResponse()

    def Recover(self, request: pb.RecoverRequest, context: grpc.ServicerContext) -> Any:
        self._fail(context)
        self.recovers.append(request)
        answer = pb.RecoverResponse()
        answer.CopyFrom(self.recovery)
        answer.lost.extend(request.lost)
        answer.done = request.execute
        return answer

    def _fail(self, context: grpc.ServicerContext) -> None:
        self.called.set()
        if self.failures:
            _abort(context, self.failures.pop(0))


def _abort(context: grpc.ServicerContext, error: WeftError) -> None:
    retriable = "true" if error.retriable else "false"
    context.set_trailing_metadata((("weft-code", error.code), ("weft-retriable", retriable)))
    context.abort(STATUS[error.code], error.message)


@contextmanager
def fake_cluster(port: int = 0) -> Iterator[FakeCluster]:
    fake = FakeCluster()
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    add: Any = weft_pb2_grpc.add_ClusterServicer_to_server
    add(fake, server)
    fake.address = f"127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{port}')}"
    server.start()
    try:
        yield fake
    finally:
        server.stop(0).wait()

"""What the node answers to a request that is not a plain gRPC call, byte by byte."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tests.contract.http2_socket import Http2Socket, framed
from tests.contract.served import Served, eventually, serve
from weft.proto import weft_pb2 as pb
from weft.server.edges.grpc_code import GrpcCode
from weft.server.edges.grpc_connection import GrpcConnection
from weft.transport import http2_frames as h2

POP = "/weft.v1.Queue/Pop"
DESCRIBE = "/weft.v1.Queue/DescribeQueue"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = serve(tmp_path_factory.mktemp("data"), grpc_server="native")
    yield served
    served.close()


@pytest.fixture
def client(served: Served) -> Iterator[Http2Socket]:
    with Http2Socket(served.address) as client:
        yield client


def status(fields: dict[str, str]) -> GrpcCode:
    return GrpcCode(int(fields["grpc-status"]))


def assembled(served: Served) -> int:
    """Bytes that the connections count for messages that no method has taken."""
    opened = served.node.edge._by_number.values()
    return sum(each._assembled for each in opened if isinstance(each, GrpcConnection))


def test_a_stream_of_large_messages_is_held_back_and_forgotten(served: Served) -> None:
    name = served.make()
    body = bytes(300_000)
    produce: Any = served.channel.stream_stream("/weft.v1.Queue/Produce")
    request = pb.ProduceRequest(queue=name, message=pb.OutMessage(body=body))
    answers = produce(iter([request.SerializeToString()] * 30))
    receipts = [r for raw in answers for r in pb.ProduceResponse.FromString(raw).receipts]
    assert sum(receipt.count for receipt in receipts) == 30
    assert assembled(served) == 0


def test_the_fields_of_a_success(served: Served, client: Http2Socket) -> None:
    asked = pb.DescribeQueueRequest(queue=served.make()).SerializeToString()
    client.send(client.request(DESCRIBE, asked, x_request_id="my-own/1"))
    assert client.answered(1) == {
        ":status": "200",
        "content-type": "application/grpc",
        "grpc-status": "0",
        "x-request-id": "my-own/1",
    }


def test_the_fields_of_a_refusal(client: Http2Socket) -> None:
    asked = pb.DescribeQueueRequest(queue="none").SerializeToString()
    client.send(client.request(DESCRIBE, asked, x_request_id="not printable\x7f"))
    fields = client.answered(1)
    assert status(fields) is GrpcCode.NOT_FOUND
    assert fields["weft-code"] == "QUEUE_NOT_FOUND"
    assert fields["weft-retriable"] == "false"
    assert "none" in unquote(fields["grpc-message"])
    assert len(fields["x-request-id"]) == 16, "an unsafe id is replaced"


def test_every_third_response_of_a_kind_is_cheap(served: Served, client: Http2Socket) -> None:
    asked = pb.DescribeQueueRequest(queue=served.make()).SerializeToString()
    for number in (1, 3, 5):
        client.send(client.request(DESCRIBE, asked))
        assert status(client.answered(number)) is GrpcCode.OK


@pytest.mark.parametrize(
    ("changed", "http"),
    [({"content_type": "application/json"}, "415"), ({":method": "PUT"}, "405")],
)
def test_what_is_not_grpc_gets_an_http_status(
    client: Http2Socket, changed: dict[str, str], http: str
) -> None:
    client.send(client.request(POP, b"", **changed))
    assert client.answered(1)[":status"] == http


@pytest.mark.parametrize("path", ["/weft.v1.Queue/Nothing", "/nothing.Service/Pop", "/"])
def test_an_unknown_method(client: Http2Socket, path: str) -> None:
    client.send(client.request(path, b""))
    fields = client.answered(1)
    assert status(fields) is GrpcCode.UNIMPLEMENTED
    assert path in unquote(fields["grpc-message"])


def test_an_unknown_encoding(client: Http2Socket) -> None:
    client.send(client.request(POP, b"", grpc_encoding="snappy"))
    fields = client.answered(1)
    assert status(fields) is GrpcCode.UNIMPLEMENTED
    assert fields["grpc-accept-encoding"] == "identity,gzip"


def test_a_compressed_request(served: Served, client: Http2Socket) -> None:
    name = served.make()
    push = pb.PushRequest(queue=name, messages=[pb.OutMessage(body=bytes(1000))])
    number = client.next
    client.send(client.head("/weft.v1.Queue/Push", grpc_encoding="gzip"))
    packed = framed(gzip.compress(push.SerializeToString()), 1)
    client.send(h2.frame(h2.DATA, 0, number, packed[:20]))
    client.send(h2.frame(h2.DATA, 0, number, packed[20:]))
    client.send(h2.frame(h2.DATA, h2.END_STREAM, number))
    assert status(client.answered(number)) is GrpcCode.OK
    assert served.describe(name).ready == 1
    assert assembled(served) == 0


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", GrpcCode.UNIMPLEMENTED),
        (framed(b"") * 2, GrpcCode.UNIMPLEMENTED),
        (framed(b"cut off")[:-1], GrpcCode.UNIMPLEMENTED),
        (framed(b"") + b"\0", GrpcCode.INTERNAL),
        (framed(b"", 1), GrpcCode.INTERNAL),
        (framed(b"\xff"), GrpcCode.INVALID_ARGUMENT),
    ],
    ids=["none", "two", "cut off", "a rest", "not compressed", "no message"],
)
def test_a_body_that_is_not_one_message(client: Http2Socket, body: bytes, code: GrpcCode) -> None:
    client.send(client.head(POP) + h2.frame(h2.DATA, h2.END_STREAM, 1, body))
    assert status(client.answered(1)) is code


def test_timeouts(served: Served, client: Http2Socket) -> None:
    asked = pb.DescribeQueueRequest(queue=served.make()).SerializeToString()
    for value, code in (
        ("10S", GrpcCode.OK),
        ("0n", GrpcCode.DEADLINE_EXCEEDED),
        ("soon", GrpcCode.INTERNAL),
    ):
        number = client.next
        client.send(client.request(DESCRIBE, asked, grpc_timeout=value))
        assert status(client.answered(number)) is code, value


def test_binary_metadata_is_tolerated(served: Served, client: Http2Socket) -> None:
    asked = pb.DescribeQueueRequest(queue=served.make()).SerializeToString()
    client.send(client.request(DESCRIBE, asked, trace_bin="AAEC", **{"x-bin": "/+=="}))
    assert status(client.answered(1)) is GrpcCode.OK


def test_a_pop_shortens_its_wait_to_the_deadline(served: Served, client: Http2Socket) -> None:
    asked = pb.PopRequest(queue=served.make(), wait_ms=60_000).SerializeToString()
    client.send(client.request(POP, asked, grpc_timeout="600m"))
    assert status(client.answered(1)) is GrpcCode.OK


def test_a_reset_cancels_the_wait(served: Served, client: Http2Socket) -> None:
    name = served.make()
    client.send(client.pop(name, wait_ms=60_000))
    eventually(lambda: served.describe(name).waiting_pops == 1)
    client.send(h2.reset(1, h2.CANCEL))
    eventually(lambda: served.describe(name).waiting_pops == 0)


def test_a_connection_that_ends_cancels_its_waits(served: Served) -> None:
    name = served.make()
    with Http2Socket(served.address) as client:
        client.send(client.pop(name, wait_ms=60_000) + client.pop(name, wait_ms=60_000))
        consume = pb.ConsumeRequest(queue=name).SerializeToString()
        client.send(client.request("/weft.v1.Queue/Consume", consume))
        eventually(lambda: served.describe(name).waiting_pops == 3)
    eventually(lambda: served.describe(name).waiting_pops == 0)
    served.push(name, b"x")
    assert len(served.pop(name)) == 1


def test_health_is_watched_and_checked(served: Served) -> None:
    watch = served.health.Watch(health_pb2.HealthCheckRequest(service="weft.v1.Queue"))
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    unknown = served.health.Watch(health_pb2.HealthCheckRequest(service="none"))
    assert next(unknown).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    with pytest.raises(grpc.RpcError) as caught:
        served.health.Check(health_pb2.HealthCheckRequest(service="none"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    watch.cancel()
    unknown.cancel()


def test_a_watch_reports_the_drain(tmp_path_factory: pytest.TempPathFactory) -> None:
    own = serve(tmp_path_factory.mktemp("own"), grpc_server="native")
    try:
        watch = own.health.Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        own.edge.stop(10)
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        with pytest.raises(grpc.RpcError) as caught:
            next(watch)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    finally:
        own.close()


@pytest.mark.parametrize("version", ["v1alpha", "v1"])
def test_reflection(served: Served, version: str) -> None:
    path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
    call = served.channel.stream_stream(
        path,
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )
    asked = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="weft.v1.Queue"),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="none"),
    ]
    listed, found, unknown = call(iter(asked))
    names = {each.name for each in listed.list_services_response.service}
    assert {"weft.v1.Queue", "weft.v1.Table", "grpc.health.v1.Health"} <= names
    assert found.file_descriptor_response.file_descriptor_proto
    assert unknown.error_response.error_code == GrpcCode.NOT_FOUND

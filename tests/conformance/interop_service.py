"""gRPC's interoperability service, for any server: plain functions of messages.

A server adds it for a test. `SERVICE` has for each method the message classes and the function;
an adapter (`grpcio_interop.py`) provides the transport. The messages come from `interop.proto`,
compiled when the module is first used, so that no generated code is in the tree.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

NAME: Final = "grpc.testing.TestService"
#: A server copies these from the call's metadata: to the initial and to the trailing metadata.
ECHO_INITIAL: Final = "x-grpc-test-echo-initial"
ECHO_TRAILING: Final = "x-grpc-test-echo-trailing-bin"
_PROTO: Final = Path(__file__).with_name("interop.proto")


class EchoedStatus(Exception):
    """The call ends with the status that the request asks for."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


@dataclass(frozen=True)
class InteropMethod:
    name: str
    request: Any
    response: Any
    #: True: an iterator of requests, or of responses.
    requests_stream: bool
    responses_stream: bool
    function: Callable[[Any], Any]


@cache
def methods() -> list[InteropMethod]:
    """The methods of the service; skips the test without grpcio-tools."""
    found = []
    for method in _descriptor().methods:
        found.append(
            InteropMethod(
                method.name,
                message_factory.GetMessageClass(method.input_type),
                message_factory.GetMessageClass(method.output_type),
                method.client_streaming,
                method.server_streaming,
                _FUNCTIONS[method.name],
            )
        )
    return found


@cache
def _descriptor() -> Any:
    protoc = pytest.importorskip("grpc_tools.protoc")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "interop.bin"
        code = protoc.main(
            ["protoc", f"-I{_PROTO.parent}", f"--descriptor_set_out={out}", _PROTO.name]
        )
        assert code == 0, "protoc rejected interop.proto"
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool.FindServiceByName(NAME)


def _new(name: str, **values: Any) -> Any:
    descriptor = _descriptor().file.message_types_by_name[name]
    return message_factory.GetMessageClass(descriptor)(**values)


def _payload(size: int) -> Any:
    return _new("Payload", body=bytes(size))


def _check_status(request: Any) -> None:
    if request.HasField("response_status") and request.response_status.code:
        raise EchoedStatus(request.response_status.code, request.response_status.message)


def _empty_call(request: Any) -> Any:
    return _new("Empty")


def _unary_call(request: Any) -> Any:
    _check_status(request)
    return _new("SimpleResponse", payload=_payload(request.response_size))


def _streaming_output_call(request: Any) -> Iterator[Any]:
    _check_status(request)
    for wanted in request.response_parameters:
        if wanted.interval_us:
            time.sleep(wanted.interval_us / 1e6)
        yield _new("StreamingOutputCallResponse", payload=_payload(wanted.size))


def _streaming_input_call(requests: Iterable[Any]) -> Any:
    total = sum(len(request.payload.body) for request in requests)
    return _new("StreamingInputCallResponse", aggregated_payload_size=total)


def _full_duplex_call(requests: Iterable[Any]) -> Iterator[Any]:
    for request in requests:
        yield from _streaming_output_call(request)


def _half_duplex_call(requests: Iterable[Any]) -> Iterator[Any]:
    yield from _full_duplex_call(list(requests))


_FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "EmptyCall": _empty_call,
    "UnaryCall": _unary_call,
    "StreamingOutputCall": _streaming_output_call,
    "StreamingInputCall": _streaming_input_call,
    "FullDuplexCall": _full_duplex_call,
    "HalfDuplexCall": _half_duplex_call,
}

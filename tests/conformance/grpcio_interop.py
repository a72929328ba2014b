"""The interoperability service on grpcio's server: the reference that every case must pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from tests.conformance import interop_service
from tests.conformance.interop_service import EchoedStatus, InteropMethod
from tests.conformance.served_address import ServedAddress

_CODES = {code.value[0]: code for code in grpc.StatusCode}
#: A client of the suite has at most this many calls under way.
_THREADS = 8


@contextmanager
def served() -> Iterator[ServedAddress]:
    server = grpc.server(ThreadPoolExecutor(_THREADS, "interop"))
    handlers = {method.name: _handler(method) for method in interop_service.methods()}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(interop_service.NAME, handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield ServedAddress("127.0.0.1", port)
    finally:
        server.stop(None).wait()


def _handler(method: InteropMethod) -> grpc.RpcMethodHandler[Any, Any]:
    kinds = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    answer = _streaming(method.function) if method.responses_stream else _single(method.function)
    make: Any = kinds[method.requests_stream, method.responses_stream]
    handler: grpc.RpcMethodHandler[Any, Any] = make(
        answer, method.request.FromString, method.response.SerializeToString
    )
    return handler


def _single(function: Callable[[Any], Any]) -> Callable[[Any, grpc.ServicerContext], Any]:
    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        _echo(context)
        try:
            return function(request)
        except EchoedStatus as status:
            context.abort(_CODES[status.code], status.message)

    return answer


def _streaming(
    function: Callable[[Any], Iterator[Any]],
) -> Callable[[Any, grpc.ServicerContext], Iterator[Any]]:
    def answers(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        _echo(context)
        try:
            yield from function(request)
        except EchoedStatus as status:
            context.abort(_CODES[status.code], status.message)

    return answers


def _echo(context: grpc.ServicerContext) -> None:
    found = dict(context.invocation_metadata())
    if interop_service.ECHO_INITIAL in found:
        initial = (interop_service.ECHO_INITIAL, found[interop_service.ECHO_INITIAL])
        context.send_initial_metadata((initial,))
    if interop_service.ECHO_TRAILING in found:
        trailing = (interop_service.ECHO_TRAILING, found[interop_service.ECHO_TRAILING])
        context.set_trailing_metadata((trailing,))

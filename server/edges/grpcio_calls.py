"""Runs the table of gRPC methods with grpcio's asyncio server: bytes in, bytes out.

Each call is a task of grpcio. The node answers in its own thread; the answer crosses to the event
loop with ``call_soon_threadsafe``. Everything else about a call is in ``grpc_call`` and
``stream_call``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import unquote

import grpc

from weft.proto import wire
from weft.server.node.node_api import OnAnswer
from weft.server.observability.log import fields
from weft.server.security.caller import Caller

from .grpc_call import CallHeaders, Ended, ExchangeCall, ServedCall
from .grpc_method import ExchangeMethod, StreamMethod
from .grpc_methods import METHODS
from .grpc_services import GrpcServices
from .stream_call import StreamCall

log = logging.getLogger(__name__)

#: grpcio reports a client that has left as the end of the client's messages first, and cancels the
#: call by an event of its own. The stream waits this long for that event, since a client that has
#: left must not be taken for one that has ended its side in order.
LEFT_S: Final = 0.02

Context = grpc.aio.ServicerContext[Any, Any]


def handlers(services: GrpcServices) -> dict[str, dict[str, Any]]:
    """grpcio's handler of each method, by the full name of its service."""
    found: dict[str, dict[str, Any]] = {}
    for path, method in METHODS.items():
        _, service, name = path.split("/")
        found.setdefault(service, {})[name] = _handler(services, method)
    return found


def _handler(services: GrpcServices, method: ExchangeMethod | StreamMethod) -> Any:
    if isinstance(method, ExchangeMethod):

        async def exchange(message: bytes, context: Context) -> bytes:
            return await _exchange(AsyncExchange(services, method, context), message, context)

        return grpc.unary_unary_rpc_method_handler(exchange)
    if method.client_streams:

        async def stream(_: object, context: Context) -> None:
            await _stream(AsyncStream(services, method, context), None, context)

        return grpc.stream_stream_rpc_method_handler(stream)

    async def answer_stream(message: bytes, context: Context) -> None:
        await _stream(AsyncStream(services, method, context), message, context)

    return grpc.unary_stream_rpc_method_handler(answer_stream)


class _AsyncCall(ServedCall):
    """The hooks that both kinds of calls share. `ended` is done when the call is."""

    loop: asyncio.AbstractEventLoop
    ended_with: asyncio.Future[Ended]

    def _submit(
        self, request: wire.AnyRequest, payload: Sequence[bytes], on_answer: OnAnswer, who: Caller
    ) -> int:
        def cross(answer: wire.AnyAnswer, frames: Sequence[bytes]) -> None:
            try:
                self.loop.call_soon_threadsafe(on_answer, answer, frames)
            except RuntimeError:
                # The loop is closed: the node is ending, and its leases end with it.
                log.debug("answer after the end", extra=fields(answer=type(answer).__name__))

        return self.services.node.submit(request, payload, cross, who)

    def _cancel(self, ticket: int) -> None:
        self.services.node.cancel(ticket)

    def _finish(self, ended: Ended) -> None:
        if not self.ended_with.done():
            self.ended_with.set_result(ended)


class AsyncExchange(_AsyncCall, ExchangeCall):
    def __init__(self, services: GrpcServices, method: ExchangeMethod, context: Context) -> None:
        ExchangeCall.__init__(self, services, method, _headers(context), _peer(context))
        self.loop = asyncio.get_running_loop()
        self.ended_with = self.loop.create_future()


class AsyncStream(_AsyncCall, StreamCall):
    def __init__(self, services: GrpcServices, method: StreamMethod, context: Context) -> None:
        StreamCall.__init__(self, services, method, _headers(context), _peer(context))
        self.loop = asyncio.get_running_loop()
        self.ended_with = self.loop.create_future()
        self._context = context
        self._alarm: asyncio.TimerHandle | None = None
        self._outbox: deque[bytes] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._room = asyncio.Event()

    def _send(self, message: bytes) -> None:
        self._outbox.append(message)
        if self._writer is None or self._writer.done():
            self._writer = self.loop.create_task(self._write())

    def _resume(self) -> None:
        self.loop.call_soon(self.step)

    def _set_alarm(self, at: float | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None if at is None else self.loop.call_at(at, self.wake)

    def _taken(self, message: bytes) -> None:
        self._room.set()

    async def _write(self) -> None:
        try:
            while self._outbox:
                await self._context.write(self._outbox[0])
                self.sent(len(self._outbox.popleft()))
        except grpc.aio.BaseError:
            # The client left during the write. grpcio cancels the call as well.
            self._outbox.clear()
            self.cancel()
            self.ended_with.cancel()

    async def read(self) -> None:
        """Delivers the client's messages, as fast as the method takes them."""
        while True:
            message: Any = await self._context.read()
            if message is grpc.aio.EOF:
                await asyncio.sleep(LEFT_S)
                self.end_of_input()
                return
            self.deliver(message)
            while self.full:
                self._room.clear()
                await self._room.wait()

    async def flush(self) -> None:
        """Waits until grpcio has taken what the method sent last."""
        if self._writer is not None:
            await self._writer

    def drop(self) -> None:
        self._set_alarm(None)
        if self._writer is not None:
            self._writer.cancel()


async def _exchange(call: AsyncExchange, message: bytes, context: Context) -> bytes:
    context.set_trailing_metadata((call.trailing,))
    call.start(message, context.time_remaining())
    try:
        ended = await call.ended_with
    except asyncio.CancelledError:
        call.cancel()
        raise
    await _refuse(context, ended)
    return ended.message


async def _stream(call: AsyncStream, message: bytes | None, context: Context) -> None:
    context.set_trailing_metadata((call.trailing,))
    if message is not None:
        call.deliver(message)
        call.end_of_input()
    call.start(context.time_remaining())
    reader = asyncio.create_task(call.read()) if message is None else None
    try:
        ended = await call.ended_with
        await call.flush()
    except asyncio.CancelledError:
        call.cancel()
        raise
    finally:
        if reader is not None:
            reader.cancel()
        call.drop()
    await _refuse(context, ended)


async def _refuse(context: Context, ended: Ended) -> None:
    if ended.code:
        status = grpc.StatusCode[ended.code.name]
        await context.abort(status, ended.details, trailing_metadata=ended.trailing)


def _headers(context: Context) -> CallHeaders:
    return CallHeaders.of(context.invocation_metadata() or ())


def _peer(context: Context) -> str:
    return unquote(context.peer().partition(":")[2])

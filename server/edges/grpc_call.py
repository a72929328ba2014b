"""The wrapper around every gRPC method: call log, drain gate, token, errors."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import unquote

import grpc

from weft.errors import WeftError
from weft.server.node.async_node_api import PEER, TOKEN, AsyncNodeApi
from weft.server.observability.log import fields

from .call_log import CANCELLED, OK, CallLog
from .drain_gate import DrainGate
from .grpc_status import refuse

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
Service = TypeVar("Service", bound="Base")
Asked = TypeVar("Asked")
Answered = TypeVar("Answered")
Method = Callable[[Service, Asked, Context], Awaitable[Answered]]


class Base:
    """State shared by all services."""

    def __init__(self, gate: DrainGate, asking: AsyncNodeApi, calls: CallLog) -> None:
        self.calls = calls
        self.gate = gate
        self.asking = asking
        self.ask = asking.ask


def call(method: Method[Service, Asked, Answered]) -> Method[Service, Asked, Answered]:
    @functools.wraps(method)
    async def entered(self: Service, request: Asked, context: Context) -> Answered:
        entry = self.calls.begin(method.__name__, context)
        context.set_trailing_metadata((entry.trailing,))
        TOKEN.set(_token(context))  # each call is a task with its own context
        PEER.set(unquote(context.peer().partition(":")[2]))
        try:
            with self.gate.enter():
                answer = await method(self, request, context)
            entry.end(OK)
            return answer
        except WeftError as error:
            refusal = error
        except asyncio.CancelledError:
            entry.end(CANCELLED)
            raise
        except Exception:
            log.exception("a call failed", extra=fields(call=entry.method, request=entry.name))
            refusal = WeftError("the node failed at this call; its log says why")
        entry.end(refusal.code, refusal)
        return await refuse(context, refusal, entry.trailing)

    return entered


def _token(context: Context) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization" and isinstance(value, str):
            return value.removeprefix("Bearer ")
    return ""

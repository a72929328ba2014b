"""What every call of every service goes through: the book, the gate, the token, the errors."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import unquote

import grpc

from weft.errors import WeftError

from .async_ask import PEER, TOKEN, AsyncAsk
from .calls import CANCELLED, OK, Calls
from .gate import Gate
from .grpc_status import refuse
from .log import fields

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
Service = TypeVar("Service", bound="Base")
Asked = TypeVar("Asked")
Answered = TypeVar("Answered")
Method = Callable[[Service, Asked, Context], Awaitable[Answered]]


class Base:
    """What the services share."""

    def __init__(self, gate: Gate, asking: AsyncAsk, calls: Calls) -> None:
        self.calls = calls
        self.gate = gate
        self.asking = asking
        self.ask = asking.ask


def call(method: Method[Service, Asked, Answered]) -> Method[Service, Asked, Answered]:
    @functools.wraps(method)
    async def entered(self: Service, request: Asked, context: Context) -> Answered:
        entry = self.calls.begin(method.__name__, context)
        context.set_trailing_metadata((entry.trailing,))
        TOKEN.set(_token(context))  # each call is a task, with a context of its own
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

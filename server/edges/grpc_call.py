"""A gRPC call in progress, independent of the server that carries it.

The classes here hold the sequence of every call in one place: call log, drain gate, token, errors.
A server only moves bytes. It derives a class from `ExchangeCall` (here) and one from `StreamCall`
(``stream_call``), implements the hooks whose names begin with an underscore, and calls the others.
No class knows an event loop: all of one call happens in the thread of its server.

| the server calls      | when                                                                   |
|-----------------------|------------------------------------------------------------------------|
| `start(message)`      | the request message has arrived                                        |
| `answered`            | never directly: it is the callback given to `_submit`                  |
| `cancel()`            | the client has left, its deadline has passed, or the response could    |
|                       | not be sent; may be called at any time, also after the end             |

| a hook                | what the server does                                                   |
|-----------------------|------------------------------------------------------------------------|
| `_submit`             | passes a request to the node, and calls back in the server's own       |
|                       | thread with the answer, once; the callback may come before the return  |
| `_cancel(ticket)`     | cancels a request; its answer may come all the same                    |
| `_finish(ended)`      | sends the response, the status and the trailing metadata; not called   |
|                       | for a cancelled call                                                   |
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from weft.errors import WeftError, from_code
from weft.proto import wire
from weft.proto.verbs import MESSAGE_WAITS
from weft.server.node.node_api import OnAnswer
from weft.server.observability.log import fields
from weft.server.security.caller import Caller

from . import grpc_code
from .call_log import CANCELLED, OK, REQUEST_ID
from .grpc_code import CODES, GrpcCode
from .grpc_method import Asked, ExchangeMethod
from .grpc_services import GrpcServices

log = logging.getLogger(__name__)

#: Before the first request.
_NOTHING: Final = Asked(wire.Status())


class CallHeaders(NamedTuple):
    """What the metadata of a call says to Weft. A server may cache the value by header block."""

    token: str = ""
    #: The caller's own id of the call, unchecked; "": the call log draws one.
    request_id: str = ""

    @classmethod
    def of(cls, metadata: Iterable[tuple[str, Any]]) -> CallHeaders:
        """The values in (name, value) pairs; the first of a name counts, names are lower case."""
        token = request_id = ""
        for name, value in metadata:
            if name == "authorization" and isinstance(value, str):
                token = token or value.removeprefix("Bearer ")
            elif name == REQUEST_ID and isinstance(value, str):
                request_id = request_id or value
        return cls(token, request_id)


class Ended(NamedTuple):
    """The end of a call: the response message of an exchange, a status, and trailing metadata."""

    code: GrpcCode
    details: str
    message: bytes
    trailing: tuple[tuple[str, str], ...]


class ServedCall(ABC):
    """The beginning and the end of a call: the log, the gate, the caller, the status."""

    __slots__ = ("_entered", "_entry", "_headers", "_peer", "closed", "services")

    def __init__(self, services: GrpcServices, name: str, headers: CallHeaders, peer: str) -> None:
        self.services = services
        self._headers = headers
        self._peer = peer
        self._entered = False
        #: The call has ended: what arrives later is given back or dropped.
        self.closed = False
        self._entry = services.calls.begin(name, headers.request_id)

    @property
    def trailing(self) -> tuple[str, str]:
        """The trailing metadata of every call, also of one that succeeds: its request id."""
        return self._entry.trailing

    @abstractmethod
    def _submit(
        self, request: wire.AnyRequest, payload: Sequence[bytes], on_answer: OnAnswer, who: Caller
    ) -> int: ...

    @abstractmethod
    def _cancel(self, ticket: int) -> None: ...

    @abstractmethod
    def _finish(self, ended: Ended) -> None: ...

    def _enter(self) -> None:
        self.services.gate.enter()
        self._entered = True

    def _who(self, request: wire.AnyRequest) -> Caller:
        return self.services.caller(request, self._headers.token, self._peer)

    def _succeed(self, message: bytes) -> None:
        self._leave()
        self.services.calls.end(self._entry, OK)
        self._respond(message)

    def _respond(self, message: bytes) -> None:
        """Ends the call with a response message. A server may override it with a shorter way."""
        self._finish(Ended(GrpcCode.OK, "", message, (self._entry.trailing,)))

    def _end_with(self, error: Exception) -> None:
        self._leave()
        if not isinstance(error, WeftError):
            facts = fields(call=self._entry.method, request=self._entry.name)
            log.error("a call failed", exc_info=error, extra=facts)
            error = WeftError("the node failed to process the call; see the node's log")
        self.services.calls.end(self._entry, error.code, error)
        trailing = (*grpc_code.trailing(error), self._entry.trailing)
        self._finish(Ended(CODES[error.code], error.message, b"", trailing))

    def _end_cancelled(self) -> None:
        self._leave()
        self.services.calls.end(self._entry, CANCELLED)

    def _leave(self) -> None:
        self.closed = True
        if self._entered:
            self._entered = False
            self.services.gate.leave()


class ExchangeCall(ServedCall):
    """A call of an exchange method: requests to the node one after the other, mostly just one.

    States: new -> `start` -> asked -> (`answered` -> asked)* -> closed. `fail` (the drain gate)
    and `cancel` close the call from any state. An answer that comes to a closed call is given back.
    """

    __slots__ = ("_answer", "_asked", "_method", "_ticket")

    def __init__(
        self,
        services: GrpcServices,
        method: ExchangeMethod,
        headers: CallHeaders,
        peer: str,
    ) -> None:
        ServedCall.__init__(self, services, method.call, headers, peer)
        self._method = method
        self._asked = _NOTHING
        self._ticket: int | None = None
        self._answer: wire.AnyAnswer | None = None

    def start(self, message: bytes, remaining_s: float | None = None) -> None:
        """Begins the call; `remaining_s` is the time until the client's deadline, if any."""
        try:
            self.services.gate.enter()
            self._entered = True
            self._put(self._method.ask(self.services, message, remaining_s))
        except Exception as error:
            self._end_with(error)

    def answered(self, answer: wire.AnyAnswer, frames: Sequence[bytes]) -> None:
        if self.closed:
            self.services.give_back(self._asked.request, answer)
            return
        self._ticket = None
        self.services.gate.end_wait(self)
        try:
            if isinstance(answer, wire.Failure):
                raise from_code(answer.code, answer.message)
            result = self._method.reply(self.services, self._asked, answer, frames)
            if isinstance(result, Asked):
                self._put(result)
                return
        except Exception as error:
            self._end_with(error)
            return
        self._answer = answer
        self._succeed(result)

    def fail(self, error: WeftError) -> None:
        self._withdraw()
        self._end_with(error)

    def cancel(self) -> None:
        if not self.closed:
            self._withdraw()
            self._end_cancelled()
        elif self._answer is not None:
            # The response was made and did not reach the client.
            answer, self._answer = self._answer, None
            self.services.give_back(self._asked.request, answer)

    def _put(self, asked: Asked) -> None:
        request, services = asked.request, self.services
        who = services.caller(request, self._headers.token, self._peer)
        services.gate.begin_wait(self, idle=type(request) in MESSAGE_WAITS)
        self._asked = asked
        ticket = self._submit(request, asked.payload, self.answered, who)
        if asked is self._asked and not self.closed:  # else the answer came during the submit
            self._ticket = ticket

    def _withdraw(self) -> None:
        self.services.gate.end_wait(self)
        if self._ticket is not None:
            self._cancel(self._ticket)
            self._ticket = None

"""Client calls in the node's thread, from admission to answer.

A call comes from a ZMTP connection (an `EdgeCaller`), or from gRPC or another thread (a ticket).
Admission checks quotas, remembers the call for the audit log, and answers requests that concern the
driver alone. Each call is answered once. The messages of an answer that no caller takes go back to
their queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from weft.errors import WeftError
from weft.proto import wire
from weft.proto.verb import Quota
from weft.proto.verbs import requests_where
from weft.server.core.node_core import NodeCore
from weft.server.core.request_router import SHORT_ROUND
from weft.server.edges.edge import EdgeCaller, Received
from weft.server.edges.response_budget import ResponseBudget
from weft.server.edges.zmtp_edge import ZmtpEdge
from weft.server.engine.state import Answered
from weft.server.security.audit import AUDITED, Audit, audited
from weft.server.security.caller import Caller
from weft.server.security.quota import Quotas

from .call_inbox import QueuedCall
from .cluster_join import refusal_of
from .node_api import OnAnswer

#: Remembered callers with a recent cancel. An answer made before the cancel still goes to the
#: caller, which knows the queue and returns leased messages to the nodes that lead them. Beyond
#: this number, messages leased by another node come back when their leases expire.
_CANCELLED_MAX: Final = 1024
_FAILED: Final = wire.Failure(
    "UNAVAILABLE", "the node has failed: this may or may not have been done", True
)
_SHORT_ROUND: Final = SHORT_ROUND - AUDITED
#: Its requests that count against a quota.
_LIMITED: Final = _SHORT_ROUND & requests_where(lambda verb: verb.quota is Quota.PUSHES)
_GONE: Final = wire.Failure("CANCELLED", "the caller did not wait for the answer", False)
_STOPPING: Final = wire.Failure("SHUTTING_DOWN", "the node is stopping", True)

#: A caller, its request, the payload, and the caller's identity.
AdmittedRequest = tuple[object, wire.AnyRequest, Sequence[bytes], Caller]


class ClientCalls:
    def __init__(
        self,
        node_core: NodeCore,
        edge: ZmtpEdge,
        response_budget: ResponseBudget,
        quotas: Quotas,
        audit: Audit | None,
        status: Callable[[], wire.StatusInfo],
    ) -> None:
        self._node_core = node_core
        self.engine = node_core.engine
        self._edge = edge
        self._response_budget = response_budget
        self._quotas = quotas
        self._audit = audit
        self._status = status
        #: Calls to be written to the audit log when they are answered.
        self._audited: dict[object, tuple[Caller, wire.AnyRequest]] = {}
        self._on_answer: dict[int, OnAnswer] = {}
        self._cancelled: dict[int, OnAnswer] = {}  # see _CANCELLED_MAX
        #: The node is stopping: new requests are refused.
        self.stopping = False

    def handle(
        self, request: wire.AnyRequest, payload: Sequence[bytes], to: object, who: Caller, *,
        plain: bool,
    ) -> None:  # fmt: skip
        """Admits a request and passes it to the node core."""
        node_core, engine = self._node_core, self._node_core.engine
        if self._audit is not None and audited(request):
            self._audited[to] = who, request
        try:
            self._quotas.check(
                request, payload, who.principal, engine.queues, node_core.now,
                engine.destinations.count,
            )  # fmt: skip
        except WeftError as error:
            engine.answer(to, wire.Failure(error.code, error.message, error.retriable))
            return
        if self.stopping:
            engine.answer(to, _STOPPING)
        elif isinstance(request, wire.StopWaiting) and isinstance(to, EdgeCaller):
            node_core.cancel(to._replace(rid=request.call))
            engine.answer(to, wire.Done(0))
        elif isinstance(request, wire.Status):
            engine.answer(to, self._status())
        elif isinstance(request, wire.Join) and (refusal := refusal_of(request)) is not None:
            engine.answer(to, refusal)
        else:
            node_core.handle(request, payload, to, plain=plain)

    def handle_queued(self, call: QueuedCall) -> None:
        """Handles a call, or a cancellation, of gRPC or of another thread."""
        if call.request is None:
            self._cancel(call.ticket)
            return
        self.register(call)
        self.handle(call.request, call.payload, call.ticket, call.who, plain=True)

    def register(self, call: QueuedCall) -> None:
        """Remembers the caller of a request that runs now or later."""
        assert call.on_answer is not None
        self._on_answer[call.ticket] = call.on_answer

    def _cancel(self, ticket: int) -> None:
        if (found := self._audited.pop(ticket, None)) is not None:
            assert self._audit is not None
            self._audit.done(*found, _GONE)  # the action may be executed all the same
        on_answer = self._on_answer.pop(ticket, None)
        if on_answer is not None:
            self._node_core.cancel(ticket)
            self._cancelled[ticket] = on_answer
            if len(self._cancelled) > _CANCELLED_MAX:
                del self._cancelled[next(iter(self._cancelled))]

    def answer(self, answered: Answered, *, soon: bool = False) -> bool:
        """Answers a call; `soon`: at the next flush of the edge.

        False if no caller took the answer and its messages were given back.
        """
        to, answer, payload = answered[:3]
        if self._audited and (found := self._audited.pop(to, None)) is not None:
            assert self._audit is not None
            self._audit.done(*found, answer)
        if isinstance(to, EdgeCaller):
            if self._response_budget.promised:
                self._response_budget.told(to)
            edge = self._edge
            sent = edge.send_soon(to, answer, payload) if soon else edge.send(to, answer, payload)
        else:
            assert isinstance(to, int)
            if self._response_budget.promised:
                self._response_budget.told(to)
            on_answer = self._on_answer.pop(to, None) or self._cancelled.pop(to, None)
            sent = on_answer is not None
            if on_answer is not None:
                on_answer(answer, payload)
        if not sent and isinstance(answer, wire.Popped) and answer.lent:
            self._node_core.give_back(answer.lent)
            return False
        return True

    def short_round(
        self, received: Sequence[Received], queued: Sequence[QueuedCall]
    ) -> Sequence[AdmittedRequest] | None:
        """All requests of a round, if they may go straight to the engine: nothing is logged, no
        quota applies, and no call is cancelled. The answers of queued calls find their callers."""
        if self.stopping:
            return None
        requests: list[AdmittedRequest] = [*received]
        for ticket, asked, payload, on_answer, who in queued:
            if asked is None or on_answer is None:
                return None
            requests.append((ticket, asked, payload, who))
            self._on_answer[ticket] = on_answer
        limited = self._quotas.limits_pushes
        for _, request, _, who in requests:
            kind = type(request)
            if kind not in _SHORT_ROUND:
                return None
            if kind in _LIMITED and (
                limited or ((known := who.principal) is not None and known.limits.on_pushes)
            ):
                return None
        return requests

    def fail_all(self) -> None:
        """The node has ended: answers the calls of gRPC and of other threads without an answer."""
        waiting, self._on_answer = self._on_answer, {}
        for on_answer in waiting.values():
            on_answer(_FAILED, ())

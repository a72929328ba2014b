"""Client calls in the node's thread, from admission to answer.

A call comes from the ZMTP edge (an `EdgeCaller`) or from another thread through the inbox (a
ticket). Admission checks quotas, remembers the call for the audit log, and answers requests that
concern the driver alone. Each call is answered once. The messages of an answer that no caller takes
go back to their queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from weft.errors import WeftError
from weft.proto import wire
from weft.server.core.node_core import NodeCore
from weft.server.edges.edge import EdgeCaller
from weft.server.edges.response_budget import ResponseBudget
from weft.server.edges.zmtp_edge import ZmtpEdge
from weft.server.engine.state import Answered
from weft.server.security.audit import Audit, audited
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
_GONE: Final = wire.Failure("CANCELLED", "the caller did not wait for the answer", False)
_STOPPING: Final = wire.Failure("SHUTTING_DOWN", "the node is stopping", True)


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
            self._quotas.check(request, payload, who.principal, engine.queues, node_core.now)
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
        """Handles a call, or a cancellation, that another thread submitted."""
        if call.request is None:
            self._cancel(call.ticket)
            return
        assert call.on_answer is not None
        self._on_answer[call.ticket] = call.on_answer
        self.handle(call.request, call.payload, call.ticket, call.who, plain=True)

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

    def answer(self, answered: Answered) -> bool:
        """Answers a call. False if no caller took the answer and its messages were given back."""
        to, answer, payload = answered[:3]
        if self._audited and (found := self._audited.pop(to, None)) is not None:
            assert self._audit is not None
            self._audit.done(*found, answer)
        if isinstance(to, EdgeCaller):
            self._response_budget.told(to)
            sent = self._edge.send(to, answer, payload)
        else:
            assert isinstance(to, int)
            on_answer = self._on_answer.pop(to, None) or self._cancelled.pop(to, None)
            sent = on_answer is not None
            if on_answer is not None:
                on_answer(answer, payload)
        if not sent and isinstance(answer, wire.Popped) and answer.lent:
            self._node_core.give_back(answer.lent)
            return False
        return True

    def limits_push(self, who: Caller) -> bool:
        """True if a quota applies to the pushes of this caller."""
        principal = who.principal
        return self._quotas.limits_pushes or (
            principal is not None and bool(principal.limits.on_pushes)
        )

    def fail_all(self) -> None:
        """The node has ended: answers the calls of other threads that have no answer yet."""
        for on_answer in self._on_answer.values():
            on_answer(_FAILED, ())

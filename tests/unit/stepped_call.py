"""gRPC calls stepped by hand: no event loop, no socket, and a node whose answers a test gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from weft.proto import wire
from weft.server.edges.call_log import CallLog
from weft.server.edges.drain_gate import DrainGate
from weft.server.edges.grpc_call import CallHeaders, Ended, ExchangeCall, ServedCall
from weft.server.edges.grpc_method import ExchangeMethod, StreamMethod
from weft.server.edges.grpc_methods import METHODS
from weft.server.edges.grpc_services import GrpcServices
from weft.server.edges.stream_call import StreamCall
from weft.server.node.node_api import OnAnswer
from weft.server.security.access import Access
from weft.server.security.caller import ANONYMOUS, Caller


class Submitted(NamedTuple):
    request: wire.AnyRequest
    payload: Sequence[bytes]
    answer: OnAnswer


class RecordingNode:
    """A NodeApi that records requests; a test answers them with `submitted[i].answer(...)`."""

    def __init__(self) -> None:
        self.submitted: list[Submitted] = []
        self.cancelled: list[int] = []

    def submit(
        self,
        request: wire.AnyRequest,
        payload: Sequence[bytes],
        on_answer: OnAnswer,
        who: Caller = ANONYMOUS,
    ) -> int:
        self.submitted.append(Submitted(request, payload, on_answer))
        return len(self.submitted) - 1

    def cancel(self, ticket: int) -> None:
        self.cancelled.append(ticket)

    @property
    def requests(self) -> list[wire.AnyRequest]:
        return [each.request for each in self.submitted]


def services(node: RecordingNode, access: Access | None = None) -> GrpcServices:
    return GrpcServices(node, DrainGate(), CallLog(), access)


class _Stepped(ServedCall):
    end: Ended | None

    def _submit(
        self, request: wire.AnyRequest, payload: Sequence[bytes], on_answer: OnAnswer, who: Caller
    ) -> int:
        return self.services.node.submit(request, payload, on_answer, who)

    def _cancel(self, ticket: int) -> None:
        self.services.node.cancel(ticket)

    def _finish(self, ended: Ended) -> None:
        assert self.end is None, "a call ends once"
        self.end = ended


class SteppedExchange(_Stepped, ExchangeCall):
    def __init__(self, services: GrpcServices, path: str, token: str = "") -> None:
        method = METHODS[path]
        assert isinstance(method, ExchangeMethod)
        self.end = None
        ExchangeCall.__init__(self, services, method, CallHeaders(token), "peer")


class SteppedStream(_Stepped, StreamCall):
    """`run` steps the call until it waits; the time is the test's own."""

    def __init__(self, services: GrpcServices, path: str, token: str = "") -> None:
        method = METHODS[path]
        assert isinstance(method, StreamMethod)
        self.end = None
        self.time = 0.0
        self.alarm: float | None = None
        self.to_client: list[bytes] = []
        #: False: flow control takes nothing, until `run` is called with True again.
        self.takes = True
        self._resumes = 0
        StreamCall.__init__(self, services, method, CallHeaders(token), "peer")

    def run(self) -> None:
        while self._resumes or (self.takes and self.unsent):
            if self._resumes:
                self._resumes -= 1
                self.step()
            elif not self.closed:
                self.sent(self.unsent)
            else:
                self.unsent = 0

    def now(self) -> float:
        return self.time

    def _send(self, message: bytes) -> None:
        self.to_client.append(message)

    def _resume(self) -> None:
        self._resumes += 1

    def _set_alarm(self, at: float | None) -> None:
        self.alarm = at

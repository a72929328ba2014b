"""The seeds: members of a cluster that a new node was told of. Any of them will do.

A seed that does not answer is no reason to give up: the next one is asked, then all of them again,
more and more slowly, until the time is over. A seed that answers and refuses has the last word.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import grpc

from weft.errors import ConnectionLost, ProtocolError, Unavailable, WeftError, from_code
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc

from .address import Address
from .log import fields
from .tls import Introduction

log = logging.getLogger(__name__)

#: A view is at hand; a join has to be agreed on by a majority.
VIEW_S: Final = 2.0
JOIN_S: Final = 10.0
#: Between two rounds over all seeds.
PAUSE_S: Final = 0.2
PAUSE_S_MAX: Final = 5.0

Answer = TypeVar("Answer")
#: Waits so many seconds; raises when the node is told to stop meanwhile.
Wait = Callable[[float], None]

#: An own subchannel pool: a shared one would remember an earlier failure and its back-off.
_OPTIONS: Final = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]


class Seeds:
    def __init__(self, addresses: Sequence[Address], introduction: Introduction) -> None:
        assert addresses, "somebody must be asked"
        self._introduction = introduction
        self._addresses = [str(address) for address in addresses]
        self._call: grpc.Future[Any] | None = None

    def cancel(self) -> None:
        """Ends the call that is under way, from another thread."""
        if self._call is not None:
            self._call.cancel()

    def view(self) -> pb.ViewResponse:
        """One round over the seeds; raises ConnectionLost when none of them answers."""
        answer = self._round("View", pb.ViewRequest(), VIEW_S)
        assert isinstance(answer, pb.ViewResponse)
        return answer

    def await_view(self, within_s: float, wait: Wait) -> pb.ViewResponse:
        return self._until("the view", self.view, within_s, wait)

    def await_join(self, request: pb.JoinRequest, within_s: float, wait: Wait) -> pb.JoinResponse:
        def ask() -> pb.JoinResponse:
            answer = self._round("Join", request, JOIN_S)
            assert isinstance(answer, pb.JoinResponse)
            return answer

        return self._until("to join", ask, within_s, wait)

    def _until(self, what: str, ask: Callable[[], Answer], within_s: float, wait: Wait) -> Answer:
        pause_s, end = PAUSE_S, time.monotonic() + within_s
        while True:
            try:
                return ask()
            except Unavailable as error:
                if time.monotonic() + pause_s > end:
                    raise ConnectionLost(
                        f"no member of the cluster helped within {within_s:.0f} s: {error.message}"
                        ". Start one of them, or give the right addresses with --join"
                    ) from None
                log.info(
                    "waiting for a member",
                    extra=fields(asked=what, why=error.message, again_s=round(pause_s, 1)),
                )
            wait(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _round(self, call: str, request: Any, timeout_s: float) -> Any:
        failures = []
        for address in self._addresses:
            try:
                return self._ask(address, call, request, timeout_s)
            except Unavailable as error:
                failures.append(error.message)
        raise ConnectionLost("; ".join(failures))

    def _ask(self, address: str, call: str, request: Any, timeout_s: float) -> Any:
        with self._introduction.channel(address, _OPTIONS) as channel:
            stub = weft_pb2_grpc.ClusterStub(channel)  # type: ignore[no-untyped-call]
            self._call = getattr(stub, call).future(
                request, timeout=timeout_s, metadata=self._introduction.metadata
            )
            try:
                return self._call.result()
            except grpc.FutureCancelledError:
                raise Unavailable(f"{address} was not waited for") from None
            except grpc.RpcError as error:
                raise _why(address, error) from None
            finally:
                self._call = None


def _why(address: str, error: grpc.RpcError) -> WeftError:
    """What a member says, in its own words; what gRPC says, as what it means here."""
    assert isinstance(error, grpc.Call)
    code = error.code()
    told = dict(error.trailing_metadata() or ()).get("weft-code")
    if told is not None:
        said = from_code(str(told), f"{address} says: {error.details()}")
        # Whatever may be tried again is asked of the next one.
        return Unavailable(said.message) if said.retriable else said
    if code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNKNOWN):
        return ProtocolError(
            f"{address} is not a Weft node, or not its gRPC port ({code.name.lower()}). "
            "Give the right address with --join"
        )
    return Unavailable(f"{address} does not answer ({code.name.lower()})")

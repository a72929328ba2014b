"""The seeds: members of a cluster, given to a new node. Any seed will do.

If a seed does not answer, the node asks the next seed, then all seeds again, more and more slowly,
until the time is over. A refusal by a seed is final.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import grpc

from weft.errors import ConnectionLost, TlsError, Unavailable
from weft.proto import endpoint, weft_pb2_grpc
from weft.proto import weft_pb2 as pb
from weft.server.address import Address
from weft.server.observability.log import fields
from weft.server.security.tls import Introduction

log = logging.getLogger(__name__)

#: Timeouts: a seed has its view at hand; a join needs the agreement of a majority.
VIEW_S: Final = 2.0
JOIN_S: Final = 10.0
#: The pause between two rounds over all seeds, at first and at most.
PAUSE_S: Final = 0.2
PAUSE_S_MAX: Final = 5.0

Answer = TypeVar("Answer")
#: Sleeps for the given seconds; raises if the node is told to stop during the sleep.
Wait = Callable[[float], None]

#: A separate subchannel pool: a shared pool would remember an earlier failure and its back-off.
_OPTIONS: Final = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]


class Seeds:
    def __init__(self, addresses: Sequence[Address], introduction: Introduction) -> None:
        assert addresses, "a joining node needs the address of a member"
        self._introduction = introduction
        self._addresses = [str(address) for address in addresses]
        self._call: grpc.Future[Any] | None = None

    def cancel(self) -> None:
        """Ends the call under way, from another thread."""
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
        failures: list[Unavailable | TlsError] = []
        for address in self._addresses:
            try:
                return self._ask(address, call, request, timeout_s)
            except (Unavailable, TlsError) as error:
                failures.append(error)
        for failure in failures:
            if not failure.retriable:
                raise failure
        raise ConnectionLost("; ".join(failure.message for failure in failures))

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
                raise endpoint.failure(address, error, self._introduction.tls_files) from None
            finally:
                self._call = None

"""What an operator asks of a cluster, over gRPC: where everything is, and that a node leave.

Any member can answer; those that do not are passed over. What is asked twice does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import grpc

from weft.errors import ConnectionLost, ProtocolError, Unavailable, WeftError, from_code
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc

from .credentials import Credentials

CALL_S: Final = 10.0
#: An own subchannel pool: a shared one would remember an earlier failure and its back-off.
_OPTIONS: Final = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]


class ClusterCalls:
    """Calls to any of `servers`, which are gRPC addresses, in their order."""

    def __init__(self, servers: Sequence[str], timeout_s: float = CALL_S) -> None:
        self._servers = list(servers)
        self._timeout_s = timeout_s

    def prefer(self, servers: Iterable[str]) -> None:
        """These first; the others stay behind them."""
        self._servers = list(dict.fromkeys((*servers, *self._servers)))

    def places(self) -> pb.PlacesResponse:
        answer = self._ask("Places", pb.PlacesRequest())
        assert isinstance(answer, pb.PlacesResponse)
        return answer

    def leave(self, node: str, *, force: bool = False) -> None:
        """With `force` even if from then on messages are kept on fewer disks."""
        self._ask("Leave", pb.LeaveRequest(node=node, force=force))

    def _ask(self, call: str, request: Any) -> Any:
        failures = []
        for server in self._servers:
            try:
                return _call(server, call, request, self._timeout_s)
            except Unavailable as error:
                failures.append(error.message)
        raise ConnectionLost(f"no node answered: {'; '.join(failures)}")


def _call(server: str, call: str, request: Any, timeout_s: float) -> Any:
    credentials = Credentials.of(None, None)
    with credentials.channel(server, _OPTIONS) as channel:
        stub = weft_pb2_grpc.ClusterStub(channel)  # type: ignore[no-untyped-call]
        try:
            return getattr(stub, call)(request, timeout=timeout_s, metadata=credentials.metadata)
        except grpc.RpcError as error:
            raise _why(server, error) from None


def _why(server: str, error: grpc.RpcError) -> WeftError:
    assert isinstance(error, grpc.Call)
    code = error.code()
    told = dict(error.trailing_metadata() or ()).get("weft-code")
    if told is not None:
        said = from_code(str(told), f"{server}: {error.details()}")
        return Unavailable(said.message) if said.retriable else said
    if code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNKNOWN):
        return ProtocolError(f"{server} is not a Weft node, or not its gRPC port ({code.name})")
    return Unavailable(f"{server} ({code.name.lower()})")

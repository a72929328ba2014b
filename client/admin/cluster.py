"""Operator calls to a cluster over gRPC: partition placement, leave of a node, recovery.

Any member can answer; members that do not answer are skipped. All calls are safe to repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import grpc

from weft.client.transport.credentials import Credentials
from weft.errors import ConnectionLost, TlsError, Unavailable
from weft.proto import endpoint, weft_pb2_grpc
from weft.proto import weft_pb2 as pb

CALL_S: Final = 10.0
#: A local subchannel pool: a shared pool would remember an earlier failure and its back-off.
_OPTIONS: Final = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]


class ClusterCalls:
    """Calls to any of `servers`, which are gRPC addresses, in their order."""

    def __init__(self, servers: Sequence[str], timeout_s: float = CALL_S) -> None:
        self._servers = list(servers)
        self._timeout_s = timeout_s

    def prefer(self, servers: Iterable[str]) -> None:
        """Puts these servers first; the others follow."""
        self._servers = list(dict.fromkeys((*servers, *self._servers)))

    def places(self) -> pb.PlacesResponse:
        answer = self._ask("Places", pb.PlacesRequest())
        assert isinstance(answer, pb.PlacesResponse)
        return answer

    def leave(self, node: str, *, force: bool = False) -> None:
        """Removes a node; with `force` even if messages then have fewer copies."""
        self._ask("Leave", pb.LeaveRequest(node=node, force=force))

    def recover(
        self,
        lost: Sequence[str],
        *,
        partitions: Sequence[int] = (),
        execute: bool = False,
        force_voters: bool = False,
    ) -> pb.RecoverResponse:
        """Reports the data lost with the disks of these nodes, or of all nodes that do not answer.

        With `execute` the cluster continues without the lost nodes: `partitions` are those of the
        report. With `force_voters` the asked node decides alone. Raises UsageError if a lost node
        answers, if there is nothing to recover, or if more is lost than was reported.
        """
        request = pb.RecoverRequest(
            lost=lost, partitions=partitions, execute=execute, force_voters=force_voters
        )
        answer = self._ask("Recover", request)
        assert isinstance(answer, pb.RecoverResponse)
        return answer

    def _ask(self, call: str, request: Any) -> Any:
        failures: list[Unavailable | TlsError] = []
        for server in self._servers:
            try:
                return _call(server, call, request, self._timeout_s)
            except (Unavailable, TlsError) as error:
                failures.append(error)
        for failure in failures:
            if not failure.retriable:
                raise failure
        reasons = "; ".join(each.message for each in failures)
        if all(isinstance(failure, ConnectionLost) for failure in failures):
            raise ConnectionLost(f"no node answered: {reasons}")
        raise Unavailable(reasons)  # a node answered, and has no quorum, or is no member yet


def _call(server: str, call: str, request: Any, timeout_s: float) -> Any:
    credentials = Credentials.of(None, None)
    with credentials.channel(server, _OPTIONS) as channel:
        stub = weft_pb2_grpc.ClusterStub(channel)  # type: ignore[no-untyped-call]
        try:
            return getattr(stub, call)(request, timeout=timeout_s, metadata=credentials.metadata)
        except grpc.RpcError as error:
            raise endpoint.failure(server, error, credentials.tls_files) from None

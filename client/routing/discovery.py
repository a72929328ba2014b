"""Discovery: the client gets gRPC addresses (seeds) and learns the cluster's view from any of them.

A client asks the seeds for the view, one after the other, when it connects; later the discovered
nodes come before the seeds. The client asks again when no node is reachable over its data path: a
node may have come back on other ports. gRPC is imported only here, and only on demand: its import
costs more than the rest of the client.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from typing import Final

from weft.client import arguments
from weft.client.transport.credentials import Credentials
from weft.errors import (
    ConnectionLost,
    InvalidArgument,
    ProtocolError,
    TlsError,
    Unavailable,
    WeftError,
)
from weft.proto import wire

from .cluster_view import ClusterView, split_address

log = logging.getLogger("weft.client")

PORT_DEFAULT: Final = 7700
SERVERS_DEFAULT: Final = f"127.0.0.1:{PORT_DEFAULT}"
#: Timeout of one seed; the other seeds wait meanwhile.
SEED_S: Final = 2.0
#: Minimum timeout: a gRPC connection takes tens of milliseconds, more on a busy machine.
SEED_S_MIN: Final = 0.2
#: Pause between two rounds over all seeds.
ROUND_S: Final = 0.2
SEEDS_MAX: Final = 256


def parse_servers(servers: str | Sequence[str] | None) -> list[str]:
    """Parses the seeds of `connect`: a list, a comma-separated text, or WEFT_SERVERS."""
    arguments.check_server_list(servers)
    if servers is None:
        servers = os.environ.get("WEFT_SERVERS") or SERVERS_DEFAULT
    parts = servers.split(",") if isinstance(servers, str) else list(servers)
    seeds = [_address(part.strip()) for part in parts if part.strip()]
    if not 1 <= len(seeds) <= SEEDS_MAX:
        raise InvalidArgument(f"give 1 to {SEEDS_MAX} servers as HOST:PORT, not {len(seeds)}")
    return seeds


def _address(text: str) -> str:
    if ":" not in text or text.endswith("]"):
        text = f"{text}:{PORT_DEFAULT}"
    host, port = split_address(text)
    if not host or (":" in host and not host.startswith("[")):
        raise InvalidArgument(
            f"a server is HOST:PORT, not {text[:100]!r}; an IPv6 host stands in brackets"
        )
    return f"{host}:{port}"


class Discovery:
    """The seeds and the newest view. Threads may share one instance."""

    def __init__(self, seeds: Sequence[str], credentials: Credentials | None = None) -> None:
        self.seeds = list(seeds)
        self.credentials = credentials or Credentials()
        self.view: ClusterView | None = None
        self._lock = threading.Lock()

    def find(self, timeout_s: float) -> ClusterView:
        """Asks until a seed answers: at least one round, at most `timeout_s`."""
        end = time.monotonic() + timeout_s
        while True:
            try:
                return self._round(max(timeout_s, SEED_S_MIN))
            except ConnectionLost:
                if time.monotonic() + ROUND_S >= end:
                    raise
            time.sleep(ROUND_S)

    def places(self) -> list[str]:
        """Returns the addresses to ask: discovered nodes first, then the seeds."""
        found = [node.grpc for node in self.view.nodes] if self.view else []
        return list(dict.fromkeys([*found, *self.seeds]))

    def note(self, view: ClusterView) -> None:
        """Stores a view that arrived another way, if it is newer."""
        if self.view is None or view.supersedes(self.view):
            self.view = view

    def _round(self, within_s: float) -> ClusterView:
        end = time.monotonic() + within_s
        failures: list[WeftError] = []
        for place in self.places():
            try:
                left_s = end - time.monotonic()
                view = ask(place, min(SEED_S, max(SEED_S_MIN, left_s)), self.credentials)
            except (Unavailable, ProtocolError, TlsError) as error:
                failures.append(error)
            else:
                self.note(view)
                return view
        for failure in failures:
            if not failure.retriable:
                raise failure
        raise ConnectionLost(
            f"no node answered: {'; '.join(failure.message for failure in failures)}. "
            "Start one with `weft serve`, or give the right address"
        )

    def refresh(self, within_s: float) -> ClusterView | None:
        """Returns the current view; None if no node answers or another thread is asking."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._round(within_s)
        except ConnectionLost:
            return None
        except WeftError as error:
            log.warning("looking for a node: %s", error.message)
            return None
        finally:
            self._lock.release()


def ask(seed: str, timeout_s: float, credentials: Credentials) -> ClusterView:
    """Asks one seed for its view of the cluster."""
    import grpc

    from weft.proto import weft_pb2, weft_pb2_grpc

    # A local subchannel pool: a shared pool would remember an earlier failure and its back-off.
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    with credentials.channel(seed, options) as channel:
        try:
            cluster = weft_pb2_grpc.ClusterStub(channel)  # type: ignore[no-untyped-call]
            answer = cluster.View(
                weft_pb2.ViewRequest(), timeout=timeout_s, metadata=credentials.metadata
            )
        except grpc.RpcError as error:
            from weft.proto import endpoint  # Python's TLS is loaded only to explain a failure

            raise endpoint.failure(seed, error, credentials.tls_files) from None
    nodes = [
        wire.NodeInfo(
            n.id,
            n.grpc,
            n.zmq,
            n.state,
            n.voter,
            n.witness,
            n.alive,
            n.peer,
            n.key,
            n.data_key,
            n.zone,
        )
        for n in answer.nodes
    ]
    info = wire.ViewInfo(
        answer.cluster, answer.version, answer.partitions, nodes,
        answer.wire_version, list(answer.primaries),
    )  # fmt: skip
    return ClusterView.of(info, seed)

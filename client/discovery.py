"""Finding the nodes: a client is told gRPC addresses and learns the rest from any of them.

The seeds are asked for the cluster's view, one after the other, when a client connects; the nodes
that are found take their place. They are asked again when no node can be reached by its data path:
one may have come back on other ports. gRPC is imported only here, and only when it is needed: it
costs more than the rest of the client together.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from typing import Final

from weft.errors import ConnectionLost, InvalidArgument, ProtocolError, WeftError, from_code
from weft.proto import wire

from .credentials import Credentials
from .view import View, split_address

log = logging.getLogger("weft.client")

PORT_DEFAULT: Final = 7700
SERVERS_DEFAULT: Final = f"127.0.0.1:{PORT_DEFAULT}"
#: One seed's time to answer; the others wait behind it.
SEED_S: Final = 2.0
#: Its least: a gRPC connection takes some hundredths of a second, more on a busy machine.
SEED_S_MIN: Final = 0.2
#: Between two rounds over all seeds.
ROUND_S: Final = 0.2
SEEDS_MAX: Final = 256


def parse_servers(servers: str | Sequence[str] | None) -> list[str]:
    """The seeds of `connect`: a list, a text with commas, or WEFT_SERVERS."""
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
    """The seeds, and the newest view that was found. Safe to share between threads."""

    def __init__(self, seeds: Sequence[str], credentials: Credentials | None = None) -> None:
        self.seeds = list(seeds)
        self.credentials = credentials or Credentials()
        self.view: View | None = None
        self._lock = threading.Lock()

    def find(self, timeout_s: float) -> View:
        """Asks until a seed answers; at least one round, at most `timeout_s`."""
        end = time.monotonic() + timeout_s
        while True:
            try:
                return self._round(max(timeout_s, SEED_S_MIN))
            except ConnectionLost:
                if time.monotonic() + ROUND_S >= end:
                    raise
            time.sleep(ROUND_S)

    def places(self) -> list[str]:
        """Whom to ask: the nodes that were found; those that were given only after them."""
        found = [node.grpc for node in self.view.nodes] if self.view else []
        return list(dict.fromkeys([*found, *self.seeds]))

    def note(self, view: View) -> None:
        """A view that came another way."""
        if self.view is None or view.supersedes(self.view):
            self.view = view

    def _round(self, within_s: float) -> View:
        end = time.monotonic() + within_s
        failures: list[WeftError] = []
        for place in self.places():
            try:
                left_s = end - time.monotonic()
                view = ask(place, min(SEED_S, max(SEED_S_MIN, left_s)), self.credentials)
            except (ConnectionLost, ProtocolError) as error:
                failures.append(error)
            else:
                self.note(view)
                return view
        for failure in failures:
            if isinstance(failure, ProtocolError):  # it does not pass by waiting
                raise failure
        raise ConnectionLost(
            f"no node answered: {'; '.join(failure.message for failure in failures)}. "
            "Start one with `weft serve`, or give the right address"
        )

    def refresh(self, within_s: float) -> View | None:
        """The view now; None when nobody answers, or another thread is asking."""
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


def ask(seed: str, timeout_s: float, credentials: Credentials) -> View:
    """One seed's view of the cluster."""
    import grpc

    from weft.proto import weft_pb2, weft_pb2_grpc

    # An own subchannel pool: a shared one would remember an earlier failure and its back-off.
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    with credentials.channel(seed, options) as channel:
        try:
            cluster = weft_pb2_grpc.ClusterStub(channel)  # type: ignore[no-untyped-call]
            answer = cluster.View(
                weft_pb2.ViewRequest(), timeout=timeout_s, metadata=credentials.metadata
            )
        except grpc.RpcError as error:
            code = error.code()
            if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
                raise from_code(code.name, f"{seed}: {error.details()}") from None
            if code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNKNOWN):
                raise ProtocolError(
                    f"{seed} is not a Weft node, or not its gRPC port ({code.name})"
                ) from None
            raise ConnectionLost(f"{seed} ({code.name.lower()})") from None
    nodes = [
        wire.NodeInfo(
            n.id, n.grpc, n.zmq, n.state, n.voter, n.witness, n.alive, n.peer, n.key, n.data_key
        )
        for n in answer.nodes
    ]
    info = wire.ViewInfo(
        answer.cluster, answer.version, answer.partitions, nodes,
        answer.wire_version, list(answer.primaries),
    )  # fmt: skip
    return View.of(info, seed)

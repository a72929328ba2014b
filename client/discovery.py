"""Finding the nodes: a client is told gRPC addresses and learns the rest from any of them.

The seeds are asked for the cluster's view, one after the other, when a client connects and again
when a node stays unreachable: it may have come back on other ports. gRPC is imported only here,
and only when it is needed: it costs more than the rest of the client together.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from weft.errors import ConnectionLost, InvalidArgument, ProtocolError, WeftError
from weft.proto import wire

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
#: Hosts that mean "every interface": the client goes on with the one by which it came.
_WILDCARDS: Final = ("", "*", "0.0.0.0", "::", "[::]")


@dataclass(frozen=True)
class Node:
    """A node as this client reaches it: addresses are HOST:PORT."""

    id: str
    grpc: str
    zmq: str


@dataclass(frozen=True)
class View:
    cluster: str
    partitions: int
    nodes: tuple[Node, ...]


def parse_servers(servers: str | Sequence[str] | None) -> list[str]:
    """The seeds of `connect`: a list, a text with commas, or WEFT_SERVERS."""
    if servers is None:
        servers = os.environ.get("WEFT_SERVERS") or SERVERS_DEFAULT
    parts = servers.split(",") if isinstance(servers, str) else list(servers)
    seeds = [_address(part.strip()) for part in parts if part.strip()]
    if not 1 <= len(seeds) <= SEEDS_MAX:
        raise InvalidArgument(f"give 1 to {SEEDS_MAX} servers as HOST:PORT, not {len(seeds)}")
    return seeds


def split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidArgument(f"a server is HOST:PORT, not {address[:100]!r}")
    return host, int(port)


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
    """The seeds, and the last view that one of them gave. Safe to share between threads."""

    def __init__(self, seeds: Sequence[str]) -> None:
        self.seeds = list(seeds)
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

    def _round(self, within_s: float) -> View:
        end = time.monotonic() + within_s
        failures = []
        for seed in self.seeds:
            try:
                left_s = end - time.monotonic()
                self.view = ask(seed, min(SEED_S, max(SEED_S_MIN, left_s)))
            except ConnectionLost as error:
                failures.append(error.message)
            else:
                return self.view
        raise ConnectionLost(
            f"no node answered: {'; '.join(failures)}. "
            "Start one with `weft serve`, or give the right address"
        )

    def refresh(self, within_s: float) -> str | None:
        """The node's address now; None when no seed answers, or another thread is asking."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._round(within_s).nodes[0].zmq
        except ConnectionLost:
            return None
        except WeftError as error:
            log.warning("looking for the node: %s", error.message)
            return None
        finally:
            self._lock.release()

    @property
    def address(self) -> str:
        """Where the node's data path is, as far as is known."""
        assert self.view is not None, "find first"
        return self.view.nodes[0].zmq


def ask(seed: str, timeout_s: float) -> View:
    """One seed's view of the cluster."""
    import grpc

    from weft.proto import weft_pb2, weft_pb2_grpc

    # An own subchannel pool: a shared one would remember an earlier failure and its back-off.
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(seed, options=options) as channel:
        try:
            cluster = weft_pb2_grpc.ClusterStub(channel)  # type: ignore[no-untyped-call]
            answer = cluster.View(weft_pb2.ViewRequest(), timeout=timeout_s)
        except grpc.RpcError as error:
            code = error.code()
            if code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNKNOWN):
                raise ProtocolError(
                    f"{seed} is not a Weft node, or not its gRPC port ({code.name})"
                ) from None
            raise ConnectionLost(f"{seed} ({code.name.lower()})") from None
    if answer.wire_version != wire.WIRE_VERSION:
        raise ProtocolError(
            f"the node at {seed} speaks version {answer.wire_version} of the data path, this "
            f"client version {wire.WIRE_VERSION}: install the same version of weft on both"
        )
    if not answer.nodes or not answer.partitions:
        raise ProtocolError(f"the node at {seed} knows of no node, not even itself")
    nodes = [Node(n.id, _reach(n.grpc, seed), _reach(n.zmq, seed)) for n in answer.nodes]
    return View(answer.cluster, answer.partitions, tuple(nodes))


def _reach(address: str, seed: str) -> str:
    """A wildcard host means: the host by which you reached me."""
    host, port = split_address(address)
    return f"{split_address(seed)[0]}:{port}" if host in _WILDCARDS else address

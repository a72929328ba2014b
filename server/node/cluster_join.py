"""How a node becomes a member of an existing cluster: `weft serve --join`.

1. Without a data directory, the node asks any member for the cluster's id, and makes the directory
   for that cluster. With a directory, its cluster must be the same.
2. The node listens, so that members can reach the node from the start of its membership.
3. A node without a view asks to join, and continues from the view in the answer. A returning member
   has a view and need not ask: its whole cluster may be starting. The node joins again only if the
   members have other addresses of the node, to update them. If the members refuse (the node has
   left, or lost its key), the node ends: it would serve no client.

Joining is idempotent: a node that crashed between two steps repeats the steps.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

from weft.dht.core import Core
from weft.errors import (
    ConnectionLost,
    InvalidArgument,
    ProtocolError,
    StorageError,
    TlsError,
    Unavailable,
    UsageError,
    WeftError,
)
from weft.persistence.directory import PARTITIONS_MAX, DataDirectory
from weft.proto import weft_pb2 as pb
from weft.proto import wire
from weft.server.address import Address
from weft.server.config import WILDCARDS, Config
from weft.server.edges.peer_edge import PEER_VERSION, check_peer
from weft.server.observability.log import fields
from weft.server.security.data_key import check_public, data_key
from weft.server.security.tls import Introduction

from .seeds import Seeds, Wait

log = logging.getLogger(__name__)

#: Long enough for a cluster that is starting, too; after that an operator should look.
JOIN_S_MAX: Final = 60.0
_CLUSTER_DIGITS: Final = 32


@runtime_checkable
class Newcomer(Protocol):
    """The joining node."""

    @property
    def peer_address(self) -> Address:
        """The address at which the node listens for other nodes."""

    @property
    def has_view(self) -> bool:
        """True if the node knows its cluster, from its own store or by `adopt`."""

    def adopt(self, view: bytes) -> None:
        """Takes a view to start from, in the encoding used between nodes. Thread-safe."""


def open_directory(config: Config, wait: Wait) -> DataDirectory:
    """The data directory: an existing one, or a new one for the cluster to join."""
    if not config.seeds:
        return DataDirectory.open(config.data)
    seeds = Seeds(config.seeds, Introduction(config))
    if not DataDirectory.is_made(config.data):
        view = _checked(seeds.await_view(JOIN_S_MAX, wait))
        log.info("joining", extra=fields(cluster=view.cluster, members=len(view.nodes)))
        return DataDirectory.open(config.data, view.cluster, view.partitions)
    try:
        view = _checked(seeds.view())
    except ConnectionLost as error:
        log.info("no member answers yet", extra=fields(why=error.message))
        return DataDirectory.open(config.data)
    except TlsError as error:
        # The node is a member already and serves by its own view: a seed's expired certificate must
        # not keep the node down.
        log.warning("a member cannot be reached by TLS", extra=fields(why=error.message))
        return DataDirectory.open(config.data)
    return DataDirectory.open(config.data, view.cluster, view.partitions)


def _checked(view: pb.ViewResponse) -> pb.ViewResponse:
    """Checks a view before its cluster id goes to disk: no id is better than a wrong one."""
    hexadecimal = set(view.cluster) <= set("0123456789abcdef")
    if len(view.cluster) != _CLUSTER_DIGITS or not hexadecimal:
        raise ProtocolError(f"a member names its cluster {view.cluster[:100]!r}, which is no id")
    if not 1 <= view.partitions <= PARTITIONS_MAX:
        raise ProtocolError(f"a member reports a cluster of {view.partitions} partitions")
    for node in view.nodes:
        if node.peer and Address.parse(node.peer, "peer").host in WILDCARDS:
            raise UsageError(
                f"member {node.id} announces {node.peer}, which no other node can reach: start the "
                "member with --advertise and its own host"
            )
    return view


class ClusterJoin:
    """The join of one node, once the node listens."""

    def __init__(
        self, config: Config, directory: DataDirectory, grpc: Address, zmq: Address
    ) -> None:
        self._config = config
        self._directory = directory
        self._grpc = grpc
        self._zmq = zmq
        self._seeds = Seeds(config.seeds, Introduction(config)) if config.seeds else None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        #: Why the members refuse this node, if they do.
        self.refusal: WeftError | None = None

    @property
    def wanted(self) -> bool:
        return self._seeds is not None

    def enter(self, node: Newcomer, wait: Wait, on_refused: Callable[[], None]) -> None:
        """Returns when the node is a member; a returning member does not wait.

        If the members refuse a returning member, `on_refused` is called later, from another thread.
        """
        if self._seeds is None:
            return
        me = self._request(node)
        if not node.has_view:
            self._join(self._seeds, node, me, wait)
            return
        self._thread = threading.Thread(
            target=self._make_known,
            args=(self._seeds, node, me, on_refused),
            name="weft-join",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        if self._thread is not None and self._seeds is not None:
            self._seeds.cancel()
            self._thread.join()

    def _request(self, node: Newcomer) -> pb.JoinRequest:
        return pb.JoinRequest(
            node=self._directory.node,
            grpc=str(self._grpc),
            zmq=str(self._zmq),
            peer=str(self._config.advertised(node.peer_address)),
            key=self._directory.keys.public,
            witness=self._config.witness,
            peer_version=PEER_VERSION,
            data_key=data_key(self._directory.keys).public,
            knows_groups=True,
            knows_commits=True,
            knows_multicast=True,
            knows_stochastic=True,
            zone=self._config.zone,
            knows_limits=True,
            knows_graphs=True,
            knows_ordered_multicast=True,
        )

    def _join(self, seeds: Seeds, node: Newcomer, me: pb.JoinRequest, wait: Wait) -> None:
        began = time.monotonic()
        joined = seeds.await_join(me, JOIN_S_MAX, wait)
        if (joined.cluster, joined.partitions) != (
            self._directory.cluster,
            self._directory.partitions,
        ):
            raise StorageError(
                f"{self._directory.path} was made for cluster {self._directory.cluster}, and "
                f"{self._config.join} is {joined.cluster}. Join that one with an empty --data"
            )
        node.adopt(joined.view)
        took_ms = int((time.monotonic() - began) * 1000)
        log.info("joined", extra=fields(cluster=joined.cluster, took_ms=took_ms))

    def _make_known(
        self, seeds: Seeds, node: Newcomer, me: pb.JoinRequest, on_refused: Callable[[], None]
    ) -> None:
        """In the background: the cluster works with this node's view until a member answers."""
        try:
            view = seeds.await_view(JOIN_S_MAX, self._wait)
            if is_known(view, me):
                log.debug("the members know this node as it is")
                return
            log.info("sending the address of this node to the members", extra=fields(peer=me.peer))
            self._join(seeds, node, me, self._wait)
        except _Ended:
            return
        except (Unavailable, TlsError) as error:
            log.warning(
                "the members did not get the address of this node, and may not find the node",
                extra=fields(why=error.message),
            )
        except WeftError as error:
            self.refusal = error
            on_refused()

    def _wait(self, seconds: float) -> None:
        if self._ended.wait(seconds):
            raise _Ended


class _Ended(Exception):
    """The node is stopping."""


def check_not_lost(core: Core) -> None:
    """Raises UsageError if an operator has declared this node lost: it must not serve."""
    if core.is_lost:
        raise UsageError(
            f"node {core.node} was declared lost by `weft cluster recover`, and the cluster goes "
            "on without it. Its data is kept as it was. To use this machine again, start with an "
            "empty --data and --join: it joins as a new node"
        )


def refusal_of(request: wire.Join) -> wire.Failure | None:
    """The answer to a join that must not reach the view; None: the join is valid."""
    try:
        check_newcomer(request)
    except InvalidArgument as error:
        return wire.Failure(error.code, error.message, error.retriable)
    return None


def check_newcomer(request: wire.Join) -> None:
    """Checks a joining node's description of itself; raises InvalidArgument."""
    if not re.fullmatch(r"[0-9a-f]{16}", request.node):
        raise InvalidArgument(
            f"a node's id has 16 hexadecimal digits, unlike {request.node[:50]!r}"
        )
    if request.version != PEER_VERSION:
        raise InvalidArgument(
            f"node {request.node} speaks version {request.version} with other nodes, this cluster "
            f"version {PEER_VERSION}: install the same version of weft on all of them"
        )
    check_peer(request.peer, request.key)
    check_public(request.data_key)
    for name in ("grpc", "zmq"):
        if not Address.parse(getattr(request, name), name).port:
            raise InvalidArgument(f"{name} must name a port")


def is_known(view: pb.ViewResponse, me: pb.JoinRequest) -> bool:
    """True if the members have this node's present addresses and keys."""
    for node in view.nodes:
        if node.id == me.node:
            told = (node.grpc, node.zmq, node.peer or me.peer, node.key or me.key, node.witness)
            own = (me.grpc, me.zmq, me.peer, me.key, me.witness)
            return told == own and node.data_key == me.data_key
    return False

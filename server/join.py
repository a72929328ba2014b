"""How a node becomes a member of a cluster that is there already: `weft serve --join`.

1. Without a data directory: any member is asked which cluster it is, and the directory is made for
   that one. With one, its cluster must be the same.
2. The node listens, so that it can be reached as soon as it is a member.
3. A node that has no view yet asks to be let in, and goes on from the view that it is given. A
   member that comes back has a view and need not ask anybody: its whole cluster may be starting.
   Only when members know it by other addresses does it join again, which tells them. If they refuse
   (it has left, or it lost its key), it ends: it would serve nobody.

Joining is idempotent: a node that crashed between two of these steps takes them again.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

from weft.errors import (
    ConnectionLost,
    InvalidArgument,
    ProtocolError,
    StorageError,
    Unavailable,
    UsageError,
    WeftError,
)
from weft.persistence.directory import PARTITIONS_MAX, DataDirectory
from weft.proto import weft_pb2 as pb
from weft.proto import wire

from .address import Address
from .config import WILDCARDS, Config
from .data_key import check_public, data_key
from .log import fields
from .peers import PEER_VERSION, check_peer
from .seeds import Seeds, Wait
from .tls import Introduction

log = logging.getLogger(__name__)

#: Long enough for a cluster that is starting too; then somebody should look.
JOIN_S_MAX: Final = 60.0
_CLUSTER_DIGITS: Final = 32


@runtime_checkable
class Newcomer(Protocol):
    """What joining needs of a node."""

    @property
    def peer_address(self) -> Address:
        """Where it listens for the other nodes."""

    @property
    def has_view(self) -> bool:
        """Whether it knows its cluster, from its own store or by `adopt`."""

    def adopt(self, view: bytes) -> None:
        """A view to go on from, as nodes hand it to each other. From any thread."""


def open_directory(config: Config, wait: Wait) -> DataDirectory:
    """The data directory: as it is, or made for the cluster that is to be joined."""
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
    return DataDirectory.open(config.data, view.cluster, view.partitions)


def _checked(view: pb.ViewResponse) -> pb.ViewResponse:
    """It becomes the name of a cluster on our disk: better no name than a wrong one."""
    hexadecimal = set(view.cluster) <= set("0123456789abcdef")
    if len(view.cluster) != _CLUSTER_DIGITS or not hexadecimal:
        raise ProtocolError(f"a member names its cluster {view.cluster[:100]!r}, which is no id")
    if not 1 <= view.partitions <= PARTITIONS_MAX:
        raise ProtocolError(f"a member says that its cluster has {view.partitions} partitions")
    for node in view.nodes:
        if node.peer and Address.parse(node.peer, "peer").host in WILDCARDS:
            raise UsageError(
                f"member {node.id} says that other nodes reach it at {node.peer}, which is nowhere."
                " Start it with --advertise and its own host"
            )
    return view


class Join:
    """One node's way into its cluster, once it listens."""

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
        #: Why the members do not want this node, if they do not.
        self.refusal: WeftError | None = None

    @property
    def wanted(self) -> bool:
        return self._seeds is not None

    def enter(self, node: Newcomer, wait: Wait, on_refused: Callable[[], None]) -> None:
        """Returns when the node is a member; a member that comes back is not kept waiting.

        It is told later, and from another thread, if it is none any more.
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
        """In the background: the cluster works with this node's view until somebody answers."""
        try:
            view = seeds.await_view(JOIN_S_MAX, self._wait)
            if is_known(view, me):
                log.debug("the members know this node as it is")
                return
            log.info("telling the members where this node is", extra=fields(peer=me.peer))
            self._join(seeds, node, me, self._wait)
        except _Ended:
            return
        except Unavailable as error:
            log.warning(
                "the members could not be told where this node is; they may not find it",
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


def check_newcomer(request: wire.Join) -> None:
    """What a node says of itself when it asks to be let in; raises InvalidArgument."""
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
    """Whether the members have this node as it is now."""
    for node in view.nodes:
        if node.id == me.node:
            told = (node.grpc, node.zmq, node.peer or me.peer, node.key or me.key, node.witness)
            own = (me.grpc, me.zmq, me.peer, me.key, me.witness)
            return told == own and node.data_key == me.data_key
    return False

"""The links of one client: one per node, opened on first use.

A link stays open while its node is in the view at the same address; other links are closed. The
view decides whether a link fails fast or holds calls until the node is back: only the single node
of a one-node cluster is worth waiting for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from weft.client.routing.cluster_view import ClusterNode, ClusterView
from weft.client.routing.discovery import Discovery
from weft.errors import ProtocolError, UsageError
from weft.transport.noise_transport import KEY_BYTES

from .link import Link, OpenLink
from .runtime import Runtime


class NodePlace:
    """The address of a node (implements link.NodeAddress)."""

    def __init__(
        self, node: ClusterNode, discovery: Discovery, adopt: Callable[[ClusterView], None]
    ) -> None:
        self.node = node.id
        self.address = node.zmq
        credentials = discovery.credentials
        self.token = credentials.token
        self.key = _key_of(node) if credentials.tls is not None else None
        self._discovery = discovery
        self._adopt = adopt

    def refresh(self, within_s: float) -> str | None:
        view = self._discovery.refresh(within_s)
        found = [n.zmq for n in view.nodes if n.id == self.node or view.alone] if view else []
        if found:
            self.address = found[0]
        return found[0] if found else None

    def looked(self) -> None:
        if self._discovery.view is not None:
            self._adopt(self._discovery.view)


def _key_of(node: ClusterNode) -> bytes:
    """A missing key is an error: with TLS, a connection is never made without encryption."""
    try:
        key = bytes.fromhex(node.data_key)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ProtocolError(f"the view has no key for the data path of node {node.id}")
    return key


class Links:
    """Threads may share an instance if the links of its runtime are thread-safe."""

    def __init__(
        self, runtime: Runtime, discovery: Discovery, adopt: Callable[[ClusterView], None]
    ) -> None:
        self._carrier = runtime
        self._discovery = discovery
        self._adopt = adopt
        self._pid = os.getpid()
        self._lock = threading.RLock()  # never held while waiting
        self._held: dict[str, tuple[NodePlace, OpenLink]] = {}
        self._retired: list[OpenLink] = []
        self._breaks = 0
        self._fail_fast = False
        self._closed = False

    def to(self, node: ClusterNode) -> OpenLink:
        with self._lock:
            held = self._held.get(node.id)
            if held is None:
                self._check()
                place = NodePlace(node, self._discovery, self._adopt)
                held = self._held[node.id] = (place, self._carrier.open(place))
                held[1].fail_fast = self._fail_fast
            return held[1]

    def node_of(self, link: Link) -> str | None:
        for node, (_, known) in list(self._held.items()):
            if known is link:
                return node
        return None

    @property
    def breaks(self) -> int:
        """Increases when a connection is lost or a link is retired."""
        return self._breaks + sum(link.breaks for _, link in list(self._held.values()))

    @property
    def quiet(self) -> bool:
        """True if no abandoned call can still hold a lease."""
        return all(link.quiet for _, link in list(self._held.values()))

    def follow(self, view: ClusterView) -> None:
        """Keeps the links of nodes with an unchanged address and retires the others."""
        with self._lock:
            if view.alone:
                self._follow_one(view.nodes[0])
            addresses = {node.id: node.zmq for node in view.nodes}
            held, self._held = self._held, {}
            for place, link in held.values():
                if addresses.get(place.node) == place.address:
                    self._held[place.node] = (place, link)
                else:
                    self._retired.append(link)
            self._fail_fast = not view.alone
            for _, link in self._held.values():
                link.fail_fast = self._fail_fast

    def _follow_one(self, node: ClusterNode) -> None:
        """The only node moved, or a new node replaced it at its address: keep the link."""
        for place, _ in self._held.values():
            if node.id == place.node:
                place.address = node.zmq
            elif node.zmq == place.address and node.id not in self._held:
                place.node = node.id

    def close_retired(self) -> None:
        """Separate from `follow`: the link that received the view may be a retired link."""
        with self._lock:
            retired, self._retired = self._retired, []
        for link in retired:
            self._breaks += link.breaks + 1
            link.close(retired=True)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            links = [link for _, link in self._held.values()] + self._retired
        for link in links:
            link.close()

    def _check(self) -> None:
        if self._closed:
            raise UsageError("the client is closed")
        if os.getpid() != self._pid:
            raise UsageError(
                "this client was made before a fork, and its connections stay with the parent: "
                "call weft.connect in the child"
            )

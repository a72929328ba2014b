"""The links of one client: one for each node, opened when it is first needed.

A link is kept while its node is in the view and its address stays; the others are let go. Whether a
link holds its calls until its node is back, or fails fast, follows the view: only a node that is
alone is worth waiting for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from weft.errors import ProtocolError, UsageError
from weft.proto.sealed import KEY_BYTES

from .carrier import Carrier
from .discovery import Discovery
from .link import Link, OpenLink
from .view import Node, View


class NodePlace:
    """Where a node is (see link.Place)."""

    def __init__(self, node: Node, discovery: Discovery, adopt: Callable[[View], None]) -> None:
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


def _key_of(node: Node) -> bytes:
    """It is encrypted or it is not made: never in the open because a key was missing."""
    try:
        key = bytes.fromhex(node.data_key)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ProtocolError(f"the view has no key for the data path of node {node.id}")
    return key


class Links:
    """Safe to share between threads as far as its carrier's links are."""

    def __init__(
        self, carrier: Carrier, discovery: Discovery, adopt: Callable[[View], None]
    ) -> None:
        self._carrier = carrier
        self._discovery = discovery
        self._adopt = adopt
        self._pid = os.getpid()
        self._lock = threading.RLock()  # never held while something waits
        self._held: dict[str, tuple[NodePlace, OpenLink]] = {}
        self._retired: list[OpenLink] = []
        self._breaks = 0
        self._fail_fast = False
        self._closed = False

    def to(self, node: Node) -> OpenLink:
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
        """Grows when a connection was lost, or let go."""
        return self._breaks + sum(link.breaks for _, link in list(self._held.values()))

    def follow(self, view: View) -> None:
        """Keeps the links whose nodes are where they were, and lets go of the others."""
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

    def _follow_one(self, node: Node) -> None:
        """The only node restarted elsewhere, or was made anew where it was: its link finds it."""
        for place, _ in self._held.values():
            if node.id == place.node:
                place.address = node.zmq
            elif node.zmq == place.address and node.id not in self._held:
                place.node = node.id

    def close_retired(self) -> None:
        """Not in `follow`: the link that found the view may be one of them."""
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

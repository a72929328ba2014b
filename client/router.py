"""Which node takes a request: one look-up in a table with an entry for each partition.

The table is made from the cluster's view. Callers ask for the link at each attempt and say when one
failed (`again`); the router then looks at the view again and adopts a newer one. Whoever knows best
is asked first: the node that refused a partition that it does not lead; when a node is silent or
lost, any other. The view over gRPC is the last resort.

A cluster of one node has nowhere else to go: its link holds calls until the node is back. With
more nodes the links fail fast. A cluster may grow or shrink under the client, so the links change
their manner with the view.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from typing import Final

from weft.dht import placement
from weft.errors import (
    ConnectionLost,
    DeadlineExceeded,
    NotPrimary,
    ShuttingDown,
    Unavailable,
    UsageError,
    WeftError,
)
from weft.proto import wire

from .carrier import Carrier
from .discovery import Discovery
from .exchange import ONCE, WAITING
from .link import LOOK_S, Link
from .links import Links
from .view import Node, View

log = logging.getLogger("weft.client")

#: The place of what every node can answer; the table's last entry.
ANY: Final = -1
#: How long a node may be silent, beyond the request's own wait, before others are asked. When they
#: know of no change yet it is tried again, for a shorter time at first, since they soon will; then
#: for longer and longer, or a slow node would never be heard out.
SILENT_S: Final = 1.0
SILENT_AGAIN_S: Final = 0.5
SILENT_GROWTH: Final = 1.5
SILENT_S_MAX: Final = 8.0
#: How long a node that was lost or silent is avoided where there is a choice.
DOWN_S: Final = 2.0
#: A pop is never told that a partition has moved, so it looks at the view as often as this.
LOOK_EVERY_S: Final = 5.0
#: The longest pause between two attempts when there are several nodes: a failover is short.
PAUSE_S_MAX: Final = 0.25


class Router:
    def __init__(self, carrier: Carrier, discovery: Discovery) -> None:
        assert discovery.view is not None, "find first"
        self.carrier = carrier
        self.discovery = discovery
        self.view = discovery.view
        self.alone = self.view.alone
        #: The node to prefer where there is a choice.
        self.local = ""
        self._choose_local()
        self._looks = 0
        self._looked_at = time.monotonic()
        self._looking = carrier.lock()
        self._lock = threading.RLock()  # of the view and the table; never held while one waits
        self._links = Links(carrier, discovery, self.adopt)
        self._links.follow(self.view)
        self._down: dict[str, float] = {}
        self.partitions = self.view.partitions
        self._table: list[Link | None] = [None] * (self.partitions + 1)

    # --- where things are ---

    def of_batch(self, producer: int, batch: int) -> int:
        return placement.of_batch(producer, batch, self.partitions)

    def of_push(self, ordered: bool, push: wire.Push) -> int:
        return placement.of_push(
            push.queue, ordered, push.producer, push.batch, push.dedup_key, self.partitions
        )

    def of_text(self, text: str) -> int:
        """By a queue's name, a table's key or a dedup key."""
        return placement.of_text(text, self.partitions)

    def of_partition(self, partition: int) -> int:
        """The place of a message, by the partition in its id or its receipt."""
        return partition % self.partitions

    def link(self, place: int) -> Link:
        """To the primary of a partition now, or to some node for ANY."""
        return self._table[place] or self._fill(place)

    def link_to(self, node: str) -> Link | None:
        """To a certain node, if it is in the view."""
        for known in self.view.nodes:
            if known.id == node:
                return self._links.to(known)
        return None

    def leaders(self) -> tuple[list[str], list[str]]:
        """Ids of the nodes that hold messages; apart, those that did not answer lately."""
        up: list[str] = []
        down: list[str] = []
        for node in self.view.leaders():
            (down if self._is_down(node.id) else up).append(node.id)
        return up, down

    @property
    def breaks(self) -> int:
        """Grows when a connection was lost: leases may be void."""
        return self._links.breaks

    # --- attempts ---

    def until(self, request: wire.AnyRequest, deadline: float, silences: int) -> float:
        """When an attempt ends that starts now: early, if it can be made elsewhere."""
        if self.alone or isinstance(request, ONCE):
            return deadline
        wait_s = request.wait_ms / 1000 if isinstance(request, WAITING) else 0.0
        silent_s = SILENT_S
        if silences:
            silent_s = min(SILENT_S_MAX, SILENT_AGAIN_S * SILENT_GROWTH ** min(silences - 1, 8))
        return min(deadline, time.monotonic() + wait_s + silent_s)

    async def again(
        self, link: Link, failure: WeftError, seen: View, pause_s: float, deadline: float
    ) -> None:
        """Returns when it makes sense to try again after a failure that passes.

        `seen` is the view by which the attempt was made: once things have moved, there is no
        reason to pause.
        """
        await self.look_after(link, failure, seen, deadline)
        if not self.view.same_places(seen):
            return
        if not self.alone:
            pause_s = min(pause_s, PAUSE_S_MAX)
        await self.carrier.sleep(max(0.0, min(pause_s, deadline - time.monotonic())))

    async def look_after(self, link: Link, failure: WeftError, seen: View, deadline: float) -> None:
        """Looks at the view again after a failure that may mean that things have moved."""
        if not isinstance(failure, Unavailable):
            return
        refused = isinstance(failure, NotPrimary)
        if self.alone and not refused:  # its link has done what can be done
            return
        node = self._links.node_of(link)
        if node and isinstance(failure, (ConnectionLost, DeadlineExceeded, ShuttingDown)):
            self._avoid(node)
        if self.view.same_places(seen):
            await self.look(node if refused else None, deadline)

    async def keep_fresh(self, deadline: float) -> None:
        """Looks at the view if nobody did for a while."""
        if time.monotonic() - self._looked_at >= LOOK_EVERY_S:
            await self.look(None, deadline)

    # --- the view ---

    async def look(self, first: str | None, deadline: float) -> None:
        """Asks for the view, or waits for somebody who is asking. `first`: whom to begin with."""
        looks = self._looks
        async with self._looking:
            if looks != self._looks:
                return
            try:
                await self._ask_around(first, deadline)
            finally:
                self._looks += 1
                self._looked_at = time.monotonic()
                self._links.close_retired()

    async def _ask_around(self, first: str | None, deadline: float) -> None:
        for node in self._order(first):
            until = min(deadline, time.monotonic() + LOOK_S)
            try:
                answer, _ = await self._links.to(node).call(wire.View(), (), until)
                if isinstance(answer, wire.ViewInfo):
                    self.adopt(View.of(answer, node.zmq))
                    return
            except UsageError:
                raise  # closed, or forked
            except WeftError as error:
                log.debug("no view from %s: %s", node.zmq, error.message)
                self._avoid(node.id)
        left_s = deadline - time.monotonic()
        if self.alone or left_s <= 0:  # the one node's link asks the seeds by itself
            return
        view = await self.carrier.find(self.discovery, min(LOOK_S, left_s))
        if view is not None:
            self.adopt(view)

    def _order(self, first: str | None) -> list[Node]:
        """Whom to ask for the view: those that are likely to answer before the others."""
        nodes = list(self.view.nodes)
        random.shuffle(nodes)
        nodes.sort(key=lambda n: (n.id != first, self._is_down(n.id), not n.alive))
        return nodes

    def adopt(self, view: View) -> None:
        """Takes a view that is not older than its own. On the links' own thread."""
        with self._lock:
            before = self.view
            if not view.supersedes(before):
                return
            self.view = view
            self.discovery.note(view)
            if view.same_places(before):
                return
            self.partitions = view.partitions
            self._table = [None] * (view.partitions + 1)
            self.alone = view.alone
            self._choose_local()
            self._links.follow(view)
            ids = [node.id for node in view.nodes]
            self._down = {node: until for node, until in self._down.items() if node in ids}

    def _choose_local(self) -> None:
        """A node far away is as good as another, and kept: not all clients shall come to one."""
        near = self.view.nearest(self.discovery.seeds)
        if near is not None:
            self.local = near.id
        elif self.local not in [node.id for node in self.view.nodes]:
            self.local = random.choice(self.view.leaders()).id

    # --- the nodes ---

    def _fill(self, place: int) -> Link:
        with self._lock:
            node = self._some_node() if place == ANY else self.view.primary(place)
            link = self._table[place] = self._links.to(node)
            return link

    def _some_node(self) -> Node:
        nodes = [node for node in self.view.nodes if not node.witness] or list(self.view.nodes)
        random.shuffle(nodes)
        return min(nodes, key=lambda n: (self._is_down(n.id), not n.alive, n.id != self.local))

    def _is_down(self, node: str) -> bool:
        return self._down.get(node, 0.0) > time.monotonic()

    def _avoid(self, node: str) -> None:
        self._down[node] = time.monotonic() + DOWN_S
        self._table[ANY] = None

    def close(self) -> None:
        self._links.close()

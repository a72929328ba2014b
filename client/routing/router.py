"""Selects the node for a request: one lookup in a table with an entry per partition.

The table is built from the cluster's view. Callers ask for the link at each attempt and report
failures (`again`); the router then refreshes the view and adopts a newer one. The router asks the
best-informed node first: the node that refused a partition which it does not lead; when a node is
silent or lost, any other node. The view over gRPC is the last resort.

A cluster of one node has no alternative: its link holds calls until the node is back. With more
nodes the links fail fast. A cluster may grow or shrink while the client runs, so each new view sets
the mode of the links.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from weft.client.transport.link import LOOK_S, Link
from weft.client.transport.links import Links
from weft.client.transport.runtime import Runtime
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
from weft.ids import partition_of
from weft.proto import wire
from weft.proto.idempotence import ONCE
from weft.proto.verb import Partitions
from weft.proto.verbs import VERBS, WAITING

from .cluster_view import ClusterNode, ClusterView
from .discovery import Discovery

log = logging.getLogger("weft.client")

#: The place for requests that every node can answer; the table's last entry.
ANY: Final = -1
#: How long a node may be silent, beyond the request's own wait, before the client asks other nodes.
#: If those know of no change yet, the client retries: first with a shorter timeout, since they will
#: know soon; then with longer and longer timeouts, or a slow node would never get to answer.
SILENT_S: Final = 1.0
SILENT_AGAIN_S: Final = 0.5
SILENT_GROWTH: Final = 1.5
SILENT_S_MAX: Final = 8.0
#: How long the client avoids a lost or silent node where there is a choice.
DOWN_S: Final = 2.0
#: A node never redirects a pop when a partition has moved, so pops refresh the view this often.
REFRESH_EVERY_S: Final = 5.0
#: Longest pause between two attempts with several nodes: a failover is short.
PAUSE_S_MAX: Final = 0.25


class Router:
    def __init__(self, runtime: Runtime, discovery: Discovery) -> None:
        assert discovery.view is not None, "find first"
        self.runtime = runtime
        self.discovery = discovery
        self.view = discovery.view
        self.alone = self.view.alone
        #: Why some partitions cannot be served, according to the last view; "" if all can.
        self.outage = self.view.outage
        #: The node to prefer where there is a choice.
        self.local = ""
        #: A view, a local node, and the partitions that this node leads in the view.
        self._near: tuple[ClusterView | None, str, set[int]] = (None, "", set())
        self._choose_local()
        self._refreshes = 0
        #: The time of the last refresh of the view.
        self.refreshed_at = time.monotonic()
        self._refresh_lock = runtime.lock()
        self._lock = threading.RLock()  # of view and table; never held while waiting
        self._links = Links(runtime, discovery, self.adopt)
        self._links.follow(self.view)
        self._down: dict[str, float] = {}
        self.partitions = self.view.partitions
        #: The link to the primary of each partition, and to some node (ANY); None: see `link`.
        self.table: list[Link | None] = [None] * (self.partitions + 1)

    # --- placement ---

    def of_batch(self, producer: int, batch: int) -> int:
        return partition_of(producer, batch, self.partitions)

    def of_push(self, ordered: bool, push: wire.Push) -> int:
        if isinstance(push, wire.PushGroup):
            return self.of_text(push.group)
        return placement.of_push(
            push.queue, ordered, push.producer, push.batch, push.dedup_key, self.partitions
        )

    def of_text(self, text: str) -> int:
        """Returns the place of a queue name, a table key, a dedup key or a group."""
        return placement.of_text(text, self.partitions)

    def is_near(self, producer: int, batch: int) -> bool:
        """True if the near node leads the batch's partition, or if that node leads none."""
        view = self.view
        if self._near[0] is not view or self._near[1] != self.local:
            led = {p for p in range(view.partitions) if view.primary(p).id == self.local}
            self._near = view, self.local, led
        return not self._near[2] or self.of_batch(producer, batch) in self._near[2]

    def of_partition(self, partition: int) -> int:
        """Returns the place of a message, from the partition in its id or receipt."""
        return partition % self.partitions

    def place_of(self, request: wire.AnyRequest) -> int:
        """Returns the place of a request by the verb table: a partition, or ANY."""
        rule = _PLACES.get(type(request))
        return ANY if rule is None else rule(self, request)

    def link(self, place: int) -> Link:
        """Returns the link to the current primary of a partition, or to some node for ANY."""
        return self.table[place] or self._fill(place)

    def link_to(self, node: str) -> Link | None:
        """Returns the link to a given node, if the node is in the view."""
        for known in self.view.nodes:
            if known.id == node:
                return self._links.to(known)
        return None

    def leaders(self) -> tuple[list[str], list[str]]:
        """Ids of the nodes that hold messages; second, those that did not answer recently."""
        up: list[str] = []
        down: list[str] = []
        for node in self.view.leaders():
            (down if self._is_down(node.id) else up).append(node.id)
        return up, down

    @property
    def breaks(self) -> int:
        """Increases with every lost connection: leases may be void."""
        return self._links.breaks

    @property
    def quiet(self) -> bool:
        """True if no abandoned call can still hold a lease."""
        return self._links.quiet

    # --- attempts ---

    def until(self, request: wire.AnyRequest, deadline: float, silences: int) -> float:
        """Returns the deadline of an attempt that starts now: early if other nodes can serve it."""
        if self.alone or type(request) in ONCE:
            return deadline
        waits = type(request) in WAITING
        wait_s = request.wait_ms / 1000 if waits else 0.0  # type: ignore[attr-defined]
        silent_s = SILENT_S
        if silences:
            silent_s = min(SILENT_S_MAX, SILENT_AGAIN_S * SILENT_GROWTH ** min(silences - 1, 8))
        return min(deadline, time.monotonic() + wait_s + silent_s)

    async def again(
        self, link: Link, failure: WeftError, seen: ClusterView, pause_s: float, deadline: float
    ) -> None:
        """Returns when a retry makes sense after a transient failure.

        `seen` is the view used for the attempt: if places have changed since, there is no reason to
        pause.
        """
        await self.refresh_after(link, failure, seen, deadline)
        if not self.view.same_places(seen):
            return
        if not self.alone:
            pause_s = min(pause_s, PAUSE_S_MAX)
        await self.runtime.sleep(max(0.0, min(pause_s, deadline - time.monotonic())))

    async def refresh_after(
        self, link: Link, failure: WeftError, seen: ClusterView, deadline: float
    ) -> None:
        """Refreshes the view after a failure that may mean that partitions have moved."""
        if not isinstance(failure, Unavailable):
            return
        refused = isinstance(failure, NotPrimary)
        if self.alone and not refused:  # the link already did all that is possible
            return
        node = self._links.node_of(link)
        if node and isinstance(failure, (ConnectionLost, DeadlineExceeded, ShuttingDown)):
            self._avoid(node)
        if self.view.same_places(seen):
            await self.refresh_view(node if refused else None, deadline)

    # --- the view ---

    async def refresh_view(self, first: str | None, deadline: float) -> None:
        """Asks for the view, or waits for a query in progress; starts with the node `first`."""
        refreshes = self._refreshes
        async with self._refresh_lock:
            if refreshes != self._refreshes:
                return
            try:
                await self._ask_around(first, deadline)
            finally:
                self._refreshes += 1
                self.refreshed_at = time.monotonic()
                self._links.close_retired()

    async def _ask_around(self, first: str | None, deadline: float) -> None:
        for node in self._order(first):
            until = min(deadline, time.monotonic() + LOOK_S)
            try:
                answer, _ = await self._links.to(node).call(wire.GetView(), (), until)
                if isinstance(answer, wire.ViewInfo):
                    self.adopt(ClusterView.of(answer, node.zmq))
                    return
            except UsageError:
                raise  # closed, or forked
            except WeftError as error:
                log.debug("no view from %s: %s", node.zmq, error.message)
                self._avoid(node.id)
        left_s = deadline - time.monotonic()
        if self.alone or left_s <= 0:  # the link of the only node asks the seeds itself
            return
        view = await self.runtime.find(self.discovery, min(LOOK_S, left_s))
        if view is not None:
            self.adopt(view)
        else:
            self.outage = ""  # no node answers: an earlier explanation no longer applies

    def _order(self, first: str | None) -> list[ClusterNode]:
        """Returns the nodes to ask for the view, those likely to answer first."""
        nodes = list(self.view.nodes)
        random.shuffle(nodes)
        nodes.sort(key=lambda n: (n.id != first, self._is_down(n.id), not n.alive))
        return nodes

    def adopt(self, view: ClusterView) -> None:
        """Adopts a view unless it is older than the current one. Runs on the links' own thread."""
        with self._lock:
            before = self.view
            if view.cluster == before.cluster:
                self.outage = view.outage
            if not view.supersedes(before):
                return
            self.view = view
            self.discovery.note(view)
            if view.same_places(before):
                return
            self.partitions = view.partitions
            self.table = [None] * (view.partitions + 1)
            self.alone = view.alone
            self._choose_local()
            self._links.follow(view)
            ids = [node.id for node in view.nodes]
            self._down = {node: until for node, until in self._down.items() if node in ids}

    def _choose_local(self) -> None:
        """Chooses a near node; else keeps a random one, so that clients spread over the nodes."""
        near = self.view.nearest(self.discovery.seeds)
        if near is not None:
            self.local = near.id
        elif self.local not in [node.id for node in self.view.nodes]:
            self.local = random.choice(self.view.leaders()).id

    # --- the nodes ---

    def _fill(self, place: int) -> Link:
        with self._lock:
            node = self._some_node() if place == ANY else self.view.primary(place)
            link = self.table[place] = self._links.to(node)
            if self.alone:  # the only node leads every partition
                self.table = [link] * len(self.table)
            return link

    def _some_node(self) -> ClusterNode:
        nodes = [node for node in self.view.nodes if not node.witness] or list(self.view.nodes)
        random.shuffle(nodes)
        return min(nodes, key=lambda n: (self._is_down(n.id), not n.alive, n.id != self.local))

    def _is_down(self, node: str) -> bool:
        return self._down.get(node, 0.0) > time.monotonic()

    def _avoid(self, node: str) -> None:
        self._down[node] = time.monotonic() + DOWN_S
        self.table[ANY] = None

    def close(self) -> None:
        self._links.close()


#: Rules for requests that one field routes. A push and a receipt need more than the request, such
#: as whether the queue is ordered; every other request may go to any node.
_RULES: Final[dict[Partitions, Callable[[Router, Any], int]]] = {
    Partitions.KEY: lambda router, request: router.of_text(request.key),
    Partitions.QUEUE: lambda router, request: router.of_text(request.queue),
    Partitions.HOME: lambda router, request: router.of_partition(request.partition),
    Partitions.NUMBER: lambda router, request: router.of_partition(request.partition),
}
_PLACES: Final = {
    request: _RULES[verb.partitions] for request, verb in VERBS.items() if verb.partitions in _RULES
}

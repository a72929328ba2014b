"""The status of a node: one answer for `weft status`, and stats for metrics and health pages."""

from __future__ import annotations

from collections.abc import Generator
from importlib.metadata import version

from weft.persistence.directory import DataDirectory
from weft.persistence.store import Store
from weft.proto import wire
from weft.server.core.node_core import NodeCore
from weft.server.edges.peer_edge import PeerEdge
from weft.server.observability import cluster_stats
from weft.server.observability.node_stats import Labels, NodeStats, of_queues

from . import process_usage
from .disk_reserve import DiskReserve
from .poller import Clock
from .round import Committer


class NodeStatus:
    def __init__(
        self,
        directory: DataDirectory,
        durability: str,
        node_core: NodeCore,
        store: Store,
        disk_reserve: DiskReserve,
        committer: Committer,
        peers: PeerEdge,
        clock: Clock,
    ) -> None:
        self._node = directory.node
        self._durability = durability
        self._node_core = node_core
        self._store = store
        self._disk_reserve = disk_reserve
        self._committer = committer
        self._peers = peers
        self._clock = clock
        self._started_us = clock.now_us()
        self._labels = Labels()
        #: Metrics of the cluster by name, each read in the node's thread.
        self.cluster_stats = cluster_stats.of(node_core.core, node_core.local_verdict)

    def stats(self, *, queues: bool) -> Generator[None, None, NodeStats]:
        """Gathers the node's stats; each step must run in the node's thread."""
        found = []
        if queues:
            found = yield from of_queues(
                self._node_core.engine.queues, self._clock.now_us(), self._labels
            )
        cluster = {name: read() for name, read in self.cluster_stats.items()}
        outage = self._node_core.local_verdict.verdict().outage
        return NodeStats(self.info(), self._disk_reserve.full, found, cluster, outage)

    def info(self) -> wire.StatusInfo:
        queues = self._node_core.engine.queues.values()
        remote_pop, disk = self._node_core.remote_pop, self._disk_reserve
        return wire.StatusInfo(
            self._node,
            version("weft"),
            (self._clock.now_us() - self._started_us) // 1000,
            self._durability,
            len(queues),
            sum(each.ready for each in queues),
            sum(each.leased for each in queues),
            sum(each.delayed for each in queues),
            self._store.size_bytes(),
            disk.free_bytes,
            disk.reserve_bytes,
            self._committer.writes,
            process_usage.cpu_us(),
            process_usage.resident_bytes(),
            self._peers.messages,
            self._peers.bytes,
            remote_pop.searches + remote_pop.probing.searches,
            remote_pop.hops + remote_pop.probing.hops,
            remote_pop.prefetched.stolen,
            self._clock.now_us() // 1000,
            self._peers.pings,
            remote_pop.prefetched.returned,
            disk.full,
            disk.limit_bytes,
            sorted(self._node_core.core.full_peers),
            self._node_core.engine.commits.undelivered,
            self._node_core.engine.commits.dropped,
        )

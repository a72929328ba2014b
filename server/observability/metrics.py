"""Metrics: a node's stats in Prometheus format.

This is a *pull* collector without counters of its own: for each scrape it receives the stats that
the node has anyway (`node_stats.py`, `histogram.py`, `edges/call_log.py`) and names them. The hot
path pays for two clock readings and one search in a short list per round, and nothing per message.

Every metric is declared in one of the tables below, so that the dashboards, the alerts and the
table in docs/how-to/monitor.md can be compared with the code. ``CLUSTER`` holds the metrics of the
cluster: each is exported if the node's ``cluster_stats`` have a function under the metric's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from weft.server.edges.call_log import CallLog
from weft.server.engine.convoy_histogram import ConvoyHistogram

from .histogram import Histogram
from .node_stats import OTHER, NodeStats

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"


class Family(NamedTuple):
    """One metric; a counter's name ends with _total here as on the wire."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()

    def exposed(self) -> tuple[str, ...]:
        """The names of the metric's series."""
        if self.kind == HISTOGRAM:
            return tuple(self.name + suffix for suffix in ("_bucket", "_sum", "_count"))
        return (self.name,)


#: By the field of `wire.QueueInfo`; each has the label ``queue``.
QUEUE: Final[dict[str, Family]] = {
    "pushed": Family("weft_pushed_messages_total", COUNTER, "Messages stored."),
    "delivered": Family("weft_delivered_messages_total", COUNTER, "Messages leased by pops."),
    "acked": Family("weft_acked_messages_total", COUNTER, "Messages acked."),
    "dead_lettered": Family(
        "weft_dead_lettered_messages_total", COUNTER, "Messages moved to the dead letter queue."
    ),
    "expired_leases": Family(
        "weft_lease_expired_messages_total", COUNTER, "Messages with a lease that expired unacked."
    ),
    "duplicates": Family(
        "weft_duplicate_pushes_total", COUNTER, "Batches recognised as stored before."
    ),
    "ready": Family("weft_ready_messages", GAUGE, "Messages that a pop would get now."),
    "leased": Family("weft_leased_messages", GAUGE, "Messages in flight: leased, not yet acked."),
    "delayed": Family("weft_delayed_messages", GAUGE, "Messages that wait for their due time."),
    "waiting": Family("weft_waiting_messages", GAUGE, "Tasks of graphs that wait for other tasks."),
    "bytes": Family("weft_queue_bytes", GAUGE, "Bytes of the queue's batches."),
    "oldest_ms": Family("weft_oldest_ready_seconds", GAUGE, "Age of the oldest ready message."),
    "waiting_pops": Family("weft_waiting_pops", GAUGE, "Pops that wait for a message."),
    "share_asked": Family(
        "weft_queue_share_asked", GAUGE, "Part of the node's time that the queue claims; 0: none."
    ),
    "share_got": Family(
        "weft_queue_share_got",
        GAUGE,
        "Part of the node's time that the queue got in the last "
        "seconds in which queues competed for the time; 0 if none did.",
    ),
}

#: By the field of `wire.QueueInfo`, for stochastic queues alone; each has the label ``queue``.
PROBES: Final[dict[str, Family]] = {
    "probes": Family("weft_probes_total", COUNTER, "Pops of a stochastic queue at this node."),
    "empty_probes": Family(
        "weft_empty_probes_total", COUNTER, "Of these pops, those that found no message."
    ),
    "blocked_pops": Family(
        "weft_blocked_pops_total", COUNTER, "Of the empty pops, those that waited at this node."
    ),
    "blocked_us": Family(
        "weft_blocked_pop_seconds_total", COUNTER, "How long pops waited at this node."
    ),
    "full_buffers": Family(
        "weft_full_buffers_total", COUNTER, "Pushes that this node's full buffer refused."
    ),
    "room_wait_us": Family(
        "weft_room_wait_seconds_total", COUNTER, "How long producers waited for room."
    ),
}

#: By the field of `wire.StatusInfo`.
NODE: Final[dict[str, Family]] = {
    "uptime_ms": Family("weft_uptime_seconds", GAUGE, "Time since the node started."),
    "queues": Family("weft_queues", GAUGE, "Queues that exist."),
    "store_bytes": Family("weft_store_bytes", GAUGE, "Bytes of the store's files."),
    "free_bytes": Family("weft_disk_free_bytes", GAUGE, "Free bytes on the data's disk."),
    "reserve_bytes": Family(
        "weft_disk_reserve_bytes", GAUGE, "Free bytes below which pushes are refused."
    ),
    "commits": Family("weft_commits_total", COUNTER, "Rounds that wrote to the store."),
    "peer_messages": Family("weft_peer_messages_total", COUNTER, "Messages sent to other nodes."),
    "peer_pings": Family(
        "weft_peer_pings_total", COUNTER, "Pings sent to other nodes, at a fixed interval."
    ),
    "peer_bytes": Family("weft_peer_bytes_total", COUNTER, "Bytes sent to other nodes."),
    "searches": Family(
        "weft_searches_total", COUNTER, "Searches over the nodes, for pops of plain clients."
    ),
    "hops": Family("weft_hops_total", COUNTER, "Queries of these searches to other nodes."),
    "stolen": Family(
        "weft_stolen_messages_total", COUNTER, "Messages taken from other nodes ahead of a pop."
    ),
    "stolen_returned": Family(
        "weft_stolen_returned_messages_total", COUNTER, "Stolen messages returned without a pop."
    ),
    "undelivered": Family(
        "weft_commit_undelivered", GAUGE, "Effects of commits that wait for other partitions."
    ),
    "dropped": Family(
        "weft_commit_dropped_total",
        COUNTER,
        "Effects of commits whose queue was deleted or purged, or whose value had no room.",
    ),
}

INFO: Final = Family(
    "weft_node_info",
    GAUGE,
    "Always 1; the labels name the node.",
    ("node", "version", "durability"),
)
FULL: Final = Family("weft_disk_at_reserve", GAUGE, "1 while pushes are refused for lack of disk.")
ROUND: Final = Family(
    "weft_round_seconds", HISTOGRAM, "A round of the node's thread that had something to do."
)
FSYNC: Final = Family(
    "weft_fsync_seconds", HISTOGRAM, "A round's synced write; none with durability os."
)
CONVOY: Final = Family(
    "weft_multicast_convoy_seconds",
    HISTOGRAM,
    "From the number of a multicast to its place in the queues: the wait for smaller ones.",
)
CALLS: Final = Family(
    "weft_grpc_calls_total", COUNTER, "gRPC calls that ended.", ("method", "code")
)
CALL_TIMES: Final = Family(
    "weft_grpc_call_seconds", HISTOGRAM, "gRPC calls that neither wait nor stream.", ("method",)
)
UNDER_WAY: Final = Family("weft_grpc_calls_under_way", GAUGE, "gRPC calls that have not ended.")
CONNECTIONS: Final = Family(
    "weft_connections", GAUGE, "Open connections to each of the node's ports.", ("port",)
)

#: Metrics of the cluster, by name; exported if the node has a function for the name.
CLUSTER: Final[dict[str, Family]] = {
    family.name: family
    for family in (
        Family(
            "weft_cluster_state",
            GAUGE,
            "1 for the state of the cluster as this node sees it, 0 for the other states.",
            ("state",),
        ),
        Family(
            "weft_nodes_that_may_fail",
            GAUGE,
            "Nodes, whichever, that may fail now without loss of service, or of messages.",
            ("without_loss_of",),
        ),
        Family(
            "weft_blocked_partitions",
            GAUGE,
            "Partitions that cannot be served before a dead node is back, as this node sees it.",
        ),
        Family("weft_cluster_nodes", GAUGE, "Members of the view by state.", ("state",)),
        Family("weft_view_version", GAUGE, "Version of the view that this node holds."),
        Family("weft_partitions", GAUGE, "Partitions by this node's role in them.", ("role",)),
        Family(
            "weft_under_replicated_partitions",
            GAUGE,
            "Partitions led by this node with fewer copies than min_sync.",
        ),
        Family(
            "weft_replication_lag_entries",
            GAUGE,
            "Log entries that a follower of this node's partitions is behind.",
            ("follower",),
        ),
    )
}

#: Exported by prometheus-client's own collector of the process.
PROCESS: Final = (
    "process_resident_memory_bytes", "process_virtual_memory_bytes", "process_cpu_seconds_total",
    "process_start_time_seconds", "process_open_fds", "process_max_fds",
)  # fmt: skip

FAMILIES: Final = (
    *QUEUE.values(), *PROBES.values(), *NODE.values(), INFO, FULL, ROUND, FSYNC, CONVOY, CALLS,
    CALL_TIMES, UNDER_WAY, CONNECTIONS, *CLUSTER.values(),
)  # fmt: skip
#: Series that a query may name.
EXPOSED: Final = frozenset(name for family in FAMILIES for name in family.exposed()) | {*PROCESS}


class Metrics(Collector):
    """The collector of one node. Used by one thread."""

    def __init__(
        self,
        rounds: Histogram,
        fsyncs: Histogram,
        calls: CallLog,
        connections: Callable[[], dict[str, int]],
        convoy: Callable[[], ConvoyHistogram] = ConvoyHistogram,
    ) -> None:
        self._rounds = rounds
        self._fsyncs = fsyncs
        self._calls = calls
        self._connections = connections
        self._convoy = convoy
        self._figures: NodeStats | None = None
        #: Last exported counters of the sum of unlabelled queues.
        self._said: dict[str, float] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def render(self, node_stats: NodeStats, accept: str) -> tuple[str, bytes]:
        """(content type, text) in the format that the reader prefers."""
        self._figures = node_stats
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)

    def collect(self) -> Iterator[Metric]:
        node_stats = self._figures
        if node_stats is None:
            return
        yield from self._of_queues(node_stats)
        yield from _of_stochastic(node_stats)
        yield from _of_node(node_stats)
        yield _histogram(ROUND, {(): self._rounds})
        yield _histogram(FSYNC, {(): self._fsyncs})
        yield _histogram(CONVOY, {(): self._convoy()})
        yield _plain(CALLS, {**self._calls.ended})
        yield _histogram(CALL_TIMES, {(m,): t for m, t in list(self._calls.times.items())})
        yield _plain(UNDER_WAY, {(): self._calls.under_way})
        yield _plain(CONNECTIONS, {(port,): n for port, n in self._connections().items()})
        for name, values in node_stats.cluster.items():
            yield _plain(CLUSTER[name], dict(values))

    def _of_queues(self, node_stats: NodeStats) -> Iterator[Metric]:
        for name, family in QUEUE.items():
            scale = 1000 if name.endswith("_ms") else 1
            values: dict[tuple[str, ...], float] = {}
            for queue in node_stats.queues:
                value = getattr(queue, name) / scale
                if queue.name == OTHER and family.kind == COUNTER:
                    # A queue that is deleted, or gets a label, takes its count out of the sum. A
                    # counter that decreases looks like a restart, and its whole value would count
                    # as new.
                    value = self._said[name] = max(value, self._said.get(name, 0))
                values[(queue.name,)] = value
            yield _plain(family._replace(labels=("queue",)), values)


def _of_stochastic(node_stats: NodeStats) -> Iterator[Metric]:
    queues = [queue for queue in node_stats.queues if queue.settings.stochastic]
    for name, family in PROBES.items() if queues else ():
        scale = 1_000_000 if name.endswith("_us") else 1
        values: dict[tuple[str, ...], float] = {
            (queue.name,): getattr(queue, name) / scale for queue in queues
        }
        yield _plain(family._replace(labels=("queue",)), values)


def _of_node(node_stats: NodeStats) -> Iterator[Metric]:
    status = node_stats.status
    for name, family in NODE.items():
        scale = 1000 if name.endswith("_ms") else 1
        yield _plain(family, {(): getattr(status, name) / scale})
    yield _plain(INFO, {(status.node, version("weft"), status.durability): 1})
    yield _plain(FULL, {(): float(node_stats.full)})


def _plain(family: Family, values: dict[tuple[str, ...], float]) -> Metric:
    make = CounterMetricFamily if family.kind == COUNTER else GaugeMetricFamily
    metric = make(family.name, family.help, labels=family.labels)
    for labels, value in values.items():
        metric.add_metric(labels, value)
    return metric


def _histogram(
    family: Family, timings: Mapping[tuple[str, ...], Histogram | ConvoyHistogram]
) -> Metric:
    metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    for labels, timing in timings.items():
        metric.add_metric(labels, timing.cumulative(), timing.sum_s)
    return metric

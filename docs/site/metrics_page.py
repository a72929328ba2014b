"""The page of metrics, from the tables in `server/observability/metrics.py`."""

from __future__ import annotations

from collections.abc import Iterable

from weft.server.observability import metrics
from weft.server.observability.metrics import Family
from weft.server.observability.node_stats import OTHER, QUEUES_LABELLED_MAX

from .markdown import code, page, table

INTRODUCTION = """\
Each node serves its metrics in Prometheus' text format at `/metrics` on its HTTP port (7702 by
default). A histogram `x` has the series `x_bucket`, `x_sum` and `x_count`. Counters begin at 0
when the node starts."""
QUEUES = f"""\
A node exports at most {QUEUES_LABELLED_MAX} queues by name; the label `queue="{OTHER}"` has the
sum of all others."""
CLUSTER = "Each node exports the cluster as the node sees it."
PROCESS = "Exported by the Prometheus client library, about the node's process:"


def render() -> str:
    rest = set(metrics.FAMILIES) - {
        *metrics.QUEUE.values(), *metrics.PROBES.values(), *metrics.NODE.values(),
        *metrics.CLUSTER.values()
    }  # fmt: skip
    node = [family for family in metrics.FAMILIES if family in rest]
    labelled = (
        family._replace(labels=("queue",))
        for family in (*metrics.QUEUE.values(), *metrics.PROBES.values())
    )
    process = ", ".join(code(name) for name in metrics.PROCESS)
    parts = [
        INTRODUCTION,
        *("## Queues", QUEUES, _table(labelled)),
        *("## Node", _table([*metrics.NODE.values(), *node])),
        *("## Cluster", CLUSTER, _table(metrics.CLUSTER.values())),
        *("## Process", f"{PROCESS} {process}."),
    ]
    return page("Metrics", "server/observability/metrics.py", parts)


def _table(families: Iterable[Family]) -> str:
    rows = (
        (code(family.name), family.kind, ", ".join(map(code, family.labels)), family.help)
        for family in families
    )
    return table(("name", "type", "labels", "meaning"), rows)

"""The collector: every declared metric is exported, with the node's values."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from weft.errors import InvalidArgument
from weft.limits import check_queue_name
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.edges import connection_counts
from weft.server.edges.call_log import CallLog
from weft.server.engine.queue import QueueRecord, QueueState
from weft.server.observability import metrics, node_stats
from weft.server.observability.histogram import BOUNDS_S, Histogram
from weft.server.observability.metrics import CLUSTER, EXPOSED, FAMILIES, Metrics
from weft.server.observability.node_stats import (
    OTHER,
    QUEUES_LABELLED_MAX,
    Labels,
    NodeStats,
    of_queues,
)

STATUS = wire.StatusInfo("n1", "1", 1500, "disk", 2, 3, 0, 0, 400, 5000, 600, 7, 8, 9)
Samples = dict[str, dict[frozenset[tuple[str, str]], float]]


def made_queue(name: str, **values: int) -> QueueState:
    queue = QueueState(name, QueueRecord(1, 0, Settings()))
    for field, value in values.items():
        setattr(queue, field, value)
    return queue


def gather(queues: dict[str, QueueState], labels: Labels, now: int = 10) -> list[wire.QueueInfo]:
    work: Generator[None, None, list[wire.QueueInfo]] = of_queues(queues, now, labels)
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: list[wire.QueueInfo] = end.value
            return found


def collector(**given: Any) -> Metrics:
    parts = {"rounds": Histogram(), "fsyncs": Histogram(), "calls": CallLog(), "connections": dict}
    return Metrics(**{**parts, **given})


def read(made: Metrics, found: NodeStats) -> Samples:
    content_type, text = made.render(found, "")
    assert content_type.startswith("text/plain")
    samples: Samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return samples


def of(**labels: str) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())


def test_every_declared_series_is_exported_and_no_other() -> None:
    calls = CallLog()
    calls.ended["Push", "OK"] = 1
    calls.times["Push"] = Histogram()
    made = collector(calls=calls, connections=lambda: {"grpc": 1})
    cluster = {name: {("x",) * len(family.labels): 1.0} for name, family in CLUSTER.items()}
    events = QueueState("e", QueueRecord(2, 0, Settings(kind="stochastic", buffers=5, max_hops=1)))
    queues = gather({"q": made_queue("q"), "e": events}, Labels())
    assert read(made, NodeStats(STATUS, False, queues, cluster)).keys() == EXPOSED


def test_a_stochastic_queue_alone_has_metrics_of_probes() -> None:
    events = QueueState("e", QueueRecord(2, 0, Settings(kind="stochastic", buffers=5, max_hops=1)))
    assert events.buffer is not None
    events.buffer.probes, events.buffer.blocked_us = 4, 2_500_000
    queues = gather({"q": made_queue("q"), "e": events}, Labels())
    samples = read(collector(), NodeStats(STATUS, False, queues))
    assert samples["weft_probes_total"] == {of(queue="e"): 4}
    assert samples["weft_blocked_pop_seconds_total"] == {of(queue="e"): 2.5}


def test_the_clusters_metrics_are_absent_until_the_cluster_has_them() -> None:
    assert not read(collector(), NodeStats(STATUS, False)).keys() & CLUSTER.keys()


def test_values_and_units() -> None:
    queue = made_queue("q", pushed=5, delivered=4, acked=3, ready=2, bytes=77, expired_leases=1)
    queue.ids.add_fresh(0, 1_000_000 << 97)  # a stamp of one second
    found = NodeStats(STATUS, True, gather({"q": queue}, Labels(), now=3_500_000))
    samples = read(collector(), found)
    assert samples["weft_pushed_messages_total"][of(queue="q")] == 5
    assert samples["weft_acked_messages_total"][of(queue="q")] == 3
    assert samples["weft_lease_expired_messages_total"][of(queue="q")] == 1
    assert samples["weft_queue_bytes"][of(queue="q")] == 77
    assert samples["weft_oldest_ready_seconds"][of(queue="q")] == 2.5
    assert samples["weft_uptime_seconds"][of()] == 1.5
    assert samples["weft_disk_free_bytes"][of()] == 5000
    assert samples["weft_disk_at_reserve"][of()] == 1
    (info,) = samples["weft_node_info"]
    assert ("node", "n1") in info


def test_a_histogram_counts_up_to_its_bounds() -> None:
    fsyncs = Histogram()
    for seconds in (0.0001, 0.3):
        fsyncs.observe(seconds)
    fsyncs.recent += [0.0002, 60.0]
    fsyncs.count()
    assert not fsyncs.recent
    samples = read(collector(fsyncs=fsyncs), NodeStats(STATUS, False))
    buckets = samples["weft_fsync_seconds_bucket"]
    assert buckets[of(le="0.0001")] == 1
    assert buckets[of(le="0.00025")] == 2
    assert buckets[of(le="0.25")] == 2
    assert buckets[of(le="0.5")] == 3
    assert buckets[of(le="10.0")] == 3
    assert buckets[of(le="+Inf")] == samples["weft_fsync_seconds_count"][of()] == 4
    assert samples["weft_fsync_seconds_sum"][of()] == pytest.approx(60.3003)
    assert list(BOUNDS_S) == sorted(BOUNDS_S)


def test_queues_past_the_maximum_are_one_sum() -> None:
    queues = {f"q{n:04}": made_queue(f"q{n:04}", pushed=n, ready=1) for n in range(1300)}
    queues["q1200"].ids.add_fresh(0, 4 << 97)
    found = gather(queues, Labels(), now=2_000_004)
    assert len(found) == QUEUES_LABELLED_MAX + 1
    other = found[-1]
    assert other.name == OTHER
    assert other.pushed == sum(range(QUEUES_LABELLED_MAX, 1300))
    assert other.ready == 1300 - QUEUES_LABELLED_MAX
    assert other.oldest_ms == 2000


def test_many_queues_are_gathered_in_steps() -> None:
    queues = {str(n): made_queue(str(n)) for n in range(QUEUES_LABELLED_MAX + 3 * node_stats.STEP)}
    assert len(list(of_queues(queues, 0, Labels()))) == 3


def test_a_label_is_kept_and_a_free_place_is_filled() -> None:
    labels = Labels()
    queues = {f"q{n}": made_queue(f"q{n}") for n in range(QUEUES_LABELLED_MAX + 1)}
    last = f"q{QUEUES_LABELLED_MAX}"
    assert last not in {each.name for each in gather(queues, labels)}
    queues["q5"] = queues.pop("q5")  # a purge makes a new object; its place in the order may move
    assert "q5" in {each.name for each in gather(queues, labels)}
    del queues["q7"]
    names = {each.name for each in gather(queues, labels)}
    assert last in names
    assert OTHER not in names


def test_the_sum_never_goes_back_when_a_queue_is_deleted() -> None:
    made, labels = collector(), Labels()
    queues = {f"q{n:04}": made_queue(f"q{n:04}", pushed=10) for n in range(203)}

    def said() -> float:
        samples = read(made, NodeStats(STATUS, False, gather(queues, labels)))
        return samples["weft_pushed_messages_total"][of(queue=OTHER)]

    assert said() == 30
    del queues["q0202"]
    assert said() == 30
    queues["q0201"].pushed += 25
    assert said() == 45


def test_no_queue_can_be_called_as_the_sum_is() -> None:
    with pytest.raises(InvalidArgument, match="queue name"):
        check_queue_name(OTHER)


def test_names_follow_prometheus_rules() -> None:
    for family in FAMILIES:
        assert family.name.startswith("weft_")
        assert family.name.endswith("_total") == (family.kind == metrics.COUNTER)
        assert not family.name.endswith("_ms")
        assert family.help.endswith(".")


def test_openmetrics_for_who_prefers_it() -> None:
    content_type, text = collector().render(
        NodeStats(STATUS, False), "application/openmetrics-text;version=1.0.0"
    )
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")


def test_connections_are_counted_by_local_port_and_state(tmp_path: Path) -> None:
    table = tmp_path / "tcp"
    table.write_text(
        "  sl  local_address rem_address   st tx_queue rx_queue tr\n"
        "   0: 0100007F:1E14 00000000:0000 0A 00000000:00000000 00\n"
        "   1: 0100007F:1E14 0100007F:D431 01 00000000:00000000 00\n"
        "   2: 0100007F:D431 0100007F:1E14 01 00000000:00000000 00\n"
        "   3: 0100007F:1E15 0100007F:D432 06 00000000:00000000 00\n"
    )
    ports = {"grpc": 7700, "zmq": 7701}
    assert connection_counts.count(ports, (table, tmp_path / "none")) == {"grpc": 1, "zmq": 0}

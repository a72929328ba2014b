"""`weft top`: the arithmetic and the drawing, without a node."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from weft import QueueStats
from weft.client.cli import top
from weft.client.cli.rates import ORDERS, Sample, rows
from weft.proto import wire
from weft.proto.settings import Settings

STATUS = wire.StatusInfo("n1", "1", 61_000, "disk", 2, 3, 0, 0, 2048, 5000, 600, 7, 8, 4096)
NODE = wire.NodeInfo("n1", "127.0.0.1:7700", "127.0.0.1:7701", "active")


def stats(name: str, *, pushed: int = 0, delivered: int = 0, acked: int = 0, ready: int = 0,
          oldest_ms: int = 0) -> QueueStats:  # fmt: skip
    return QueueStats(
        name, Settings(), ready, 1, 2, 100, oldest_ms, pushed, delivered, acked, 0, 0, 0, 4
    )


def sample(at_s: float, *queues: QueueStats, node: wire.NodeInfo = NODE) -> Sample:
    return Sample(at_s, list(queues), [node], STATUS)


def test_rates_are_per_second() -> None:
    before = sample(10, stats("a", pushed=100, delivered=50, acked=40))
    after = sample(12, stats("a", pushed=300, delivered=60, acked=41, ready=7))
    (row,) = rows(before, after, "rate")
    assert (row.pushed_per_s, row.delivered_per_s, row.acked_per_s) == (100, 5, 0.5)
    assert (row.ready, row.in_flight, row.delayed, row.waiting_pops) == (7, 1, 2, 4)


def test_a_restart_or_a_new_queue_counts_from_zero() -> None:
    before = sample(0, stats("a", pushed=1000))
    after = sample(1, stats("a", pushed=30), stats("new", pushed=20))
    assert [row.pushed_per_s for row in rows(before, after, "name")] == [30, 20]


@pytest.mark.parametrize(
    ("order", "names"),
    [("rate", "bac"), ("ready", "cab"), ("oldest", "acb"), ("name", "abc")],
)
def test_the_order(order: str, names: str) -> None:
    after = sample(
        1,
        stats("a", pushed=10, ready=2, oldest_ms=9),
        stats("b", acked=50, ready=1),
        stats("c", ready=3, oldest_ms=5),
    )
    assert "".join(row.name for row in rows(sample(0), after, order)) == names
    assert order in ORDERS


def drawn(before: Sample, after: Sample, height: int) -> str:
    console = Console(file=StringIO(), width=120)
    console.print(top.screen(before, after, "name", height))
    text = console.file
    assert isinstance(text, StringIO)
    return text.getvalue()


def test_the_screen_shows_node_and_queues() -> None:
    text = drawn(sample(0), sample(2, stats("orders", pushed=5, oldest_ms=65_000)), 40)
    assert "node n1  up 1 min 1 s" in text
    assert "127.0.0.1:7700  active" in text
    assert "orders" in text
    assert "2.5" in text
    assert "1 min 5 s" in text


def test_the_screen_never_grows_past_the_terminal() -> None:
    many = [stats(f"q{n:03}") for n in range(100)]
    text = drawn(sample(0), sample(1, *many), 24)
    assert len(text.splitlines()) <= 24
    assert "more" in text


def test_a_node_that_is_not_heard_of_is_marked() -> None:
    lost = wire.NodeInfo("n2", "127.0.0.1:1", "127.0.0.1:2", "active", alive=False)
    assert "not alive" in drawn(sample(0), sample(1, node=lost), 24)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (0.33, "0.3"), (9.96, "10.0"), (1234, "1,234")]
)
def test_a_rate_reads_well(number: float, text: str) -> None:
    assert top.rate(number) == text

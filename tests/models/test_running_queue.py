"""Figures of a running queue become the model that they came from, and advice follows from it."""

from __future__ import annotations

import pytest

from weft.errors import WeftError
from weft.models.johnson import ProducerType, QueueModel
from weft.models.johnson_sim import QueueRun, simulate
from weft.models.running_queue import QueueFigures, advise, predict, trials

NODES, MESSAGE_MS = 4, 1.0


def run_of(model: QueueModel) -> QueueRun:
    return simulate(model, 60_000, seed=3, returning=True)


def figures_of(model: QueueModel, lot: int = 1) -> QueueFigures:
    """The counters of nodes that behave exactly as the simulator says."""
    run, walks = run_of(model), 100_000
    interval_ms = walks / run.throughput
    probes = round(run.probes * walks)
    empty = round(run.empty * probes)
    blocked_ms = walks * (run.wait - 2 * run.probes * MESSAGE_MS)
    blocked = walks - (probes - empty)
    idle = 1 - run.producer_utilization
    return QueueFigures(
        interval_ms, walks * lot, walks * lot, probes, empty, blocked, blocked_ms,
        idle * NODES * interval_ms, NODES, model.consumers, NODES, MESSAGE_MS,
        (model.producers[0].buffers - 1) * lot, model.max_hops,
    )  # fmt: skip


def model_of(consumers: int, max_hops: int = 3, buffers: int = 6) -> QueueModel:
    producers = (ProducerType(NODES, 0.01, 1.0, buffers),)
    return QueueModel(producers, consumers, 0.01, max_hops, MESSAGE_MS)


@pytest.mark.parametrize("lot", [1, 10])
@pytest.mark.parametrize("consumers", [2, 4, 8])
def test_the_model_is_found_again(consumers: int, lot: int) -> None:
    model = model_of(consumers)
    found = figures_of(model, lot).model()
    assert found.consume_rate == pytest.approx(model.consume_rate, rel=0.05)
    assert found.producers[0].rate == pytest.approx(model.producers[0].rate, rel=0.05)
    assert found.producers[0].buffers == model.producers[0].buffers
    assert found.load == pytest.approx(model.load, rel=0.1)
    again, before = predict(found, 60_000, 5), run_of(model)
    assert again.probes == pytest.approx(before.probes, rel=0.05)
    assert again.throughput == pytest.approx(before.throughput, rel=0.05)


def test_more_hops_are_advised_where_one_blocks() -> None:
    """At load 1 with one hop, consumers wait at empty nodes while others have messages."""
    advice = advise(figures_of(model_of(4, max_hops=1)), 20_000, 1)
    assert advice.max_hops > 1
    assert advice.throughput_gain > 0.02
    assert advice.then.throughput == pytest.approx(
        (1 + advice.throughput_gain) * advice.now.throughput
    )


def test_no_more_is_advised_than_helps() -> None:
    """At half load nearly every probe finds an object: fewest hops, smallest buffer that does."""
    figures = figures_of(model_of(2, max_hops=8, buffers=101))
    advice = advise(figures, 20_000, 1)
    assert advice.max_hops <= 3
    assert advice.buffers < figures.buffers


def test_every_trial_is_reported() -> None:
    done: list[int] = []
    figures = figures_of(model_of(4))
    advise(figures, 1_000, 1, done.append)
    assert done[-1] == trials(figures)


def test_an_idle_queue_is_refused() -> None:
    idle = QueueFigures(1000.0, 0, 0, 5, 5, 5, 900.0, 0.0, 4, 4, 4, 1.0, 5, 3)
    with pytest.raises(WeftError, match="moved too little"):
        idle.model()

"""The simulator of paper 1: deterministic, and in agreement with the model where it should be."""

from __future__ import annotations

import pytest

from weft.errors import InvalidArgument
from weft.models.johnson import ProducerType, QueueModel, homogeneous, solve
from weft.models.johnson_sim import simulate


def test_a_seed_is_a_run() -> None:
    model = homogeneous(20, 20)
    first = simulate(model, 5_000, seed=7)
    assert simulate(model, 5_000, seed=7) == first
    assert simulate(model, 5_000, seed=8) != first


def test_large_clusters_agree_with_the_model() -> None:
    model = homogeneous(1000, 1000, max_hops=3)
    run, found = simulate(model, 400_000, seed=3), solve(model)
    assert run.wait == pytest.approx(found.wait, rel=0.025)
    assert run.probes == pytest.approx(found.probes, rel=0.01)
    assert run.producer_utilization == pytest.approx(found.producer_utilization, rel=0.01)


@pytest.mark.parametrize(("consumers", "hops"), [(50, 3), (200, 3), (200, 1)])
def test_away_from_load_1_a_hundred_producers_agree(consumers: int, hops: int) -> None:
    model = homogeneous(100, consumers, max_hops=hops, finite=True)
    run, found = simulate(model, 60_000, seed=2), solve(model)
    assert run.wait == pytest.approx(found.wait, rel=0.03)
    assert run.throughput == pytest.approx(found.throughput, rel=0.02)


def test_near_load_1_small_clusters_wait_longer_than_the_model_says() -> None:
    model = homogeneous(3, 3, max_hops=3)
    assert simulate(model, 60_000, seed=1).wait > 1.6 * solve(model).wait


def test_requests_should_follow_production() -> None:
    """Section 4.2.1: 10 % of the producers make 50 % of the objects."""

    def wait(fraction: float) -> float:
        kinds = (ProducerType(10, 0.09, fraction), ProducerType(90, 0.01, 1 - fraction))
        model = QueueModel(kinds, 180, 0.01)
        run = simulate(model, 40_000, seed=4)
        assert run.wait == pytest.approx(solve(model).wait, rel=0.25)
        return run.wait

    assert wait(0.5) < wait(0.2)


def test_a_consumer_may_reach_few_producers() -> None:
    wide = simulate(homogeneous(100, 100), 40_000, seed=5)
    narrow = simulate(homogeneous(100, 100, reach=4), 40_000, seed=5)
    assert narrow.wait > wide.wait
    with pytest.raises(InvalidArgument, match="reach needs equal producers"):
        simulate(homogeneous(100, 50, reach=4), 1_000)


def test_uniform_production_lowers_the_load() -> None:
    nominal, uniform = (simulate(homogeneous(50, 50), 30_000, uniform=u) for u in (False, True))
    assert uniform.wait < nominal.wait
    assert uniform.producer_utilization == pytest.approx(0.73, abs=0.03)


def test_progress_is_reported() -> None:
    reports: list[int] = []
    simulate(homogeneous(10, 10), 1_000, progress=reports.append)
    assert reports == sorted(reports)
    assert reports[-1] == 1_000


def test_too_few_objects_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="objects must be a whole number from 200"):
        simulate(homogeneous(10, 10), 10)

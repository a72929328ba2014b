"""The model of paper 1 against solutions that share no code with it."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from weft.errors import InvalidArgument
from weft.models.johnson import (
    ProducerType,
    QueueModel,
    _State,
    homogeneous,
    log_geometric,
    logistic,
    solve,
)
from weft.models.johnson_access import AccessModel, ConsumerType, solve_access

Vector = NDArray[np.float64]
LOADS = (25, 50, 100, 150, 200, 400)


def stationary(up: float, down: Vector) -> Vector:
    """p(s) from the lowest state to f by linear algebra: the null vector of the generator.

    `down[k]` is the rate of the transition from the state k+1 to the state k, counted from below.
    """
    states = len(down) + 1
    generator = np.zeros((states, states))
    for at in range(states - 1):
        generator[at, at + 1] += up  # state at -> at + 1
        generator[at + 1, at] += down[at]
    generator -= np.diag(generator.sum(axis=1))
    system = generator.T.copy()
    system[-1] = 1.0
    right = np.zeros(states)
    right[-1] = 1.0
    return np.asarray(np.linalg.solve(system, right), dtype=np.float64)


def independent(model: QueueModel) -> tuple[float, float, float]:
    """W, p_mt and p(f) of a homogeneous queue, by damped iteration on the generator matrix."""
    (kind,) = model.producers
    consumers, hops, buffers = model.consumers, model.max_hops, kind.buffers
    rate, empty = kind.rate / 2, 0.5
    for _ in range(20_000):
        probes = sum(empty**k for k in range(hops))
        last = empty ** (hops - 1) / probes
        # From state -M up to f: the rates of the transitions down.
        down = np.array([last * rate] * consumers + [rate] * buffers)
        p = stationary(kind.rate, down)
        seen = p[1 : consumers + 1]  # a request finds -M+1..0; at -M no consumer is left to ask
        arrivals = seen.sum() + p[consumers + 1 :].sum()
        found = seen.sum() / arrivals
        ranks = np.arange(consumers, 0, -1)
        blocked = (ranks * seen).sum() / seen.sum() / kind.rate
        wait = (probes + 1) * model.message_time + found**hops * blocked
        asked = consumers / kind.count * probes / (1 / model.consume_rate + wait)
        new_rate = math.exp(0.9 * math.log(rate) + 0.1 * math.log(asked / arrivals))
        new_empty = 0.9 * empty + 0.1 * found
        moved = abs(new_rate / rate - 1) + abs(new_empty - empty)
        rate, empty = new_rate, new_empty
        if moved < 1e-12:
            return float(wait), float(found), float(p[-1])
    raise AssertionError("the independent iteration does not settle")


@pytest.mark.parametrize(
    ("producers", "consumers", "hops"),
    [(20, 10, 3), (20, 20, 3), (20, 20, 5), (10, 20, 3), (3, 3, 2)],
)
def test_the_solution_is_that_of_the_chain(producers: int, consumers: int, hops: int) -> None:
    model = homogeneous(producers, consumers, max_hops=hops)
    found = solve(model)
    wait, empty, full = independent(model)
    assert found.wait == pytest.approx(wait, rel=1e-6)
    assert found.empty == pytest.approx(empty, rel=1e-6)
    assert found.full[0] == pytest.approx(full, rel=1e-6)


@pytest.mark.parametrize("finite", [False, True])
@pytest.mark.parametrize("hops", [1, 2, 3, 10])
def test_flow_is_conserved(hops: int, finite: bool) -> None:
    for consumers in LOADS:
        found = solve(homogeneous(100, consumers, max_hops=hops, finite=finite))
        assert found.throughput == pytest.approx(found.throughput_produced, rel=1e-12)


@pytest.mark.parametrize("hops", [1, 3, 10])
def test_flow_is_conserved_for_unequal_producers(hops: int) -> None:
    """Also where fast producers get most requests, and nearly all consumers block there."""
    for consumers in LOADS:
        for fraction in (0.02, 0.3, 0.9, 0.97):
            kinds = (ProducerType(10, 0.05, fraction), ProducerType(90, 0.005, 1 - fraction, 2))
            found = solve(QueueModel(kinds, consumers, 0.01, hops))
            assert found.throughput == pytest.approx(found.throughput_produced, rel=1e-12)


def test_as_printed_flow_is_not_conserved() -> None:
    """Errata: (1) without the reply's hop gives another rate than the chain."""
    found = solve(homogeneous(100, 100, max_hops=3))
    printed = 100 / (100 + found.probes + found.blocked)
    assert abs(printed / found.throughput_produced - 1) > 0.005


def test_there_is_one_root() -> None:
    for consumers in LOADS:
        for hops in (1, 3, 10):
            model = homogeneous(100, consumers, max_hops=hops)
            signs = []
            for step in range(-40, 37):
                state = _State.at(model, model.producers[0], logistic(step / 2))
                signs.append(state.probe_rate > state.requested)
            assert sum(a != b for a, b in pairwise(signs)) == 1


def test_equal_types_are_one_type() -> None:
    kinds = (ProducerType(30, 0.01, 0.3), ProducerType(70, 0.01, 0.7))
    assert solve(QueueModel(kinds, 100, 0.01)).wait == pytest.approx(
        solve(homogeneous(100, 100, finite=True)).wait, rel=1e-10
    )


@pytest.mark.parametrize("consumers", LOADS)
def test_equal_consumers_are_the_finite_model(consumers: int) -> None:
    """Section 4.3 with one type of consumers is section 4.1 with (3)."""
    one = solve(homogeneous(100, consumers, max_hops=3, finite=True))
    two = solve_access(
        AccessModel((ProducerType(100, 0.01, 1.0),), (ConsumerType(consumers, 0.01, (1.0,)),), 3)
    )
    assert two.wait[0] == pytest.approx(one.wait, rel=1e-10)
    assert two.probes[0] == pytest.approx(one.probes, rel=1e-10)


@pytest.mark.parametrize("hops", [1, 3, 10])
def test_different_consumers_conserve_flow(hops: int) -> None:
    producers = (ProducerType(50, 0.02, 1.0), ProducerType(50, 0.01, 1.0))
    for half in (5, 25, 50, 100):
        some = ConsumerType(half, 0.01, (0.7, 0.3))
        others = ConsumerType(half, 0.02, (0.2, 0.8))
        found = solve_access(AccessModel(producers, (some, others), hops))
        assert found.throughput == pytest.approx(found.throughput_produced, rel=1e-12)


def test_a_producer_that_no_consumer_probes_stays_full() -> None:
    kinds = (ProducerType(50, 0.01, 1.0), ProducerType(50, 0.01, 0.0))
    found = solve(QueueModel(kinds, 50, 0.01))
    assert found.full[1] == 1.0
    assert found.throughput == pytest.approx(found.throughput_produced, rel=1e-12)
    other = solve_access(AccessModel(kinds, (ConsumerType(50, 0.01, (1.0, 0.0)),)))
    assert other.full[1] == 1.0
    assert other.throughput == pytest.approx(other.throughput_produced, rel=1e-12)


@pytest.mark.parametrize("offset", [0.0, 1e-15, -1e-15, 1e-9, -1e-9, 1e-3, -1e-3, 1.0, -1.0])
def test_the_sums_are_exact_at_the_poles(offset: float) -> None:
    direct = math.log(math.fsum(math.exp(k * offset) for k in range(101)))
    assert log_geometric(offset, 100) == pytest.approx(direct, rel=1e-13)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"max_hops": 0}, "max_hops must be a whole number from 1"),
        ({"buffers": 0}, "buffers must be a whole number from 1"),
        ({"produce_rate": -1.0}, "production rate must be a positive number"),
        ({"consume_rate": math.nan}, "consumption rate must be a positive number"),
        ({"message_time": -1.0}, "message time must be 0 or more"),
        ({"reach": 101}, "reach must be a whole number from 1 to 100"),
    ],
)
def test_bad_parameters_are_refused(change: dict[str, float], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        homogeneous(100, 100, **change)  # type: ignore[arg-type]


def test_fractions_must_be_whole() -> None:
    with pytest.raises(InvalidArgument, match=r"sum to 0\.5"):
        QueueModel((ProducerType(1, 1.0, 0.5),), 1, 1.0)

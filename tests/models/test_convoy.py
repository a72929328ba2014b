"""The convoy effect: formulas against other computations, and the algorithms in virtual time."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import pytest

from weft.errors import InvalidArgument
from weft.models import convoy
from weft.models.skeen import MulticastModel, conflict_of, has_cycle, simulate

BASE = MulticastModel(rate=50.0)


def integral(mean: float, steps: int = 20_000) -> float:
    """1 - e^-l (1 + Ein(l)), with Ein(l) the integral of (e^t - 1)/t, by Simpson's rule."""
    if mean == 0:
        return 0.0
    width = mean / steps

    def f(t: float) -> float:
        return math.expm1(t) / t if t else 1.0

    total = f(0) + f(mean)
    total += sum((4 if k % 2 else 2) * f(k * width) for k in range(1, steps))
    return 1 - math.exp(-mean) * (1 + total * width / 3)


@pytest.mark.parametrize("mean", [0.0, 0.01, 0.5, 2.0, 10.0, 40.0])
def test_equation_2_is_the_exponential_integral(mean: float) -> None:
    assert convoy.queued_part(mean) == pytest.approx(integral(mean), rel=1e-6, abs=1e-12)


def test_equation_2_as_printed_is_far_off() -> None:
    """log(n) for log(lambda), with n = 4."""
    mean = 0.01
    gamma = 0.5772156649015329
    exponential_integral = gamma + math.log(mean) + mean + mean**2 / 4
    printed = 200 * (1 - math.exp(-mean) * (1 + exponential_integral - math.log(4) - gamma))
    assert printed > 900
    assert convoy.convoy_ms(0.05, 100.0, 1.0) == pytest.approx(0.00497, abs=2e-5)


def test_equation_2_tends_to_the_interval() -> None:
    assert convoy.queued_part(1e6) == pytest.approx(1.0, abs=2e-6)
    assert convoy.queued_part(1e13) == 1.0


@pytest.mark.parametrize(("n", "s"), [(4, 2), (6, 2), (6, 3), (5, 3), (3, 1), (1, 1)])
def test_equation_3_counts_pairs_of_sets(n: int, s: int) -> None:
    sets = [set(each) for each in combinations(range(n), s)]
    shared = sum(bool(one & two) for one in sets for two in sets)
    assert convoy.conflict_probability(n, s) == pytest.approx(shared / len(sets) ** 2)


def test_equation_1_is_the_stable_queue_of_the_lock() -> None:
    """The automaton of figure 1: i/d processes are in the interval, one holds, the rest queue."""
    assert convoy.lock_convoy(2.0, 6.0, 10) == 2.0 * (10 - 1 - 3)
    assert convoy.lock_convoy(2.0, 100.0, 3) == 0.0


def test_equations_4_to_6() -> None:
    ce = convoy.convoy_ms(10, 100, 0.5, batch=4)
    assert ce == pytest.approx(100 * convoy.queued_part(0.5))
    assert convoy.latency_ms(10, 100, 0.5, batch=4) == 300 + ce
    alone = convoy.latency_ms(10, 100, 0.5, batch=4, coordinator=False)
    assert alone == pytest.approx(200 + 50 * convoy.queued_part(0.25))
    assert convoy.convoy_ms(10, 100, 0.5, commute=0.75) == pytest.approx(
        0.25 * convoy.convoy_ms(10, 100, 0.5)
    )


# --- the algorithms --------------------------------------------------------------------------


@pytest.mark.parametrize("delays", ["constant", "exponential"])
@pytest.mark.parametrize("clock", ["counter", "hybrid"])
@pytest.mark.parametrize("coordinator", [True, False])
def test_every_message_is_delivered_in_one_order(
    delays: str, clock: str, coordinator: bool
) -> None:
    model = replace(BASE, delays=delays, clock=clock, coordinator=coordinator, skew_ms=50.0)
    run = simulate(model, 400)
    assert run.deliveries == 800
    assert len({(at, m) for at, order in enumerate(run.orders) for m in order}) == 800
    assert not has_cycle(run)


@pytest.mark.parametrize("seed", range(4))
def test_without_line_24_deliveries_form_cycles(seed: int) -> None:
    assert has_cycle(simulate(replace(BASE, advance=False), 2_000, seed=seed))
    assert not has_cycle(simulate(BASE, 2_000, seed=seed))


def test_messages_that_commute_wait_for_nothing() -> None:
    run = simulate(replace(BASE, commute=1.0), 400)
    assert run.convoy_max_ms == 0
    assert run.latency_ms == 300


@pytest.mark.parametrize("delays", ["constant", "exponential"])
def test_messages_that_never_commute_are_skeens(delays: str) -> None:
    model = replace(BASE, delays=delays)
    plain, generic = simulate(model, 400), simulate(replace(model, commute=0.0), 400)
    assert plain == generic
    one_key = simulate(replace(model, keys=1), 400)
    assert plain == one_key


@pytest.mark.parametrize("change", [{"commute": 0.6}, {"keys": 3}])
def test_generic_multicast_orders_what_conflicts(change: dict[str, float]) -> None:
    model = replace(BASE, delays="exponential", **change)  # type: ignore[arg-type]
    run = simulate(model, 400, seed=5)
    relation = conflict_of(model, 5)
    assert not has_cycle(run, relation)
    assert has_cycle(run), "messages that commute are delivered in different orders"
    broken = replace(model, advance=False)
    assert any(has_cycle(simulate(broken, 400, seed=s), conflict_of(broken, s)) for s in range(5))


def test_the_part_that_commutes_is_the_part_that_does_not_wait() -> None:
    """(1 - rho) CE at low rates, not rho CE."""
    model = replace(BASE, rate=1.0, delays="exponential")
    full = simulate(model, 6_000).convoy_ms
    assert simulate(replace(model, commute=0.9), 6_000).convoy_ms < 0.2 * full


def test_physical_clocks_remove_the_convoy_at_constant_delays() -> None:
    counter = simulate(BASE, 2_000)
    hybrid = simulate(replace(BASE, clock="hybrid"), 2_000)
    skewed = simulate(replace(BASE, clock="hybrid", skew_ms=200.0), 2_000)
    assert hybrid.convoy_max_ms == 0
    assert hybrid.convoy_ms < counter.convoy_ms < skewed.convoy_ms


def test_the_formula_is_no_lower_bound() -> None:
    rate = 10.0
    formula = convoy.convoy_ms(rate, 100, convoy.conflict_probability(4, 2))
    constant = simulate(MulticastModel(rate=rate), 2_000).convoy_ms
    exponential = simulate(MulticastModel(rate=rate, delays="exponential"), 2_000).convoy_ms
    assert constant < 0.5 * formula < formula < exponential


@pytest.mark.parametrize(
    "change",
    [
        {"processes": 0},
        {"destinations": 5},
        {"rate": 0.0},
        {"delay_ms": math.nan},
        {"clock": "sundial"},
        {"commute": 1.5},
        {"commute": 0.5, "keys": 2},
        {"keys": 0},
    ],
)
def test_bad_parameters_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument):
        MulticastModel(**change)  # type: ignore[arg-type]

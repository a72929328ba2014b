"""The short variant of ``python -m tests.sim.stochastic``: the real core beside the simulator.

The bounds are wide, since few lots leave the noise of the means; the program has the narrow ones.
"""

from __future__ import annotations

import pytest

from tests.sim import stochastic


@pytest.mark.parametrize(
    ("load", "hops_off", "wait_off"), [(0.5, 0.02, 0.06), (1.0, 0.06, 0.3), (2.0, 0.04, 0.12)]
)
def test_the_core_behaves_as_the_model(load: float, hops_off: float, wait_off: float) -> None:
    core = stochastic.of_core(load, 3_000)
    model = stochastic.of_simulator(load, 60_000)
    assert abs(core.hops / model.hops - 1) < hops_off
    assert abs(core.wait / model.wait - 1) < wait_off


def test_measured_rates_beat_even_probes_by_far() -> None:
    """At 9:1, even probes find the fast producers too seldom."""
    even = stochastic.of_core(1.0, 6_000, fast=stochastic.FAST)
    measured = stochastic.of_core(1.0, 6_000, access="rates", fast=stochastic.FAST)
    assert measured.hops < even.hops
    assert measured.wait < 0.8 * even.wait


def test_a_hop_that_returns_costs_two_messages() -> None:
    """Where nobody is blocked, W is all messages: two for each hop."""
    found = stochastic.of_simulator(0.5, 20_000)
    assert found.wait == pytest.approx(2 * found.hops, rel=0.05)

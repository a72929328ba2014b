"""Skeen's algorithm over replicated logs, in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.errors import InvalidArgument
from weft.models.replicated_skeen import Connections, lone_ms, simulate_replicated
from weft.models.skeen import MulticastModel, conflict_of, has_cycle

BASE = MulticastModel(rate=50.0, delay_ms=20.0, clock="hybrid")


@pytest.mark.parametrize("delays", ["constant", "exponential"])
@pytest.mark.parametrize("destinations", [2, 3, 4])
def test_every_message_is_delivered_in_one_order(delays: str, destinations: int) -> None:
    run = simulate_replicated(replace(BASE, delays=delays, destinations=destinations), 400)
    assert run.deliveries == 400 * destinations
    assert len({(at, m) for at, order in enumerate(run.orders) for m in order}) == run.deliveries
    assert not has_cycle(run)


def test_without_line_24_deliveries_form_cycles() -> None:
    broken = replace(BASE, delays="exponential", clock="counter", advance=False)
    assert any(has_cycle(simulate_replicated(broken, 1_000, seed=seed)) for seed in range(4))


def test_conflict_keys_order_what_conflicts() -> None:
    model = replace(BASE, delays="exponential", keys=3)
    run = simulate_replicated(model, 400, seed=5)
    assert not has_cycle(run, conflict_of(model, 5))
    assert has_cycle(run), "messages that commute are delivered in different orders"


def test_messages_that_commute_wait_for_the_outbox_alone() -> None:
    run = simulate_replicated(replace(BASE, commute=1.0), 400)
    assert run.convoy_max_ms == 0
    assert run.latency_ms == run.base_ms > lone_ms(BASE)


@pytest.mark.parametrize(("destinations", "latency"), [(2, 110.0), (3, 120.0), (4, 125.0)])
def test_one_message_at_a_time_takes_four_and_seven_transit_times(
    destinations: int, latency: float
) -> None:
    model = replace(BASE, destinations=destinations, rate=0.001)
    assert simulate_replicated(model, 50).latency_ms == lone_ms(model) == pytest.approx(latency)


def test_the_place_of_the_second_copy_does_not_matter_at_constant_transit_times() -> None:
    ring = simulate_replicated(BASE, 400)
    assert simulate_replicated(BASE, 400, followers=[1, 2, 3, 0]) == ring
    assert simulate_replicated(BASE, 400, followers=[3, 0, 1, 2]).delivered_us == ring.delivered_us


def test_a_connection_keeps_the_order_and_has_one_frame_for_each_time() -> None:
    transits = iter([50, 10, 7, 100])
    connections = Connections(lambda: next(transits))
    assert connections.arrival(0, 1, 2) == 50
    assert connections.arrival(0, 1, 2) == 50, "the same frame"
    assert connections.arrival(20, 1, 2) == 50, "not before the first one"
    assert connections.arrival(20, 2, 1) == 27, "another connection"
    assert connections.arrival(60, 1, 2) == 160


@pytest.mark.parametrize(
    ("change", "messages", "followers"),
    [
        ({"coordinator": False}, 9, None),
        ({"destinations": 1}, 9, None),
        ({}, 0, None),
        ({}, 9, [1, 2, 3]),
        ({}, 9, [0, 2, 3, 1]),
        ({}, 9, [1, 2, 3, 4]),
    ],
)
def test_bad_parameters_are_refused(
    change: dict[str, int], messages: int, followers: list[int] | None
) -> None:
    model = replace(BASE, **change)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        simulate_replicated(model, messages, followers=followers)

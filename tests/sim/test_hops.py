"""Fabriq's figures: hops within 2 % of the corrected model, and messages spread evenly."""

from __future__ import annotations

import pytest

from .hops import Server, hops, measure, model


def test_hops_of_64_servers_are_as_the_model_says() -> None:
    row, counts = measure(64, 64_000)
    assert sum(counts) == 64_000
    assert row.model == pytest.approx(0.9854, abs=1e-4)
    assert row.measured == pytest.approx(row.model, rel=0.02)
    assert row.off < 0.14


def test_the_search_of_1024_servers_costs_the_same() -> None:
    row, _ = measure(1024, 64_000)
    assert row.measured == pytest.approx(row.model, rel=0.02)


def test_one_server_takes_no_hop() -> None:
    server = Server("a")
    for number in range(50):
        server.push(number, 0)
    assert hops({"a": server}, "a") <= 0.1
    assert model(1, 50) == 0

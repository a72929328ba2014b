"""Fabriq's hops per pop: the formula, its sum, and simulated pops."""

from __future__ import annotations

import pytest

from weft.errors import InvalidArgument
from weft.models.fabriq import average_hops, expected_imbalance, printed_hops, simulate


def total(servers: int, messages: int) -> float:
    """The total cost that section 4.3 prints, summed term by term."""
    if messages > servers:
        each = messages / servers
        searches = sum((3 * i + (servers - i)) / servers for i in range(1, servers))
        return (each - 1) * (servers - 1) + searches
    return sum(
        ((servers + i - (messages + 1)) * 3 + (messages + 1 - i)) / servers
        for i in range(1, messages + 1)
    )


@pytest.mark.parametrize(("s", "m"), [(64, 64_000), (16, 1_000), (3, 4), (64, 40), (10, 10)])
def test_the_average_is_the_sum_of_the_printed_costs(s: int, m: int) -> None:
    assert average_hops(s, m) == pytest.approx(total(s, m) / m, rel=1e-12)


def test_the_printed_average_is_not() -> None:
    assert average_hops(64, 64_000) == pytest.approx(0.985359, abs=1e-6)
    assert printed_hops(64, 1_000) != pytest.approx(total(64, 1_000) / 1_000, rel=0.01)


def test_the_papers_experiment() -> None:
    """The measured 1.053 is that of fresh random probes, not of the last known server."""
    known = simulate(64, 64_000, hashed=False)
    assert known.average == pytest.approx(average_hops(64, 64_000), abs=5e-4)
    again = simulate(64, 64_000, hashed=False, procedure="last-known-random")
    assert again.average == pytest.approx(known.average, abs=3e-4)
    fresh = simulate(64, 64_000, procedure="fresh-random")
    assert fresh.average == pytest.approx(1.053, abs=0.01)


def test_few_messages() -> None:
    """Without a local message, as the formula assumes, an average over seeds."""
    runs = [simulate(64, 40, hashed=False, seed=seed) for seed in range(300)]
    # The even placement puts one message on the local server: 0 hops instead of the formula's last.
    mean = sum(run.average for run in runs) / len(runs)
    assert mean == pytest.approx(average_hops(64, 40), abs=0.08)


def test_ideal_hashing_is_within_14_percent() -> None:
    found = [simulate(64, 64_000, seed=seed).imbalance for seed in range(8)]
    assert max(found) < 0.14
    assert sum(found) / len(found) == pytest.approx(0.08, abs=0.015)
    assert expected_imbalance(64, 64_000) == pytest.approx(0.091, abs=0.001)
    assert expected_imbalance(1, 10) == 0


def test_every_pop_is_counted_and_seeds_repeat() -> None:
    run = simulate(8, 500, seed=3)
    assert run.local + run.direct + run.searched == 500
    assert simulate(8, 500, seed=3) == run


@pytest.mark.parametrize(
    ("s", "m", "how"), [(0, 1, "last-known"), (1, 0, "last-known"), (2, 2, "x")]
)
def test_bad_parameters_are_refused(s: int, m: int, how: str) -> None:
    with pytest.raises(InvalidArgument):
        simulate(s, m, procedure=how)

"""Rounds of request lines that end early, so that a quiet queue waits for one round at most."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.unit.test_request_lines import held, lines_of, run_round
from weft.server.core import request_lines
from weft.server.core.held_request import HeldRequest
from weft.server.core.request_lines import EARLY_PART, PERIOD_US, RequestLines


def noisy_lines(shares: dict[str, int] | None = None) -> RequestLines:
    """Lines with many requests of one queue, after some rounds."""
    lines = lines_of(shares)
    for number in range(2000):
        lines.add(held("noisy", number))
    for _ in range(5):
        run_round(lines, 100.0)
    return lines


def queues_of(taken: list[HeldRequest]) -> list[str]:
    return [item.request.queue for item in taken]  # type: ignore[attr-defined]


def test_a_round_ends_early_once_a_quiet_queue_is_served() -> None:
    lines = noisy_lines()
    for queue in ("quiet", "other"):
        lines.add(held(queue, 1))
    taken = queues_of(run_round(lines, 100.0))
    assert Counter(taken) == {"quiet": 1, "other": 1, "noisy": 1}
    assert len(run_round(lines, 100.0)) >= 20, "the rest of the period, for one queue"
    for number in range(3):
        lines.add(held("quiet", number))
    taken = queues_of(run_round(lines, 100.0))
    assert taken.count("quiet") == 3
    assert taken.count("noisy") <= 3


def test_a_queue_that_used_its_credit_ends_no_round() -> None:
    lines = noisy_lines()
    for number in range(10):  # 1,000 of 1,250 us
        lines.add(held("busy", number))
    assert Counter(queues_of(run_round(lines, 100.0)))["noisy"] > 10


def test_early_ends_take_a_bounded_part_of_the_time() -> None:
    lines, early, elapsed, spent = noisy_lines(), 0, 0.0, 0.0
    for number in range(400):
        if not number % 50:
            for more in range(2000):
                lines.add(held("noisy", 10_000 * number + more))
        lines.add(held("quiet", number))
        taken = run_round(lines, 100.0, 5_000.0, 4_000.0)  # a slow disk
        assert "quiet" in queues_of(taken)
        elapsed += 100.0 * len(taken) + 5_000.0
        if len(taken) == 2:
            early += 1
            spent += 4_000.0
    assert early > 20
    assert spent < EARLY_PART * elapsed + PERIOD_US + 4_000.0


def test_the_surplus_of_a_busy_queue_ends_when_another_queue_has_work() -> None:
    """A queue alone has the whole period as its credit; then its part is half of it."""
    lines = noisy_lines()
    lines.add(held("quiet", 1))
    assert queues_of(run_round(lines, 100.0))[0] == "quiet"


def quiet_wait_us(lines: RequestLines) -> float:
    """The mean time to the end of its round, for requests of a quiet queue at random times."""
    rng = random.Random(1)
    due, now, number = 20_000.0, 0.0, 0
    waits: list[float] = []
    while len(waits) < 500:
        while lines.waiting < 200:
            number += 1
            lines.add(held("noisy", number, size=50_000))
        arrived = []
        while due <= now:
            number += 1
            lines.add(held("quiet", number))
            arrived.append(due)
            due += rng.uniform(5_000, 20_000)
        taken = run_round(lines, 50.0, 200.0 + 150.0 * len(lines._served), 200.0)
        size = sum(item.size for item in taken)
        now += 50.0 * len(taken) + 200.0 + 0.002 * size
        waits += [now - each for each in arrived]
    return sum(waits) / len(waits)


def test_a_quiet_queue_waits_for_about_half_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    early = quiet_wait_us(lines_of())
    monkeypatch.setattr(request_lines, "EARLY_PART", 0.0)
    assert early < 0.6 * quiet_wait_us(lines_of())

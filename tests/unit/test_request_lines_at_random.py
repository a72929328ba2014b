"""Request lines under random requests, cancellations, refusals, refills and costs."""

from __future__ import annotations

import random

import pytest

from tests.unit.test_request_lines import held, lines_of, run_round
from weft.server.core.request_lines import RequestLines


class RandomDriver:
    """Runs rounds; knows which requests are in the lines."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = [f"q{number}" for number in range(self.random.randrange(1, 8))]
        self.lines = lines_of(
            {name: self.random.choice([0, 0, 1, 50, 1000]) for name in self.names}
        )
        self.held: set[object] = set()
        self.number = self.now = 0

    def add(self, count: int, queue: str = "") -> None:
        for _ in range(count):
            self.number += 1
            name, size = queue or self.random.choice(self.names), self.random.choice([10, 200_000])
            peer = self.random.randrange(1, 4)
            item = held(name, self.number, size=size, peer=peer, now=self.now)
            self.lines.add(item)
            self.held.add(item.to)

    def cancel_one(self) -> None:
        if self.held:
            to = self.random.choice(sorted(self.held, key=str))
            assert self.lines.cancel(to) is not None
            self.held.remove(to)

    def run_round(self) -> int:
        lines, rng, taken = self.lines, self.random, 0
        lines.begin()
        while (item := lines.take()) is not None:
            taken += 1
            self.held.remove(item.to)
            if lines.drained and rng.random() < 0.5:
                self.add(rng.randrange(5), item.request.queue if rng.random() < 0.7 else "")  # type: ignore[attr-defined]
                lines.begin()
            lines.charge(rng.choice([1, 50, 5_000, 100_000]) * rng.random())
        end_us = rng.choice([10, 500, 20_000]) * rng.random()
        lines.finish(end_us + 1_000 * rng.random(), end_us)
        return taken


def check(lines: RequestLines) -> None:
    """Each queue with requests gets its turn: it is in the buckets once, or about to be."""
    for line in lines._lines.values():
        assert not line.items or line.listed or line in lines._new
    assert sum(line.listed for line in lines._lines.values()) == len(lines._buckets)


@pytest.mark.parametrize("seed", range(6))
def test_each_round_serves_requests_and_none_is_lost(seed: int) -> None:
    driver = RandomDriver(seed)
    lines, rng = driver.lines, driver.random
    for _ in range(50):
        driver.add(rng.randrange(60))
        if rng.random() < 0.2:
            driver.cancel_one()
        driver.now += rng.randrange(1_000, 50_000)
        driver.held -= {item.to for item in lines.overdue(driver.now)}
        if rng.random() < 0.1:
            lines.charges(driver.now)
        if not lines.waiting and rng.random() < 0.5:
            lines.rest(rng.randrange(100_000))
        waited = lines.waiting
        assert driver.run_round() or not waited
        assert lines.waiting == len(driver.held)
        check(lines)
    while lines.waiting:
        assert run_round(lines)
    assert not lines.held_bytes
    assert not lines.peers

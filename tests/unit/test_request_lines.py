"""Request lines: shares of a node's time in virtual time, bounds, refusals, and planted bugs."""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Callable

import pytest

from weft.credit_buckets import CreditBuckets
from weft.models.shares import max_min_rates
from weft.proto import wire
from weft.server.core import request_lines
from weft.server.core.held_request import HeldRequest
from weft.server.core.request_lines import (
    HELD_US_MAX,
    PEER_REQUESTS_MAX,
    PERIOD_US,
    ROUND_REQUESTS_MIN,
    RequestLines,
)
from weft.server.core.share_claims import UNCLAIMED_PER_MILLE, part


def held(
    queue: str, number: int = 0, *, size: int = 1000, peer: int = 1, now: int = 0
) -> HeldRequest:
    request = wire.Push(queue, 1, number, 1)
    return HeldRequest((queue, number), request, (b"x" * size,), None, False, peer, now)


def lines_of(shares: dict[str, int] | None = None) -> RequestLines:
    found = shares or {}
    return RequestLines(lambda queue: found.get(queue, 0), lambda queue: 0)


def run_round(
    lines: RequestLines, cost_us: float = 10.0, rest_us: float = 0.0, end_us: float = 0.0
) -> list[HeldRequest]:
    lines.begin()
    taken = []
    while (item := lines.take()) is not None:
        taken.append(item)
        lines.charge(cost_us)
    lines.finish(rest_us, end_us)
    return taken


class VirtualNode:
    """A node in virtual time: each queue always has requests waiting, up to `depth` in its line.

    A request costs its handler time, and the write of the round costs a fixed time plus a time for
    each byte, as a disk does.
    """

    def __init__(self, shares: dict[str, int], *, depth: int = 200, seed: int = 1) -> None:
        self.lines = lines_of(shares)
        self.depth = depth
        self.random = random.Random(seed)
        self.waiting = Counter[str]()
        self.used = dict.fromkeys(shares, 0.0)
        self.served = Counter[str]()
        self.order: dict[str, deque[int]] = {name: deque() for name in shares}
        self.now = 0.0
        self.number = 0

    def run(
        self,
        seconds: float,
        cost_us: dict[str, float],
        size: dict[str, int],
        *,
        fsync_us: float = 500.0,
        byte_us: float = 0.002,
        spread: float = 10.0,
    ) -> None:
        width = math.log(spread)
        while self.now < seconds * 1e6:
            for name in self.used:
                while self.waiting[name] < self.depth:
                    self.number += 1
                    bytes_in = int(size[name] * math.exp(width * (2 * self.random.random() - 1)))
                    self.lines.add(held(name, self.number, size=bytes_in, now=int(self.now)))
                    self.order[name].append(self.number)
                    self.waiting[name] += 1
            self._round(cost_us, fsync_us, byte_us, width)

    def _round(self, cost_us: dict[str, float], fsync: float, byte_us: float, width: float) -> None:
        self.lines.begin()
        sizes = Counter[str]()
        handlers = 0.0
        while (item := self.lines.take()) is not None:
            name = item.request.queue  # type: ignore[attr-defined]
            assert item.request.batch == self.order[name].popleft(), "FIFO in a line"  # type: ignore[attr-defined]
            self.waiting[name] -= 1
            self.served[name] += 1
            cost = cost_us[name] * math.exp(width * (2 * self.random.random() - 1))
            handlers += cost
            self.used[name] += cost
            sizes[name] += item.size
            self.lines.charge(cost)
        rest = fsync + byte_us * sizes.total()
        for name, each in sizes.items():
            self.used[name] += rest * each / sizes.total()
        self.lines.finish(rest)
        self.now += handlers + rest


def error_of(shares: dict[str, int], used: dict[str, float]) -> float:
    """The distance of the rates from the weighted max-min rates, as in paper 2, section IV-C."""
    capacity = sum(used.values())
    predicted = max_min_rates(list(shares.values()), [capacity] * len(shares), capacity)
    return math.dist(predicted, used.values()) / math.hypot(*used.values())


SHARES = {"half": 500, "third": 300, "fifth": 200}
COSTS = {"half": 20.0, "third": 200.0, "fifth": 60.0}
SIZES = {"half": 100, "third": 20_000, "fifth": 5_000}


def test_saturated_queues_get_their_shares_of_the_time() -> None:
    node = VirtualNode(SHARES)
    node.run(3.0, COSTS, SIZES)
    assert error_of(SHARES, node.used) < 0.05


@pytest.mark.parametrize("seed", range(3))
def test_random_shares_and_costs(seed: int) -> None:
    rng = random.Random(seed)
    shares = {f"q{n}": rng.randrange(20, 200) for n in range(8)}
    node = VirtualNode(shares, seed=seed)
    cost = {name: 20 * math.exp(rng.uniform(-1, 2)) for name in shares}
    size = {name: int(10 ** rng.uniform(2, 4.5)) for name in shares}
    node.run(4.0, cost, size)
    assert error_of(shares, node.used) < 0.10


def test_forgiven_debt_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reset as printed in the paper, planted: shares are off for requests of unequal cost."""
    monkeypatch.setattr(
        request_lines,
        "CreditBuckets",
        lambda period: CreditBuckets(period, rule=lambda credit, quantum, periods: quantum),
    )
    node = VirtualNode(SHARES)
    node.run(3.0, {"half": 20.0, "third": 4_000.0, "fifth": 60.0}, SIZES)
    assert error_of(SHARES, node.used) > 0.10
    monkeypatch.undo()
    node = VirtualNode(SHARES)
    node.run(3.0, {"half": 20.0, "third": 4_000.0, "fifth": 60.0}, SIZES)
    assert error_of(SHARES, node.used) < 0.10


def test_lost_at_the_reset_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue whose account reveals the end of a period must take part in the next round."""
    lines = lines_of()
    for number in range(3 * ROUND_REQUESTS_MIN):
        lines.add(held("a", number))
        lines.add(held("b", number))
    found = 0
    for _ in range(20):
        found += len(run_round(lines, 100.0))
    assert found == 6 * ROUND_REQUESTS_MIN
    assert not lines.waiting

    monkeypatch.setattr(CreditBuckets, "put_back", lambda buckets, account: None)
    lines = lines_of()
    for number in range(3 * ROUND_REQUESTS_MIN):
        lines.add(held("a", number))
        lines.add(held("b", number))
    found = 0
    for _ in range(20):
        found += len(run_round(lines, 100.0))
    assert found < 6 * ROUND_REQUESTS_MIN


def test_without_fifo_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that serves the youngest request first breaks the order of a queue."""

    def newest_first(lines: RequestLines, item: HeldRequest, add: Callable[..., None]) -> None:
        add(lines, item)
        line = lines._active[item.request.queue]  # type: ignore[attr-defined]
        line.items.rotate(1)

    add = RequestLines.add
    monkeypatch.setattr(RequestLines, "add", lambda lines, item: newest_first(lines, item, add))
    node = VirtualNode(SHARES)
    with pytest.raises(AssertionError, match="FIFO in a line"):
        node.run(1.0, COSTS, SIZES)


def test_a_quiet_queue_is_served_in_the_round_of_its_arrival() -> None:
    lines = lines_of()
    for number in range(1000):
        lines.add(held("noisy", number))
    run_round(lines, 100.0, 5_000)
    for number in range(10):
        lines.add(held("quiet", number))
        assert ("quiet", number) in [item.to for item in run_round(lines, 100.0, 5_000)]


def test_a_reset_ends_the_round_although_corrections_are_due() -> None:
    """The account that reveals the reset may owe a correction, which it pays first."""
    lines = lines_of()
    for number in range(500):
        lines.add(held("a", number, size=10_000))
        lines.add(held("b", number, size=10_000))
    for _ in range(10):
        taken = run_round(lines, 40.0, 400.0)
        assert len(taken) <= ROUND_REQUESTS_MIN + PERIOD_US / 40


def test_idle_capacity_goes_to_the_queue_that_wants_it() -> None:
    lines = lines_of({"small": 1, "large": 999})
    for number in range(1000):
        lines.add(held("small", number))
    rounds = 0
    while lines.waiting:
        assert run_round(lines, 100.0), "a round with requests serves one at least"
        rounds += 1
    # A round with one queue lasts a period.
    assert rounds <= 1000 * 100 / PERIOD_US + 1


def test_the_reset_ends_the_round() -> None:
    lines = lines_of()
    for number in range(500):
        lines.add(held("a", number))
        lines.add(held("b", number))
    taken = run_round(lines, 500.0)
    # The first reset after a period of handlers' time: 10 requests of 500 us, and one period more.
    assert PERIOD_US / 500 <= len(taken) <= 2 * PERIOD_US / 500 + 2


def test_a_slow_disk_does_not_shrink_the_group_commit() -> None:
    lines = lines_of()
    for number in range(2000):
        lines.add(held("a", number))
        lines.add(held("b", number))
    for _ in range(20):
        assert len(run_round(lines, 10.0, rest_us=50_000)) >= ROUND_REQUESTS_MIN


def test_parts_of_claims() -> None:
    assert part(300, 300, 1) == pytest.approx(0.3)
    assert part(0, 300, 1) == pytest.approx(0.7)
    assert part(0, 300, 7) == pytest.approx(0.1)
    assert part(0, 0, 4) == pytest.approx(0.25)
    # No queue without a claim has work: the claims are scaled to the whole.
    assert part(300, 600, 0) == pytest.approx(0.5)
    # Claims above the whole are scaled down, and leave something to the others.
    claimed = 3 * part(900, 2700, 2)
    assert claimed == pytest.approx(1 - UNCLAIMED_PER_MILLE / 1000)
    assert claimed + 2 * part(0, 2700, 2) == pytest.approx(1)


def test_a_request_is_refused_before_the_client_gives_the_node_up() -> None:
    lines = lines_of()
    lines.add(held("a", 1, now=0))
    lines.add(held("a", 2, now=HELD_US_MAX // 2))
    assert lines.overdue(HELD_US_MAX - 1) == []
    late = lines.overdue(HELD_US_MAX + 50_000)
    assert [item.to for item in late] == [("a", 1)]
    assert lines.refused == 1
    assert [item.to for item in run_round(lines)] == [("a", 2)]
    assert not lines.waiting
    assert not lines.held_bytes


def test_a_cancelled_request_does_not_run() -> None:
    lines = lines_of()
    for number in range(3):
        lines.add(held("a", number))
    lines.add(HeldRequest("pop", wire.Pop("a", 1), (), None, True, 2, 0))
    assert lines.cancel(("a", 1)) is not None
    assert lines.cancel(("a", 1)) is None
    assert lines.cancel(("a", 0), wire.Pop) is None, "only a pop stops waiting"
    assert lines.cancel("pop", wire.Pop) is not None
    assert [item.to for item in run_round(lines)] == [("a", 0), ("a", 2)]


def test_cancelling_the_last_request_of_a_listed_queue() -> None:
    lines = lines_of()
    for number in range(100):
        lines.add(held("a", number))
        lines.add(held("b", number))
    run_round(lines, 1000.0)
    for number in range(100):
        lines.cancel(("b", number))
    left = lines.waiting
    served = 0
    while lines.waiting:
        served += len(run_round(lines, 1000.0))
    assert served == left
    lines.add(held("b", 200))
    assert [item.to for item in run_round(lines)] == [("b", 200)]


def test_bounds_of_a_connection() -> None:
    lines = lines_of()
    for number in range(PEER_REQUESTS_MAX):
        assert not lines.is_crowded(7)
        lines.add(held("a", number, peer=7))
    assert lines.is_crowded(7)
    assert not lines.is_crowded(8)
    for number in range(PEER_REQUESTS_MAX // 2):
        assert not lines.has_room(7)
        lines.cancel(("a", number))
    assert lines.has_room(7)
    large = lines_of()
    large.add(held("a", 1, size=request_lines.PEER_BYTES_MAX, peer=7))
    assert large.is_crowded(7)


def test_all_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_lines, "HELD_BYTES_MAX", 10_000)
    lines = lines_of()
    for peer in range(1, 20):
        lines.add(held("a", peer, peer=peer))
    assert lines.is_crowded(1)
    assert not lines.is_crowded(99), "a connection without held requests is read"
    assert not lines.has_room(1)
    while lines.waiting:
        run_round(lines)
    assert all(lines.has_room(peer) for peer in range(1, 20))


def test_charges_are_reported_and_forgotten() -> None:
    lines = lines_of({"a": 300})
    for number in range(64):
        lines.add(held("a", number))
        lines.add(held("b", number))
    while lines.waiting:
        run_round(lines, 50.0, 1000.0)
    first = {each.queue: each for each in lines.charges(1_000_000)}
    total = first["a"].total_us
    assert first["a"].used_us + first["b"].used_us == pytest.approx(total, abs=2)
    assert total > 6400 * 0.7
    for second in range(2, 200):
        last = lines.charges(second * 1_000_000)
    assert last == []


def test_a_stopping_node_empties_all_lines() -> None:
    lines = lines_of()
    for number in range(500):
        lines.add(held("a", number))
        lines.add(held("b", number))
    lines.begin()
    taken = 0
    while lines.take(all_of_them=True) is not None:
        taken += 1
        lines.charge(10_000.0)
    lines.finish(0.0)
    assert taken == 1000
    assert not lines.waiting


def test_bytes_out_are_charged() -> None:
    """Pops cost what they return: the queue that lends more pays more of the round."""
    lent = Counter[str]()
    lines = RequestLines(lambda queue: 0, lambda queue: lent[queue])
    for number in range(10):
        for queue in ("bulky", "small"):
            pop = wire.Pop(queue, 1)
            lines.add(HeldRequest((queue, number), pop, (), None, False, 1, 0))
    lines.begin()
    while (item := lines.take()) is not None:
        lent[item.request.queue] += 1_000_000 if item.request.queue == "bulky" else 100  # type: ignore[attr-defined]
        lines.charge(1.0)
    lines.finish(10_000.0)
    used = {each.queue: each.used_us for each in lines.charges(0)}
    assert used["bulky"] > 50 * used["small"]

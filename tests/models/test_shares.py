"""Shares by formula and by scheduler, and planted bugs of the bucket queue."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.credit_buckets import Account, CreditBuckets, renewed
from weft.errors import InvalidArgument
from weft.models.shares import (
    RULES,
    Rule,
    TaskLoad,
    forgiven,
    max_min_rates,
    normalised,
    random_tasks,
    simulate,
)

#: Section II: T0 sends less than its share, T1 and T2 divide the rest by 3 to 2.
EXAMPLE = [TaskLoad(0.5, 4000, 1e-4), TaskLoad(0.3, 6000, 1e-4), TaskLoad(0.2, 5000, 1e-4)]


def filled(shares: list[float], offered: list[float], capacity: float) -> list[float]:
    """Weighted max-min by progressive filling: an algorithm that knows nothing of the formula."""
    rates = [0.0] * len(shares)
    open_ = {at for at in range(len(shares)) if shares[at] > 0 and offered[at] > 0}
    left = capacity
    while open_ and left > 1e-12 * capacity:
        total = sum(shares[at] for at in open_)
        step = min(min((offered[at] - rates[at]) / shares[at] for at in open_), left / total)
        for at in open_:
            rates[at] += step * shares[at]
        left -= step * total
        open_ = {at for at in open_ if offered[at] - rates[at] > 1e-12 * offered[at]}
    return rates


# --- the formula -----------------------------------------------------------------------------


def test_the_papers_example() -> None:
    assert max_min_rates([0.5, 0.3, 0.2], [4000, 6000, 5000], 10_000) == [4000, 3600, 2400]


def test_shares_are_normalised_and_zeros_get_nothing() -> None:
    assert max_min_rates([5, 3, 2], [4000, 6000, 5000], 10_000) == [4000, 3600, 2400]
    assert max_min_rates([1, 0, 1], [10, 10, 0], 5) == [5, 0, 0]
    assert max_min_rates([0, 1], [10, 10], 30) == [0, 10]


weights = st.floats(0.01, 1000) | st.just(0.0)
tasks_of = st.lists(st.tuples(weights, weights), min_size=1, max_size=8).filter(
    lambda tasks: sum(share for share, _ in tasks) > 0
)


@given(tasks_of, st.floats(0.1, 5000))
def test_the_formula_is_progressive_filling(
    tasks: list[tuple[float, float]], capacity: float
) -> None:
    shares, offered = [list(each) for each in zip(*tasks, strict=True)]
    found = max_min_rates(shares, offered, capacity)
    assert found == pytest.approx(filled(shares, offered, capacity), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("bad", [[], [-1.0], [float("nan")], [0.0]])
def test_bad_shares_are_refused(bad: list[float]) -> None:
    with pytest.raises(InvalidArgument, match="share"):
        normalised(bad)


# --- the bucket queue ------------------------------------------------------------------------


def test_a_take_scans_11_counters_on_average_and_20_at_worst() -> None:
    scans = []
    for level in range(100):
        buckets: CreditBuckets[int] = CreditBuckets(99.0)
        account = Account(level, 99.0)
        account.credit = float(level)
        assert buckets.level(account.credit) == level
        buckets.put(account)
        buckets._remove()
        scans.append(buckets.comparisons)
    assert sum(scans) / len(scans) == 11
    assert max(scans) == 20


def test_most_credit_first_and_first_come_in_a_bucket() -> None:
    buckets: CreditBuckets[str] = CreditBuckets(100.0)
    for name, quantum in (("low", 10.0), ("first", 50.2), ("second", 50.4), ("high", 90.0)):
        buckets.put(Account(name, quantum))
    order = [account.owner for account in iter(buckets.take, None)]
    assert order == ["high", "first", "second", "low"]


def test_an_account_put_back_is_the_first_of_its_bucket_but_not_of_all() -> None:
    buckets: CreditBuckets[str] = CreditBuckets(100.0)
    for name in ("first", "second"):
        buckets.put(Account(name, 50.0))
    first = buckets.take()
    assert first is not None
    buckets.put_back(first)
    buckets.put(Account("more", 60.0))
    assert [account.owner for account in iter(buckets.take, None)] == ["more", "first", "second"]
    assert not len(buckets)


def test_an_account_that_was_idle_is_renewed_when_it_returns() -> None:
    buckets: CreditBuckets[str] = CreditBuckets(10.0)
    busy, idle = Account("busy", 5.0), Account("idle", 5.0)
    idle.charge(12.0)  # in debt by 7, then without work
    for _ in range(3):
        buckets.put(busy)
        assert buckets.take() is busy
        busy.charge(5.0)
    assert buckets.generation == 2
    buckets.put(idle)
    assert idle.credit == 3.0  # two periods pay 10 for a debt of 7


def test_deep_debt_is_paid_over_several_periods_at_once() -> None:
    buckets: CreditBuckets[str] = CreditBuckets(10.0)
    account = Account("x", 5.0)
    account.charge(5.0 + 22.0)
    buckets.put(account)
    assert buckets.take() is account
    assert (account.credit, buckets.generation) == (3.0, 5)


def test_bad_structures_are_refused() -> None:
    with pytest.raises(ValueError, match="quantum"):
        Account("x", 0.0)
    with pytest.raises(ValueError, match="period"):
        CreditBuckets(0.0)
    with pytest.raises(ValueError, match="multiple"):
        CreditBuckets(1.0, 100, 7)


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0.01, 30)), max_size=80))
def test_no_account_is_lost_or_doubled(steps: list[tuple[int, float]]) -> None:
    buckets: CreditBuckets[int] = CreditBuckets(10.0)
    inside = set(range(5))
    for at in inside:
        buckets.put(Account(at, at + 0.5))
    out: dict[int, Account[int]] = {}
    for at, cost in steps:
        if at in out:
            buckets.put(out.pop(at))
            inside.add(at)
        elif (account := buckets.take()) is not None:
            assert account.credit > 0
            account.charge(cost)
            inside.remove(account.owner)
            out[account.owner] = account
        assert len(buckets) == len(inside)


# --- the scheduler in virtual time -----------------------------------------------------------


def test_the_example_is_served_within_2_percent() -> None:
    run = simulate(EXAMPLE, 5.0, poisson=False)
    served = [items / run.elapsed_s for items in run.items]
    assert served == pytest.approx([4000, 3600, 2400], rel=0.02)


def test_a_seed_is_a_run() -> None:
    assert simulate(EXAMPLE, 0.5, seed=3) == simulate(EXAMPLE, 0.5, seed=3)
    assert simulate(EXAMPLE, 0.5, seed=3) != simulate(EXAMPLE, 0.5, seed=4)


def errors(rule: Rule, configurations: int = 12) -> list[float]:
    rng = random.Random(11)
    return sorted(
        simulate(random_tasks(rng), 2.0, seed=at, rule=rule).error for at in range(configurations)
    )


def test_carried_debt_keeps_the_shares_and_the_printed_reset_does_not() -> None:
    carried, printed = errors(RULES["carried"]), errors(RULES["printed"])
    assert carried[-1] < 0.10
    assert printed[len(printed) // 2] > 0.20


def test_a_task_never_gets_more_than_one_of_two_schedulers() -> None:
    """III-E."""
    run = simulate([TaskLoad(0.8, 9000, 1e-4), TaskLoad(0.2, 30000, 1e-4)], 2.0, schedulers=2)
    assert run.rates[0] == pytest.approx(0.9, rel=0.05)  # all that it offers
    run = simulate([TaskLoad(0.8, 30000, 1e-4), TaskLoad(0.2, 30000, 1e-4)], 2.0, schedulers=2)
    assert [rate / sum(run.rates) for rate in run.rates] == pytest.approx([0.5, 0.5], rel=0.02)


def test_an_idle_scheduler_serves_what_arrives() -> None:
    run = simulate([TaskLoad(1.0, 100, 1e-4), TaskLoad(1.0, 50, 1e-4)], 5.0, schedulers=2)
    assert run.error < 0.01
    assert sum(run.rates) == pytest.approx(0.015, rel=0.1)


# --- planted bugs ----------------------------------------------------------------------------


class LastInFirstOut(CreditBuckets[int]):
    def _insert(self, account: Account[int]) -> None:
        super()._insert(account)
        self._buckets[self.level(account.credit)].rotate(1)


class LostAtReset(CreditBuckets[int]):
    """Figure 1(b) as printed: the task that revealed the end of the period is not put back."""

    def _renew(self, first: Account[int]) -> None:
        waiting = list(self._drain())
        self.generation += 1
        for account in waiting:
            self.put(account)

    def take(self) -> Account[int] | None:
        account = self._remove()
        if account is not None and account.credit <= 0:
            self._renew(account)
            account = self._remove()
        return account


#: Two equal tasks, one of them with items larger than its credit.
UNEQUAL = [TaskLoad(1.0, 3000, 1e-3), TaskLoad(1.0, 300, 1e-2)]
#: Eight equal tasks whose credits fall into few buckets.
EQUAL = [TaskLoad(1.0, 1000, 1e-3) for _ in range(8)]


def structure(kind: type[CreditBuckets[int]], tasks: list[TaskLoad], rule: Rule = renewed) -> float:
    return simulate(
        tasks, 3.0, rule=rule, buckets=lambda period, rule: kind(period, 100, 10, rule)
    ).error


def test_the_structure_is_right_where_the_planted_bugs_are_not() -> None:
    assert structure(CreditBuckets, UNEQUAL) < 0.02
    assert structure(CreditBuckets, EQUAL) < 0.02


def test_debt_forgiven_is_caught() -> None:
    assert structure(CreditBuckets, UNEQUAL, forgiven) > 0.2


def test_a_task_lost_at_a_reset_is_caught() -> None:
    assert structure(LostAtReset, EQUAL) > 0.2


def test_last_in_first_out_is_caught() -> None:
    """In one bucket LIFO serves one task until it leaves the bucket, FIFO serves them in turn."""

    def served(kind: type[CreditBuckets[int]]) -> Counter[int]:
        buckets = kind(1000.0)
        for at in range(4):
            buckets.put(Account(at, 250.0))
        counts: Counter[int] = Counter()
        for _ in range(12):
            account = buckets.take()
            assert account is not None
            counts[account.owner] += 1
            account.charge(0.5)
            buckets.put(account)
        return counts

    assert set(served(CreditBuckets).values()) == {3}
    assert set(served(LastInFirstOut).values()) != {3}

"""Credit scheduling: accounts of credit in a quantized priority queue. Paper 2, section III. Pure.

Every schedulable entity (a queue of requests, a task, a tenant) has an `Account` with a quantum:
the credit of one period. `CreditBuckets` holds the accounts that have work; `take` removes the
account with the most credit, the caller runs one work item, charges its cost, and puts the account
back if more work waits. When no account with work has credit left, the period is over and credits
are renewed (`renewed`), so the scheduler is work-conserving. The unit of credit is the caller's,
such as microseconds.

Structure (III-B): N = 100 buckets in groups of M = 10. Bucket 0 holds exhausted accounts, bucket k
credits in ((k-1)w, kw], the last one everything above. A take scans counters of groups, then of
buckets: 11 comparisons on average, 20 at worst.

Departures from the print, each with its reason:

- Figure 1(b), line 3, tests `credit = 0`; a charge rarely ends at exactly 0, so the test is <= 0.
  `take` may return None. The account that reveals the end of a period has been removed from the
  set and takes part in the renewal, or it would be lost.
- FIFO inside a bucket is required, not an option: with LIFO one account starves another.
- The printed reset forgives debt: an account that overran its credit starts level with the others.
  With work items of unequal cost the rates are off by half. `renewed` carries debt over.
- Accounts without work are renewed when they return: a generation counts the periods that passed,
  so a reset costs as much as there are accounts with work, not as there are accounts.

Invariants: an account is in the set at most once; `len` is the sum of all counters; the credit of
an account never exceeds its quantum.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

#: III-B: 100 levels of 100 us in a period of 10 ms; groups of sqrt(N) scan fewest counters.
BUCKETS: Final = 100
GROUP: Final = 10


def renewed(credit: float, quantum: float, periods: int = 1) -> float:
    """The credit after some periods: at most one quantum is saved, debt is paid off first."""
    return min(quantum, periods * quantum + min(credit, 0.0))


class Account(Generic[T]):
    """The credit of one owner. `quantum` is its credit per period and must be positive."""

    __slots__ = ("credit", "generation", "owner", "quantum")

    def __init__(self, owner: T, quantum: float) -> None:
        if not (math.isfinite(quantum) and quantum > 0):
            raise ValueError(f"the quantum of an account must be positive, not {quantum}")
        self.owner = owner
        self.quantum = quantum
        self.credit = quantum
        #: The number of periods that had passed when the credit was renewed last.
        self.generation = 0

    def charge(self, cost: float) -> None:
        """Deducts the cost of a work item; credit may become negative."""
        self.credit -= cost


class CreditBuckets(Generic[T]):
    """The accounts with work, by credit.

    `period` is the sum of all quanta, the largest credit that an account can have. `rule` maps
    credit, quantum and periods to the new credit; the models compare others with `renewed`.
    """

    def __init__(
        self,
        period: float,
        buckets: int = BUCKETS,
        group: int = GROUP,
        rule: Callable[[float, float, int], float] = renewed,
    ) -> None:
        if not (math.isfinite(period) and period > 0):
            raise ValueError(f"the period must be positive, not {period}")
        if group < 1 or buckets < 2 or buckets % group:
            raise ValueError("the number of buckets must be a multiple of the group's size")
        self._rule = rule
        self._width = period / (buckets - 1)
        self._group = group
        self._buckets: list[deque[Account[T]]] = [deque() for _ in range(buckets)]
        self._counts = [0] * (buckets // group)
        self._size = 0
        #: Periods that have passed, and comparisons made by takes: section III-B's cost.
        self.generation = 0
        self.comparisons = 0

    def __len__(self) -> int:
        return self._size

    def put(self, account: Account[T]) -> None:
        """Adds an account that has work; an account must not be in the set already."""
        passed = self.generation - account.generation
        if passed:
            account.credit = self._rule(account.credit, account.quantum, passed)
            account.generation = self.generation
        self._insert(account)

    def take(self) -> Account[T] | None:
        """Removes the account with the most credit, after a renewal if all are exhausted."""
        account = self._remove()
        if account is None or account.credit > 0:
            return account
        self._renew(account)
        account = self._remove()
        assert account is not None
        assert account.credit > 0, "a renewal gives credit to at least one account"
        return account

    def put_back(self, account: Account[T]) -> None:
        """Returns the account taken last, uncharged, to the head of its bucket: the first of its
        level again, but behind accounts that have more credit by now."""
        at = self.level(account.credit)
        self._buckets[at].appendleft(account)
        self._count_in(at)

    def level(self, credit: float) -> int:
        """The bucket of a credit; 0 if exhausted."""
        if credit <= 0:
            return 0
        return min(len(self._buckets) - 1, math.ceil(credit / self._width))

    def _renew(self, first: Account[T]) -> None:
        """A new period, or as many as it takes until one account has credit.

        `first` has been removed from the set: it was the head of bucket 0.
        """
        waiting = [first, *self._drain()]
        periods = min(math.floor(-each.credit / each.quantum) for each in waiting) + 1
        while all(self._rule(each.credit, each.quantum, periods) <= 0 for each in waiting):
            periods += 1  # the division was rounded
        self.generation += periods
        for account in waiting:
            self.put(account)

    def _drain(self) -> Iterable[Account[T]]:
        """Removes every account. All are exhausted, so all are in bucket 0, in order."""
        drained, self._buckets[0] = self._buckets[0], deque()
        assert len(drained) == self._size
        self._counts[0] = self._size = 0
        return drained

    def _insert(self, account: Account[T]) -> None:
        at = self.level(account.credit)
        self._buckets[at].append(account)
        self._count_in(at)

    def _count_in(self, at: int) -> None:
        self._counts[at // self._group] += 1
        self._size += 1

    def _remove(self) -> Account[T] | None:
        """The head of the highest bucket that is not empty."""
        for group in range(len(self._counts) - 1, -1, -1):
            self.comparisons += 1
            if not self._counts[group]:
                continue
            first = group * self._group
            for at in range(first + self._group - 1, first - 1, -1):
                self.comparisons += 1
                if self._buckets[at]:
                    self._counts[group] -= 1
                    self._size -= 1
                    return self._buckets[at].popleft()
        return None

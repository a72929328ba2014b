"""Paper 2, section II: the share of each task, and the credit scheduler in virtual time.

`max_min_rates` is the paper's formula for the served rates r_i of tasks with shares v_i and offered
rates s_i when the scheduler serves R_max in all:

    u_i = s_i / sum s,  x_i = v_i / u_i,
    r_i = min(s_i, v_i (R_max - sum_{x_j > x_i} r_j) / (1 - sum_{x_j > x_i} v_j))

The print leaves out that shares must sum to 1 (they are normalised here), and that s_i = 0 or
v_i = 0 give r_i = 0, where the formula divides by zero.

`simulate` runs `weft.credit_buckets` in virtual time, with one or more schedulers (III-E: a task is
served by one scheduler at a time, so it never gets more than 1/schedulers). A scheduler charges the
time that a work item takes, so shares are shares of time: offered and served rates are work per
second, and R_max is measured, as in section IV-C.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from weft.credit_buckets import Account, CreditBuckets, renewed
from weft.errors import InvalidArgument

#: Section IV: the period over which shares hold.
PERIOD_S: Final = 0.010
TASKS_MAX: Final = 10_000
SCHEDULERS_MAX: Final = 1_000

Rule = Callable[[float, float, int], float]


def forgiven(credit: float, quantum: float, periods: int = 1) -> float:
    """The reset as printed: full credit for every task, in debt or not."""
    return quantum


RULES: Final[dict[str, Rule]] = {"carried": renewed, "printed": forgiven}


@dataclass(frozen=True, slots=True)
class TaskLoad:
    """A task: its share, items per second, and the cost of an item in seconds.

    The cost of each item is `cost` times a factor whose logarithm is uniform in +-log(spread),
    scaled to a mean of 1.
    """

    share: float
    rate: float
    cost: float
    spread: float = 1.0

    def __post_init__(self) -> None:
        for name in ("share", "rate"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidArgument(f"a {name} must be 0 or a positive number, not {value}")
        if not (math.isfinite(self.cost) and self.cost > 0):
            raise InvalidArgument(f"a cost must be a positive number, not {self.cost}")
        if not (math.isfinite(self.spread) and self.spread >= 1):
            raise InvalidArgument(f"a spread must be 1 or more, not {self.spread}")


@dataclass(frozen=True, slots=True)
class SharesRun:
    """The service of a run, beside the formula's prediction; rates are work per second."""

    rates: tuple[float, ...]
    predicted: tuple[float, ...]
    offered: tuple[float, ...]
    items: tuple[int, ...]
    error: float  # |predicted - rates| / |rates|, as vectors: section IV-C
    comparisons: float  # mean number of counters that a take scans
    elapsed_s: float


def normalised(shares: Sequence[float]) -> list[float]:
    """The shares, scaled to the sum 1."""
    if not 0 < len(shares) <= TASKS_MAX:
        raise InvalidArgument(f"the number of shares must be 1 to {TASKS_MAX}, not {len(shares)}")
    if any(not math.isfinite(share) or share < 0 for share in shares):
        raise InvalidArgument(f"a share must be 0 or a positive number: {list(shares)}")
    total = math.fsum(shares)
    if total <= 0:
        raise InvalidArgument("at least one share must be positive")
    return [share / total for share in shares]


def max_min_rates(
    shares: Sequence[float], offered: Sequence[float], capacity: float
) -> list[float]:
    """The rate that each task is served with: weighted max-min fairness."""
    if len(shares) != len(offered):
        raise InvalidArgument(f"{len(shares)} shares, but {len(offered)} rates")
    if any(not math.isfinite(rate) or rate < 0 for rate in offered):
        raise InvalidArgument(f"a rate must be 0 or a positive number: {list(offered)}")
    if not (math.isfinite(capacity) and capacity > 0):
        raise InvalidArgument(f"the capacity must be a positive number, not {capacity}")
    parts = normalised(shares)
    demand = [
        math.inf if not rate else part / rate for part, rate in zip(parts, offered, strict=True)
    ]
    rates = [0.0] * len(parts)
    left, claimed = capacity, math.fsum(parts)
    for level in sorted(set(demand), reverse=True):
        if level == 0:
            break  # shares of 0 get nothing
        members = [at for at, each in enumerate(demand) if each == level]
        for at in members:
            rates[at] = min(offered[at], parts[at] * left / claimed)
        left = max(0.0, left - math.fsum(rates[at] for at in members))
        claimed -= math.fsum(parts[at] for at in members)
        if claimed <= 1e-15:
            break  # only shares of 0 are left, and the rounding of the sum
    return rates


def simulate(
    tasks: Sequence[TaskLoad],
    seconds: float,
    *,
    seed: int = 1,
    schedulers: int = 1,
    rule: Rule = renewed,
    period_s: float = PERIOD_S,
    buckets: Callable[[float, Rule], CreditBuckets[int]] | None = None,
    poisson: bool = True,
) -> SharesRun:
    """Serves the tasks for some virtual seconds; `buckets` makes another structure, for tests."""
    if not (math.isfinite(seconds) and seconds > 0):
        raise InvalidArgument(f"the duration must be a positive number, not {seconds}")
    if not 1 <= schedulers <= SCHEDULERS_MAX:
        raise InvalidArgument(f"schedulers must be 1 to {SCHEDULERS_MAX}, not {schedulers}")
    make = buckets or (lambda period, rule: CreditBuckets(period, rule=rule))
    scheduler = _VirtualScheduler(tasks, random.Random(seed), make(period_s, rule), period_s)
    scheduler.arrive_at_random = poisson
    return scheduler.run(seconds, schedulers)


class _VirtualScheduler:
    """Arrivals, the set of schedulable tasks, and the time."""

    def __init__(
        self,
        tasks: Sequence[TaskLoad],
        rng: random.Random,
        ready: CreditBuckets[int],
        period_s: float,
    ) -> None:
        parts = normalised([task.share for task in tasks])
        self.tasks = tasks
        self.random = rng
        self.ready = ready
        self.arrive_at_random = True
        # A share of 0 is never served: its account exists in no period.
        self.accounts = [Account(at, v * period_s) if v else None for at, v in enumerate(parts)]
        self.backlog = [0] * len(tasks)
        self.running = [False] * len(tasks)
        self.arrived = [0] * len(tasks)
        self.items = [0] * len(tasks)
        self.served = [0.0] * len(tasks)
        self.takes = 0
        self.factors = [self._factor(task.spread) for task in tasks]
        self.arrivals: list[tuple[float, int]] = []

    def _factor(self, spread: float) -> Callable[[], float]:
        if spread == 1:
            return lambda: 1.0
        width = math.log(spread)
        mean = math.sinh(width) / width
        return lambda: math.exp(width * (2 * self.random.random() - 1)) / mean

    def _gap(self, at: int) -> float:
        rate = self.tasks[at].rate
        return self.random.expovariate(rate) if self.arrive_at_random else 1 / rate

    def _admit(self, now: float) -> None:
        """Writers: the first item of an empty task makes the task schedulable."""
        while self.arrivals[0][0] <= now:
            time, at = self.arrivals[0]
            heapq.heapreplace(self.arrivals, (time + self._gap(at), at))
            self.arrived[at] += 1
            self.backlog[at] += 1
            account = self.accounts[at]
            if self.backlog[at] == 1 and not self.running[at] and account is not None:
                self.ready.put(account)

    def _complete(self, account: Account[int], cost: float) -> None:
        at = account.owner
        account.charge(cost)
        self.served[at] += cost
        self.items[at] += 1
        self.running[at] = False
        self.backlog[at] -= 1
        if self.backlog[at]:
            self.ready.put(account)

    def run(self, seconds: float, schedulers: int) -> SharesRun:
        self.arrivals = [(self._gap(at), at) for at, task in enumerate(self.tasks) if task.rate]
        heapq.heapify(self.arrivals)
        # Per scheduler: when it is free, and the item that it then completes.
        free: list[tuple[float, int, Account[int] | None, float]]
        free = [(0.0, number, None, 0.0) for number in range(schedulers)]
        now = 0.0
        while self.arrivals:
            now, number, account, cost = free[0]
            if account is not None:
                self._complete(account, cost)
            if now >= seconds:
                break
            self._admit(now)
            account = self.ready.take()
            if account is None:
                # Idle until an arrival, or until another scheduler returns a task.
                others = [each[0] for each in free if each[1] != number and each[0] > now]
                wake = min([self.arrivals[0][0], *others])
                heapq.heapreplace(free, (wake, number, None, 0.0))
                continue
            self.takes += 1
            at = account.owner
            self.running[at] = True
            cost = self.tasks[at].cost * self.factors[at]()
            heapq.heapreplace(free, (now + cost, number, account, cost))
        return self._result(now or seconds)

    def _result(self, elapsed: float) -> SharesRun:
        rates = [each / elapsed for each in self.served]
        offered = [
            count * task.cost / elapsed
            for count, task in zip(self.arrived, self.tasks, strict=True)
        ]
        total = math.fsum(rates)
        shares = [task.share for task in self.tasks]
        predicted = max_min_rates(shares, offered, total) if total else rates
        return SharesRun(
            rates=tuple(rates),
            predicted=tuple(predicted),
            offered=tuple(offered),
            items=tuple(self.items),
            error=math.dist(predicted, rates) / (math.hypot(*rates) or 1.0),
            comparisons=self.ready.comparisons / (self.takes or 1),
            elapsed_s=elapsed,
        )


def random_tasks(
    rng: random.Random, count: int = 10, *, overload: float = 2.0, spread: float = 10.0
) -> list[TaskLoad]:
    """A configuration of section IV-C: shares and offered parts from two Poisson distributions.

    The mean cost of an item of each task is 0.4 ms times a factor whose logarithm
    is uniform in +-log(spread). In all, `overload` times the capacity of one scheduler is offered.
    """
    shares = [float(_poisson(rng, 5.0)) for _ in range(count)]
    parts = [float(_poisson(rng, 3.0)) for _ in range(count)]
    if not sum(shares) or not sum(v * s for v, s in zip(shares, parts, strict=True)):
        return random_tasks(rng, count, overload=overload, spread=spread)
    width = math.log(spread)
    costs = [4e-4 * math.exp(width * (2 * rng.random() - 1)) for _ in range(count)]
    total = sum(parts)
    return [
        TaskLoad(share, overload * part / total / cost, cost)
        for share, part, cost in zip(shares, parts, costs, strict=True)
    ]


def _poisson(rng: random.Random, mean: float) -> int:
    """Knuth's method: the number of uniform factors until their product falls below e^-mean."""
    limit, product, count = math.exp(-mean), rng.random(), 0
    while product > limit:
        product *= rng.random()
        count += 1
    return count

"""Paper 1, sections 4.1 and 4.2: the analytical model of the stochastic distributed queue.

N producers hold up to f objects each; M consumers probe producers at random, up to h_max times, and
block at the last one. A producer is a birth-death chain over s, from -M (requests blocked there) to
f (objects stored): an object adds 1 at rate lambda, a request subtracts 1 at rate mu_c while s > 0,
and at rate p_b mu_c otherwise, where p_b is the probability that a request at an empty producer is
at its last probe. The equations, with the paper's
numbers:

    (1)  mu_c  = M/N * h_avg / (1/mu + (h_avg + 1) r + B)
    (5)  p(s)  = (lambda/mu_c)^s p(0) for s > 0,  (p_b mu_c/lambda)^-s p(0) for s < 0
    (7)  h_avg = (1 - p_mt^h_max) / (1 - p_mt)
    (8)  p_b   = p_mt^(h_max-1) / h_avg
    (9)  B     = p_mt^h_max B_c
         W     = (h_avg + 1) r + B

Departures from the print, each with its reason:

- (1) prints `h_avg r`; the text and (13) count the reply, too. As printed, flow is not conserved.
- W is printed with a second factor p_mt^h_max, which (9) has already applied to B.
- T is printed with divisions; `T = M U_c mu = N U_p lambda` is a rate.
- (5) prints the exponents on the numerators only. At its poles (lambda = mu_c, lambda = p_b mu_c)
  the printed sum is 0/0; here the sums are taken in the log domain and have no poles.
- Above (3) the rate must be `(M+s) mu_c / M`, since s < 0. (3) is used if `finite` is set.
- Section 4.2: `mu_k = N frac_k mu_c / N_k`, for (1) gives the rate *per producer*.
- (12) must be divided by p_mt before (9) uses it.
- A request cannot arrive while all consumers are blocked, so s = -M must not count as a state that
  a request finds; the model averages over the states as seen by requests. Then flow is conserved to
  rounding for every M; as printed, the requests of that state vanish. For M of 20 and more, the
  difference is below every printed digit.
- Iteration on mu_c diverges for h_max = 1 and loads of 1 and more. `solve` brackets p_mt instead:
  given p_mt, every other quantity follows, and the residual of (1) has exactly one root. With
  several types of producers, `johnson_access` solves for all unknowns at once, always with (3).

Units: rates per tick, times in ticks; r is the mean transit time of one message.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from weft.errors import InvalidArgument

from .root import bisect

#: Limits of the arguments: beyond these a solution takes minutes, not milliseconds.
PROCESSES_MAX: Final = 1_000_000
HOPS_MAX: Final = 10_000
BUFFERS_MAX: Final = 1_000_000
#: The direct sum of (3) has as many terms as consumers.
FINITE_MAX: Final = 10_000
#: exp(-60) of the largest term, times FINITE_MAX terms, is below the last bit of a double.
_NEGLIGIBLE: Final = 60.0


@dataclass(frozen=True, slots=True)
class ProducerType:
    """`count` equal producers; `fraction` of all requests goes to them, in equal parts (10)."""

    count: int
    rate: float
    fraction: float
    buffers: int = 5

    def __post_init__(self) -> None:
        whole("producers", self.count, 1, PROCESSES_MAX)
        whole("buffers", self.buffers, 1, BUFFERS_MAX)
        positive("production rate", self.rate)
        if not 0 <= self.fraction <= 1:
            raise InvalidArgument(f"a fraction of the requests must be 0 to 1, not {self.fraction}")


@dataclass(frozen=True, slots=True)
class QueueModel:
    """The parameters: producers by type, M consumers of rate mu, h_max, r.

    `finite` selects (3), where blocked consumers send no requests, over its approximation (4).
    `reach`: how many consumers can probe one producer (M_j of section 4.3); None: all.
    """

    producers: tuple[ProducerType, ...]
    consumers: int
    consume_rate: float
    max_hops: int = 3
    message_time: float = 1.0
    finite: bool = False
    reach: int | None = None

    def __post_init__(self) -> None:
        if not self.producers:
            raise InvalidArgument("a queue needs at least one producer")
        whole("consumers", self.consumers, 1, PROCESSES_MAX)
        whole("max_hops", self.max_hops, 1, HOPS_MAX)
        positive("consumption rate", self.consume_rate)
        if not (math.isfinite(self.message_time) and self.message_time >= 0):
            raise InvalidArgument(f"message time must be 0 or more, not {self.message_time}")
        total = math.fsum(kind.fraction for kind in self.producers)
        if abs(total - 1) > 1e-9:
            raise InvalidArgument(f"the fractions of the requests sum to {total:g}, not to 1")
        if self.reach is not None:
            whole("reach", self.reach, 1, self.consumers)
        if self.finite:
            whole("consumers of the finite model", self.bound, 1, FINITE_MAX)

    @property
    def bound(self) -> int:
        """The most requests that can be blocked at one producer: M, or M_j."""
        return self.consumers if self.reach is None else self.reach

    @property
    def load(self) -> float:
        made = math.fsum(kind.count * kind.rate for kind in self.producers)
        return self.consumers * self.consume_rate / made

    @property
    def size(self) -> int:
        return sum(kind.count for kind in self.producers)


@dataclass(frozen=True, slots=True)
class QueueSolution:
    """The model's predictions; the paper's symbols in brackets."""

    load: float
    probes: float  # [h_avg]
    wait: float  # [W], ticks from a request to the object's arrival
    blocked: float  # [B], ticks
    empty: float  # [p_mt], probability that a probe finds its producer empty
    probe_rate: float  # [mu_c], probes per tick and producer
    full: tuple[float, ...]  # [p(f)] of each type: fraction of time that a producer is blocked
    producer_utilization: float  # [U_p]
    consumer_utilization: float  # [U_c]
    throughput: float  # [T], from the consumers
    throughput_produced: float  # [T], from the producers: equal, a check


@dataclass(frozen=True, slots=True)
class Chain:
    """The stationary state of one producer, as requests see it."""

    empty: float  # a request finds s <= 0
    log_odds: float  # log(empty / (1 - empty)), where either may underflow
    full: float  # p(f), over time
    sending: float  # mean fraction of consumers that can send
    blocked: float  # [B_c], ticks, if a request blocks


def homogeneous(
    producers: int,
    consumers: int,
    *,
    produce_rate: float = 0.01,
    consume_rate: float = 0.01,
    buffers: int = 5,
    max_hops: int = 3,
    message_time: float = 1.0,
    finite: bool = False,
    reach: int | None = None,
) -> QueueModel:
    """Section 4.1: equal producers, probed with equal probability. Defaults of section 4.1.1."""
    kind = ProducerType(producers, produce_rate, 1.0, buffers)
    return QueueModel((kind,), consumers, consume_rate, max_hops, message_time, finite, reach)


def solve(model: QueueModel) -> QueueSolution:
    """Solves (1) to (12): by bisection on p_mt for producers of one type, where the root is unique.

    Several types have several unknowns, which cannot be bracketed: see `johnson_access`.
    """
    probed = [kind for kind in model.producers if kind.fraction > 0]
    if len(probed) > 1:
        # That module is built on this one.
        from .johnson_access import solve_types

        return solve_types(model)
    (kind,) = probed

    def residual(log_odds: float) -> float:
        found = _State.at(model, kind, logistic(log_odds))
        return found.probe_rate - found.requested

    # Beyond 1e-16 and 1 - 1e-16 a double cannot hold p_mt.
    state = _State.at(model, kind, logistic(bisect(residual, -740.0, 37.0)))
    full = tuple(state.chain.full if each is kind else 1.0 for each in model.producers)
    return solution(model, state.empty, state.probes, state.wait, full)


def solution(
    model: QueueModel, empty: float, probes: float, wait: float, full: tuple[float, ...]
) -> QueueSolution:
    """The performance measures at the end of section 4.1."""
    served = 1 / model.consume_rate
    made = math.fsum(
        kind.count * kind.rate * (1 - each)
        for kind, each in zip(model.producers, full, strict=True)
    )
    throughput = model.consumers / (served + wait)
    return QueueSolution(
        load=model.load,
        probes=probes,
        wait=wait,
        blocked=wait - (probes + 1) * model.message_time,
        empty=empty,
        probe_rate=throughput * probes / model.size,
        full=full,
        producer_utilization=made / math.fsum(each.count * each.rate for each in model.producers),
        consumer_utilization=served / (served + wait),
        throughput=throughput,
        throughput_produced=made,
    )


@dataclass(frozen=True, slots=True)
class _State:
    """Every quantity of the model for a given p_mt, with one type of producers."""

    empty: float
    probes: float
    wait: float
    #: mu_c as the chain needs it for this p_mt, and as the consumers then make it (1).
    probe_rate: float
    requested: float
    chain: Chain

    @classmethod
    def at(cls, model: QueueModel, kind: ProducerType, empty: float) -> _State:
        probes = probes_of(empty, model.max_hops)
        last = blocking_probability(empty, model.max_hops)

        def chain(log_rate: float) -> Chain:
            return chain_of(kind, math.exp(log_rate), last, model.bound, finite=model.finite)

        scale = math.log(kind.rate)
        root = bisect(lambda log_rate: chain(log_rate).empty - empty, scale - 700, scale + 700)
        found = chain(root)
        blocked = empty**model.max_hops * found.blocked
        wait = (probes + 1) * model.message_time + blocked
        requested = model.consumers / kind.count * probes / (1 / model.consume_rate + wait)
        return cls(empty, probes, wait, math.exp(root) * found.sending, requested, found)


def probes_of(empty: float, max_hops: int) -> float:
    """(7), h_avg; exact at p_mt = 1, too."""
    return math.exp(log_geometric(math.log(empty), max_hops - 1)) if empty > 0 else 1.0


def blocking_probability(empty: float, max_hops: int) -> float:
    """(8), p_b."""
    if max_hops == 1:
        return 1.0
    return 0.0 if empty <= 0 else empty ** (max_hops - 1) / probes_of(empty, max_hops)


def chain_of(
    kind: ProducerType, rate: float, last: float, bound: int, *, finite: bool = False
) -> Chain:
    """(2) to (6) and B_c for one producer that gets `rate` probes while no consumer is blocked."""
    up = math.log(kind.rate / rate)
    # Objects stored: sum of a^s for s = 1..f.
    stored = up + log_geometric(up, kind.buffers - 1)
    if last <= 0:
        seen, held, waiting = 0.0, 0.0, 1.0
    elif finite:
        seen, held, waiting = _finite_sums(math.log(last) - up, bound)
    else:
        down = math.log(last) - up
        seen = log_geometric(down, bound - 1)
        held = log_geometric(down, bound)
        waiting = _mean_rank(down, bound)
    top = max(stored, seen, held)
    some, none, total = math.exp(stored - top), math.exp(seen - top), math.exp(held - top)
    return Chain(
        empty=none / (some + none),
        log_odds=seen - stored,
        full=math.exp(kind.buffers * up - top) / (some + total),
        sending=max((some + none) / (some + total), 1e-300),
        blocked=waiting / kind.rate,
    )


def log_geometric(log_ratio: float, last: int) -> float:
    """log(1 + q + ... + q^last) for q = exp(log_ratio), without loss at the pole q = 1."""
    if log_ratio > 0:
        return last * log_ratio + log_geometric(-log_ratio, last)
    if log_ratio == 0:
        return math.log(last + 1)
    return math.log(math.expm1((last + 1) * log_ratio) / math.expm1(log_ratio))


def _mean_rank(log_ratio: float, bound: int) -> float:
    """sum (k+1) q^k / sum q^k over k = 0..M-1: the objects that a blocked request waits for."""
    if log_ratio > 0:  # count from the other end: k -> M-1-k
        return bound + 1 - _mean_rank(-log_ratio, bound)
    if -log_ratio * bound < 1e-2:
        # Near the pole the closed form subtracts equal numbers; the sum itself is exact.
        terms = [math.exp(k * log_ratio) for k in range(bound)] if bound <= FINITE_MAX else []
        if terms:
            return math.fsum((k + 1) * term for k, term in enumerate(terms)) / math.fsum(terms)
    if log_ratio == 0:
        return (bound + 1) / 2
    tail = bound / math.expm1(-bound * log_ratio) if -bound * log_ratio < 700 else 0.0
    return 1 / -math.expm1(log_ratio) - tail


def _finite_sums(log_ratio: float, bound: int) -> tuple[float, float, float]:
    """The sums for (3): log of the states weighted by arrivals, log of all states, mean rank.

    p(-k) = q^k (M/M) ((M-1)/M) ... ((M-k+1)/M) p(0), and requests arrive at (M-k)/M of the rate.
    """
    logs = [0.0]
    top = 0.0
    for k in range(bound):
        logs.append(logs[-1] + log_ratio + math.log((bound - k) / bound))
        top = max(top, logs[-1])
        # The terms rise, then fall for good: the rest is below the rounding of the sum.
        if logs[-1] < top - _NEGLIGIBLE:
            break
    states = [math.exp(each - top) for each in logs]
    arrivals = [state * (bound - k) / bound for k, state in enumerate(states)]
    seen = math.fsum(arrivals)
    ranks = math.fsum((k + 1) * each for k, each in enumerate(arrivals))
    return top + math.log(seen), top + math.log(math.fsum(states)), ranks / seen


def logistic(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds)) if log_odds > -700 else math.exp(log_odds)


def whole(name: str, value: int, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidArgument(f"{name} must be a whole number from {least} to {most}, not {value}")


def positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidArgument(f"{name} must be a positive number, not {value}")

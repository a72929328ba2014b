"""Paper 1, section 4.3: consumers that probe different producers, equations 13 to 18.

The producers are those of `johnson`; each type of consumers has its own probabilities of probing
them. The unknowns are the probes per tick of each consumer type (13) and, for each producer type,
the probability e_j that a probe finds it empty and the time B_c,j of a blocked request.

Departures from the print: (3), not (4), since few consumers may reach a producer; the states are
averaged as requests see them, and (3)'s rates are scaled so that their mean is (14), for otherwise
flow is not conserved (see `johnson`). (18) is used as printed: (17) already holds the last p_mt.

Plain iteration oscillates for h_max = 1 at loads of 1 and more, and several unknowns cannot be
bracketed: a few damped rounds, then Newton's method, where a step that increases the residual is
halved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from weft.errors import InvalidArgument, WeftError

from .johnson import (
    FINITE_MAX,
    HOPS_MAX,
    PROCESSES_MAX,
    Chain,
    ProducerType,
    QueueModel,
    QueueSolution,
    blocking_probability,
    chain_of,
    logistic,
    positive,
    probes_of,
    solution,
    whole,
)

#: Rounds of damped iteration before Newton's method, and Newton's steps at most; ten are usual.
_WARM_ROUNDS: Final = 20
_ROUNDS_MAX: Final = 100
#: The residual at which the solution ends early, and the residual that rounding may leave.
_CLOSE: Final = 1e-14
_CLOSE_ENOUGH: Final = 1e-11
#: Of the finite differences; the longest step in a logarithm; the least part of a step.
_DIFFERENCE: Final = 1e-6
_STEP_MAX: Final = 2.0
_PART_MIN: Final = 1e-6
#: A producer that no consumer probes is full for ever; nothing depends on the other fields.
_UNPROBED: Final = Chain(empty=0.5, log_odds=0.0, full=1.0, sending=1.0, blocked=0.0)


@dataclass(frozen=True, slots=True)
class ConsumerType:
    """`count` equal consumers; a probe goes to producer type j with probability `access[j]`."""

    count: int
    rate: float
    access: tuple[float, ...]

    def __post_init__(self) -> None:
        whole("consumers", self.count, 1, PROCESSES_MAX)
        positive("consumption rate", self.rate)
        total = math.fsum(self.access)
        if any(not 0 <= each <= 1 for each in self.access) or abs(total - 1) > 1e-9:
            raise InvalidArgument(
                f"access probabilities must be 0 to 1 and sum to 1, not to {total:g}"
            )


@dataclass(frozen=True, slots=True)
class AccessModel:
    """Producer types (their `fraction` is not used) and consumer types.

    `reach[j]`: how many consumers can probe one producer of type j [M_j]; None: every consumer with
    a positive probability.
    """

    producers: tuple[ProducerType, ...]
    consumers: tuple[ConsumerType, ...]
    max_hops: int = 3
    message_time: float = 1.0
    reach: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not self.producers or not self.consumers:
            raise InvalidArgument("a queue needs at least one producer and one consumer")
        whole("max_hops", self.max_hops, 1, HOPS_MAX)
        if any(len(each.access) != len(self.producers) for each in self.consumers):
            raise InvalidArgument("every consumer type needs one probability per producer type")
        for most in self.bounds:
            whole("consumers that reach a producer", most, 0, FINITE_MAX)

    @property
    def bounds(self) -> tuple[int, ...]:
        if self.reach is not None:
            return self.reach
        return tuple(
            sum(each.count for each in self.consumers if each.access[at] > 0)
            for at in range(len(self.producers))
        )


@dataclass(frozen=True, slots=True)
class AccessSolution:
    """Per consumer type: probes, wait; per producer type: empty, full; the throughput twice."""

    probes: tuple[float, ...]
    wait: tuple[float, ...]
    empty: tuple[float, ...]
    full: tuple[float, ...]
    throughput: float
    throughput_produced: float


def solve_access(model: AccessModel) -> AccessSolution:
    """Iterates (13) to (18) to a fixed point; raises WeftError if the iteration does not settle."""
    point = [math.log(each.rate) for each in model.consumers]
    point += [math.log(kind.rate) for kind in model.producers]
    point += [0.0] * len(model.producers)
    for _ in range(_WARM_ROUNDS):
        moves = _residual(model, point)
        point = [a + 0.5 * max(-1.0, min(1.0, r)) for a, r in zip(point, moves, strict=True)]
    residual = _residual(model, point)
    for _ in range(_ROUNDS_MAX):
        if _size(residual) < _CLOSE:
            break
        before = _size(residual)
        step = linear_solution(_jacobian(model, point, residual), [-each for each in residual])
        point, residual = _searched(model, point, residual, step)
        if _size(residual) >= before:  # rounding is all that is left
            break
    if _size(residual) > _CLOSE_ENOUGH:
        raise WeftError(f"the model of section 4.3 did not settle: residual {_size(residual):.1e}")
    return _solution(model, point)


def solve_types(model: QueueModel) -> QueueSolution:
    """Section 4.2: several types of producers, and one of consumers. Always with (3).

    (4) has no stationary solution where most consumers block at a few producers (the paper calls
    it "not stable"), and that is the case when fast producers get too many of the requests.
    """
    access = tuple(kind.fraction for kind in model.producers)
    found = solve_access(
        AccessModel(
            model.producers,
            (ConsumerType(model.consumers, model.consume_rate, access),),
            model.max_hops,
            model.message_time,
            (model.bound,) * len(access),
        )
    )
    empty = math.fsum(p * e for p, e in zip(access, found.empty, strict=True))
    return solution(model, empty, found.probes[0], found.wait[0], found.full)


def _residual(model: AccessModel, point: Sequence[float]) -> list[float]:
    """The changes of one round of (13) to (18), in logarithms; see `_Unknowns`."""
    unknowns = _Unknowns.of(model, point)
    chains, arriving = unknowns.chains(model)
    rates = [
        math.log(probes / (1 / each.rate + wait))
        for each, (probes, wait) in zip(model.consumers, _waits(model, chains), strict=True)
    ]
    # (14) is a mean; the chain's own rate holds while no consumer is blocked.
    free = [
        math.log(mean / each.sending) if mean > 0 else 0.0
        for mean, each in zip(arriving, chains, strict=True)
    ]
    odds = [each.log_odds for each in chains]
    return [new - old for new, old in zip([*rates, *free, *odds], point, strict=True)]


@dataclass(frozen=True, slots=True)
class _Unknowns:
    """log of (13) per consumer type; per producer type, log of the rate of probes while no consumer
    is blocked, and the log-odds of e_j."""

    rates: Sequence[float]
    free: Sequence[float]
    empty: Sequence[float]

    @classmethod
    def of(cls, model: AccessModel, point: Sequence[float]) -> _Unknowns:
        one, two = len(model.consumers), len(model.consumers) + len(model.producers)
        return cls(point[:one], point[one:two], [logistic(odds) for odds in point[two:]])

    def chains(self, model: AccessModel) -> tuple[list[Chain], list[float]]:
        """The chain of each producer type by (16), and the mean rate of its requests (14)."""
        last_of = [
            blocking_probability(
                math.fsum(p * e for p, e in zip(each.access, self.empty, strict=True)),
                model.max_hops,
            )
            for each in model.consumers
        ]
        chains, arriving = [], []
        for at, (kind, bound) in enumerate(zip(model.producers, model.bounds, strict=True)):
            streams = [
                each.count * each.access[at] * math.exp(rate) / kind.count
                for each, rate in zip(model.consumers, self.rates, strict=True)
            ]
            total = math.fsum(streams)
            arriving.append(total)
            if total == 0:
                chains.append(_UNPROBED)
                continue
            last = math.fsum(s * p for s, p in zip(streams, last_of, strict=True)) / total
            chains.append(chain_of(kind, math.exp(self.free[at]), last, bound, finite=True))
        return chains, arriving


def _jacobian(
    model: AccessModel, point: list[float], residual: Sequence[float]
) -> list[list[float]]:
    columns = []
    for at in range(len(point)):
        moved = [*point[:at], point[at] + _DIFFERENCE, *point[at + 1 :]]
        after = _residual(model, moved)
        columns.append([(b - a) / _DIFFERENCE for a, b in zip(residual, after, strict=True)])
    return [list(row) for row in zip(*columns, strict=True)]


def _searched(
    model: AccessModel, point: list[float], residual: list[float], step: Sequence[float]
) -> tuple[list[float], list[float]]:
    """The largest part of the step, by halves, that decreases the residual; else no step."""
    part = min(1.0, _STEP_MAX / max(_size(step), 1e-300))
    while part > _PART_MIN:
        tried = [a + part * b for a, b in zip(point, step, strict=True)]
        found = _residual(model, tried)
        if _size(found) < _size(residual):
            return tried, found
        part /= 2
    return point, residual


def _size(values: Sequence[float]) -> float:
    return max(map(abs, values))


def linear_solution(rows: list[list[float]], right: list[float]) -> list[float]:
    """Gaussian elimination with pivots, for the few unknowns of a model."""
    table = [[*row, value] for row, value in zip(rows, right, strict=True)]
    for at in range(len(table)):
        best = max(range(at, len(table)), key=lambda row: abs(table[row][at]))
        table[at], table[best] = table[best], table[at]
        pivot = table[at]
        for row in table[at + 1 :]:
            factor = row[at] / pivot[at]
            for column in range(at, len(row)):
                row[column] -= factor * pivot[column]
    found = [0.0] * len(table)
    for at in reversed(range(len(table))):
        rest = math.fsum(table[at][k] * found[k] for k in range(at + 1, len(table)))
        found[at] = (table[at][-1] - rest) / table[at][at]
    return found


def _waits(model: AccessModel, chains: Sequence[Chain]) -> list[tuple[float, float]]:
    """(15), (7), (17), (18) and W: probes and wait of each consumer type."""
    empty = [each.empty for each in chains]
    blocked = [each.blocked for each in chains]
    found = []
    for each in model.consumers:
        seen = math.fsum(p * e for p, e in zip(each.access, empty, strict=True))
        probes = probes_of(seen, model.max_hops)
        last = math.fsum(p * e * b for p, e, b in zip(each.access, empty, blocked, strict=True))
        held = seen ** (model.max_hops - 1) * last
        found.append((probes, (probes + 1) * model.message_time + held))
    return found


def _solution(model: AccessModel, point: Sequence[float]) -> AccessSolution:
    chains, _ = _Unknowns.of(model, point).chains(model)
    waits = _waits(model, chains)
    return AccessSolution(
        probes=tuple(probes for probes, _ in waits),
        wait=tuple(wait for _, wait in waits),
        empty=tuple(each.empty for each in chains),
        full=tuple(each.full for each in chains),
        throughput=math.fsum(
            each.count / (1 / each.rate + wait)
            for each, (_, wait) in zip(model.consumers, waits, strict=True)
        ),
        throughput_produced=math.fsum(
            kind.count * kind.rate * (1 - each.full)
            for kind, each in zip(model.producers, chains, strict=True)
        ),
    )

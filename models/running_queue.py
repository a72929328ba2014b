"""A running stochastic queue as a model of paper 1: measured figures, the simulation, and advice.

The figures come from the counters of all nodes over an interval. A *walk* is one request of the
paper: up to h_max probes, the last of which may wait. The unknowns of the model follow:

    hops  h_avg = probes / walks,   walks = probes that found messages + probes that waited
    wait  W     = 2 h_avg r + blocked time / walks         (a hop is a request and an answer)
    1/mu        = consumers * interval / walks - W          (Little's law)
    lambda      = objects / (producers * interval - time that producers waited for room)

The producers of one node share its buffer, so a node is one producer of the model, and all nodes
are taken as equal. If pops take several messages, an object is such a lot, and a buffer holds that
many fewer objects. A producer of the model stops when its buffer is full; here it has one more
object in hand while it waits.

Near load 1 the equations of paper 1 do not describe few nodes, so everything here is simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from weft.errors import WeftError

from .johnson import HOPS_MAX, ProducerType, QueueModel
from .johnson_sim import QueueRun, simulate

#: Settings that `advise` tries.
_HOPS: Final = (1, 2, 3, 4, 5, 8)
_BUFFER_FACTORS: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
#: A setting with more probes or a larger buffer must improve throughput or wait by this part.
WORTH: Final = 0.02
#: A consumer that would process an object in less than this part of its cycle is never busy.
_BUSY_MIN: Final = 1e-3


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """Counters of a stochastic queue over an interval; times in milliseconds."""

    interval_ms: float
    pushed: int
    delivered: int
    probes: int
    empty_probes: int
    blocked_pops: int
    blocked_ms: float
    room_wait_ms: float
    #: What the counters do not tell.
    nodes: int
    consumers: int
    producers: int
    message_ms: float
    buffers: int
    max_hops: int

    @property
    def walks(self) -> int:
        return self.probes - self.empty_probes + self.blocked_pops

    @property
    def lot(self) -> float:
        """Messages per walk that found some, at least 1."""
        return max(1.0, self.delivered / self.walks)

    @property
    def hops(self) -> float:
        return self.probes / self.walks

    @property
    def wait_ms(self) -> float:
        return 2 * self.hops * self.message_ms + self.blocked_ms / self.walks

    @property
    def empty(self) -> float:
        return self.empty_probes / self.probes

    @property
    def objects_per_s(self) -> float:
        return 1000 * self.walks / self.interval_ms

    @property
    def producer_utilization(self) -> float:
        return max(0.0, 1 - self.room_wait_ms / (self.producers * self.interval_ms))

    def check(self) -> None:
        """Raises WeftError if the interval does not determine a model."""
        if not self.walks or not self.pushed or not self.delivered:
            raise WeftError(
                f"the queue moved too little to be compared: {self.pushed} messages pushed and "
                f"{self.delivered} delivered; measure for longer, under load"
            )

    def model(self) -> QueueModel:
        """The model of this queue, in milliseconds."""
        self.check()
        cycle = self.consumers * self.interval_ms / self.walks
        service = max(cycle - self.wait_ms, _BUSY_MIN * cycle)
        busy_ms = max(self.producers * self.interval_ms - self.room_wait_ms, _BUSY_MIN)
        rate = self.producers * self.pushed / self.lot / busy_ms / self.nodes
        stored = max(1, round(self.buffers / self.lot)) + 1
        producers = (ProducerType(self.nodes, rate, 1.0, stored),)
        return QueueModel(producers, self.consumers, 1 / service, self.max_hops, self.message_ms)


@dataclass(frozen=True, slots=True)
class Advice:
    """Settings for a queue, with what the simulator predicts for them and for the present ones."""

    max_hops: int
    buffers: int
    now: QueueRun
    then: QueueRun

    @property
    def throughput_gain(self) -> float:
        return self.then.throughput / self.now.throughput - 1

    @property
    def wait_gain(self) -> float:
        """The part of the consumers' waiting time that is saved; negative if they wait longer."""
        return 1 - self.then.wait / self.now.wait


def predict(model: QueueModel, objects: int, seed: int) -> QueueRun:
    return simulate(model, objects, seed=seed, returning=True)


def advise(
    figures: QueueFigures,
    objects: int,
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
) -> Advice:
    """Simulates other settings, and returns the cheapest of those that are as good as the best.

    Throughput comes first, then the wait of consumers. Fewer hops are cheaper, then fewer buffers.
    """
    model = figures.model()
    now = predict(model, objects, seed)
    factors = {max(1, round(figures.buffers * factor)) for factor in _BUFFER_FACTORS}
    tried: list[tuple[int, int, QueueRun]] = [(figures.max_hops, figures.buffers, now)]
    for hops in sorted({*_HOPS, figures.max_hops}):
        for buffers in sorted(factors):
            changed = replace(figures, max_hops=min(hops, HOPS_MAX), buffers=buffers).model()
            tried.append((hops, buffers, predict(changed, objects, seed)))
            progress(len(tried))
    most = max(run.throughput for _, _, run in tried)
    able = [each for each in tried if each[2].throughput >= (1 - WORTH) * most]
    least = min(run.wait for _, _, run in able)
    good = [each for each in able if each[2].wait <= (1 + WORTH) * least]
    hops, buffers, then = min(good, key=lambda each: (each[0], each[1]))
    return Advice(hops, buffers, now, then)


def trials(figures: QueueFigures) -> int:
    """The number of simulations of `advise`."""
    return 1 + len({*_HOPS, figures.max_hops}) * len(
        {max(1, round(figures.buffers * factor)) for factor in _BUFFER_FACTORS}
    )

"""Paper 1, sections 2 and 3: a discrete-event simulator of the stochastic distributed queue.

Every message, production and consumption takes an exponential time, as in section 3; `uniform`
replaces the production times by uniform[0.5, 1.0]/lambda, as in figure 6 (whose mean is 0.75 of the
nominal time: the real load is 0.75 of the nominal load). A producer handles a message in no time.

Details of the protocol that the paper's prose leaves open:

- A production thread is blocked only while its buffer holds f objects, not after each object.
- `random()` may pick the same empty producer again.
- With `reach`, every consumer probes that many producers, and every producer is probed by equally
  many consumers: consumer c probes c + o (mod N) for a random set of offsets o.

Two kinds of events, one heap. A consumer has at most one message under way, so an event is a time
and a number: below N, producer p completes an object; from N on, a consumer's request reaches a
producer. The reply, the consumption and the first transit of the next request are one event, since
nothing can happen to the consumer between them. One generator, drawn in the order of events, makes
a run a function of its seed.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from itertools import accumulate, pairwise
from typing import Final

from weft.errors import InvalidArgument

from .johnson import QueueModel, whole

OBJECTS_MAX: Final = 1_000_000_000
#: The part of the objects at the start that is not counted: the queue starts empty.
WARM_UP: Final = 0.1
#: Parts of a run: their means give the confidence interval, and progress is reported after each.
BATCHES: Final = 20
#: 97.5 % quantile of Student's t with BATCHES - 1 degrees of freedom.
_STUDENT: Final = 2.093


@dataclass(frozen=True, slots=True)
class QueueRun:
    """Measured figures; names as in `johnson.QueueSolution`."""

    objects: int
    probes: float
    wait: float
    wait_error: float  # half of the 95 % confidence interval of `wait`, by batch means
    empty: float
    producer_utilization: float
    throughput: float


def simulate(
    model: QueueModel,
    objects: int = 100_000,
    *,
    seed: int = 1,
    uniform: bool = False,
    returning: bool = False,
    progress: Callable[[int], None] | None = None,
) -> QueueRun:
    """Runs until `objects` objects are consumed; the first tenth only warms up.

    `returning`: a producer without an object answers the consumer, which sends the next probe, as
    Weft's consumers do; a further hop costs two messages then.
    """
    whole("objects", objects, 10 * BATCHES, OBJECTS_MAX)
    return _Simulation(model, seed, uniform, returning).run(
        _Tally(objects, progress or (lambda done: None))
    )


class _Simulation:
    """Producers, consumers and the heap of events."""

    def __init__(
        self, model: QueueModel, seed: int, uniform: bool, returning: bool = False
    ) -> None:
        self.model = model
        self.random = random.Random(seed)
        self.rates = [kind.rate for kind in model.producers for _ in range(kind.count)]
        self.capacity = [kind.buffers for kind in model.producers for _ in range(kind.count)]
        self.size = len(self.rates)
        self.uniform = uniform
        self.returning = returning
        self.draw = self._drawer()
        self.production = self._clock()
        #: Per consumer: when its request was issued, its probes so far, and the probed producer.
        self.issued = [0.0] * model.consumers
        self.hops = [1] * model.consumers
        self.place = [0] * model.consumers

    def _drawer(self) -> Callable[[int], int]:
        """The function that draws the producer of a consumer's next probe."""
        uniform01, model, size = self.random.random, self.model, self.size
        weights = [
            kind.fraction / kind.count for kind in model.producers for _ in range(kind.count)
        ]
        if model.reach is not None and model.reach < model.consumers:
            if size != model.consumers or len(model.producers) > 1:
                raise InvalidArgument("reach needs equal producers, as many as consumers")
            offsets = self.random.sample(range(size), model.reach)
            reach = len(offsets)
            return lambda consumer: (consumer + offsets[int(uniform01() * reach)]) % size
        if max(weights) - min(weights) < 1e-12:
            return lambda consumer: int(uniform01() * size)
        sums, numbers, drawn = list(accumulate(weights)), range(size), list[int]()

        def weighted(consumer: int) -> int:
            if not drawn:
                drawn.extend(self.random.choices(numbers, cum_weights=sums, k=4096))
            return drawn.pop()

        return weighted

    def _clock(self) -> Callable[[int], float]:
        """The function that draws the time of a producer's next object."""
        uniform01, log = self.random.random, math.log
        periods = [1 / rate for rate in self.rates]
        if self.uniform:
            return lambda producer: periods[producer] * (0.5 + 0.5 * uniform01())
        return lambda producer: -periods[producer] * log(1 - uniform01())

    def _start(self) -> list[tuple[float, int]]:
        heap = [(self.production(producer), producer) for producer in range(self.size)]
        for consumer in range(self.model.consumers):
            self.issued[consumer] = self.random.expovariate(self.model.consume_rate)
            self.place[consumer] = self.draw(consumer)
            transit = self.random.expovariate(1.0) * self.model.message_time
            heap.append((self.issued[consumer] + transit, self.size + consumer))
        heapify(heap)
        return heap

    def run(self, tally: _Tally) -> QueueRun:
        """The event loop, with everything in local names: it is the hot path."""
        production, request, draw = self.production, self._cycle(tally), self.draw
        uniform01, log, transit = self.random.random, math.log, self.model.message_time
        size, max_hops, capacity = self.size, self.model.max_hops, self.capacity
        hops, place, returning = self.hops, self.place, self.returning
        stored = [0] * size
        waiting: list[deque[int]] = [deque() for _ in range(size)]
        heap = self._start()
        while tally.left:
            now, number = heap[0]
            if number < size:
                if waiting[number]:
                    consumer = waiting[number].popleft()
                    heapreplace(heap, (now + production(number), number))
                    heappush(heap, (request(consumer, now), size + consumer))
                    continue
                stored[number] += 1
                if stored[number] < capacity[number]:
                    heapreplace(heap, (now + production(number), number))
                else:
                    heappop(heap)
                continue
            consumer = number - size
            producer = place[consumer]
            tally.probes += 1
            if stored[producer]:
                heapreplace(heap, (request(consumer, now), number))
                if stored[producer] == capacity[producer]:
                    heappush(heap, (now + production(producer), producer))
                stored[producer] -= 1
                continue
            tally.misses += 1
            if hops[consumer] < max_hops:
                hops[consumer] += 1
                place[consumer] = draw(consumer)
                if returning:
                    now -= transit * log(1 - uniform01())
                heapreplace(heap, (now - transit * log(1 - uniform01()), number))
            else:
                waiting[producer].append(consumer)
                heappop(heap)
        capacity_rate = sum(self.rates) / (0.75 if self.uniform else 1.0)
        return tally.result(now, capacity_rate)

    def _cycle(self, tally: _Tally) -> Callable[[int, float], float]:
        """The function from an object sent to a consumer now to its next request's arrival."""
        uniform01, log, draw = self.random.random, math.log, self.draw
        transit, service = self.model.message_time, 1 / self.model.consume_rate
        issued, hops, place = self.issued, self.hops, self.place

        def request(consumer: int, now: float) -> float:
            reply = now - transit * log(1 - uniform01())
            tally.waited += reply - issued[consumer]
            tally.left -= 1
            if tally.left == tally.mark:
                tally.note(now)
            start = reply - service * log(1 - uniform01())
            issued[consumer] = start
            hops[consumer] = 1
            place[consumer] = draw(consumer)
            return start - transit * log(1 - uniform01())

        return request


class _Tally:
    """The counts of a run, and the means of its parts."""

    def __init__(self, objects: int, progress: Callable[[int], None]) -> None:
        self.left = objects
        self.waited = 0.0
        self.probes = self.misses = 0
        self._objects = objects
        self._progress = progress
        self._counted = objects - int(objects * WARM_UP)
        #: The next value of `left` at which `note` is called.
        self.mark = self._counted
        self._since = 0.0
        self._marks: list[tuple[int, float]] = []

    def note(self, now: float) -> None:
        """The end of the warm-up, or of a part of the run."""
        self._progress(self._objects - self.left)
        if self.left == self._counted:
            self.waited, self.probes, self.misses, self._since = 0.0, 0, 0, now
        self._marks.append((self._counted - self.left, self.waited))
        self.mark = self._counted - len(self._marks) * self._counted // BATCHES

    def result(self, now: float, capacity_rate: float) -> QueueRun:
        elapsed = now - self._since
        return QueueRun(
            objects=self._counted,
            probes=self.probes / self._counted,
            wait=self.waited / self._counted,
            wait_error=self._error(),
            empty=self.misses / self.probes,
            producer_utilization=self._counted / (capacity_rate * elapsed),
            throughput=self._counted / elapsed,
        )

    def _error(self) -> float:
        means = [
            (after[1] - before[1]) / (after[0] - before[0])
            for before, after in pairwise(self._marks)
        ]
        middle = math.fsum(means) / len(means)
        variance = math.fsum((each - middle) ** 2 for each in means) / (len(means) - 1)
        return _STUDENT * math.sqrt(variance / len(means))

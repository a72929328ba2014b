"""Paper 3, algorithm 1 and section IV: Skeen's atomic multicast, simulated in virtual time.

Messages are multicast at the times of a Poisson process, to random destinations. Times are whole
microseconds, so that "no convoy" is exactly 0 and two runs can be compared for equality. Every
message between processes takes `delay`, also from a process to itself, as the paper assumes.

| option | meaning |
|---|---|
| `clock` | "counter", the paper's logical clock; "hybrid": at least the local physical clock |
| `skew_ms` | physical clocks differ by this much between the first and the last process |
| `commute` | probability that two messages commute; None: all conflict, decided as in algorithm 1 |
| `keys` | conflict keys instead: messages conflict iff their keys (one of `keys`) are equal |
| `coordinator` | False: destinations exchange timestamps, equation (6) |
| `advance` | False leaves line 24 out: deliveries then form cycles, a planted bug of the tests |

Corrections of the print: line 24 (advance the clock to the sequence number) is needed for safety,
not only to bound the convoy; line 29 must except m itself, or nothing is ever delivered.

Generic multicast (section IV) delivers m when no *conflicting* message could get a smaller number.
With `commute` = 1 the latency is the base latency exactly; with 0 every delivery happens at the
same time as in algorithm 1.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Final, NamedTuple

from weft.errors import InvalidArgument

from .convoy import check_number, check_processes

CLOCKS: Final = ("counter", "hybrid")
DELAYS: Final = ("constant", "exponential")
MESSAGES_MAX: Final = 10_000_000
#: Conflicting pairs are compared one by one: more messages take minutes.
CYCLE_CHECK_MAX: Final = 5_000


@dataclass(frozen=True, slots=True)
class MulticastModel:
    """Parameters; the paper's figure 4 has 4 processes, 2 destinations and 100 ms."""

    processes: int = 4
    destinations: int = 2
    rate: float = 10.0
    delay_ms: float = 100.0
    delays: str = "constant"
    clock: str = "counter"
    skew_ms: float = 0.0
    commute: float | None = None
    keys: int | None = None
    coordinator: bool = True
    advance: bool = True

    def __post_init__(self) -> None:
        check_processes(self.processes)
        if not 1 <= self.destinations <= self.processes:
            raise InvalidArgument(
                f"destinations must be 1 to {self.processes}, not {self.destinations}"
            )
        check_number("the rate", self.rate, least=0.0, above=True)
        check_number("the delay", self.delay_ms, least=0.001)
        check_number("the skew of the clocks", self.skew_ms, least=0.0)
        if self.delays not in DELAYS or self.clock not in CLOCKS:
            raise InvalidArgument(f"delays are {' or '.join(DELAYS)}, clocks {' or '.join(CLOCKS)}")
        if self.commute is not None and self.keys is not None:
            raise InvalidArgument("give the probability to commute or the number of keys, not both")
        if self.commute is not None:
            check_number("the probability to commute", self.commute, least=0.0, most=1.0)
        if self.keys is not None and self.keys < 1:
            raise InvalidArgument(f"keys must be 1 or more, not {self.keys}")


@dataclass(frozen=True, slots=True)
class MulticastRun:
    """Means over all deliveries, in milliseconds."""

    messages: int
    deliveries: int
    latency_ms: float
    base_ms: float  # until the sequence number arrives
    convoy_ms: float  # from then to the delivery
    convoy_max_ms: float
    orders: tuple[tuple[int, ...], ...]  # per process: messages in the order of delivery
    delivered_us: tuple[tuple[int, ...], ...]  # per process: the times


class Sent(NamedTuple):
    """One message: when it is multicast, and to which processes."""

    sent: int
    destinations: tuple[int, ...]


class _Process:
    """Algorithm 1 at one process; `wait` is Pending and Delivering."""

    def __init__(self, offset: int) -> None:
        self.clock = 0
        self.offset = offset
        #: message -> (value, decided): a timestamp while pending, the sequence number after.
        self.wait: dict[int, tuple[int, bool]] = {}
        #: The same, as a heap with outdated entries: the next message of algorithm 1.
        self.heap: list[tuple[int, int]] = []
        self.decided_at: dict[int, int] = {}
        self.order: list[int] = []
        self.times: list[int] = []


def simulate(
    model: MulticastModel,
    messages: int = 2_000,
    *,
    seed: int = 1,
    progress: Callable[[int], None] | None = None,
) -> MulticastRun:
    """Multicasts the messages and runs until all are delivered."""
    if not 1 <= messages <= MESSAGES_MAX:
        raise InvalidArgument(f"messages must be 1 to {MESSAGES_MAX}, not {messages}")
    return SkeenSimulation(model, messages, seed).run(progress or (lambda done: None))


class SkeenSimulation:
    """Events are (time, serial, action, message, process, value)."""

    def __init__(self, model: MulticastModel, messages: int, seed: int) -> None:
        self.model = model
        self.random = random.Random(seed)
        self.delay_us = round(model.delay_ms * 1000)
        self.conflict = conflict_of(model, seed)
        spread = model.skew_ms * 1000 / max(1, model.processes - 1)
        self.processes = [_Process(round(at * spread)) for at in range(model.processes)]
        self.messages = self._messages(messages)
        self.collected: dict[tuple[int, int], list[int]] = {}
        self.events: list[tuple[int, int, int, int, int, int]] = []
        self.serial = 0
        self.waited: list[int] = []

    def _messages(self, count: int) -> list[Sent]:
        made, now = [], 0.0
        everyone = range(self.model.processes)
        for _ in range(count):
            now += self.random.expovariate(self.model.rate) * 1e6
            chosen = tuple(sorted(self.random.sample(everyone, self.model.destinations)))
            made.append(Sent(round(now), chosen))
        return made

    def _send(self, now: int, action: int, message: int, process: int, value: int = 0) -> None:
        if self.model.delays == "constant":
            transit = self.delay_us
        else:
            transit = round(self.random.expovariate(1.0) * self.delay_us)
        self.serial += 1
        heapq.heappush(self.events, (now + transit, self.serial, action, message, process, value))

    def run(self, progress: Callable[[int], None]) -> MulticastRun:
        actions = (self._assign_timestamp, self._collect, self._assign_number)
        every = max(1, len(self.messages) // 100)
        for number, message in enumerate(self.messages):
            while self.events and self.events[0][0] <= message.sent:
                self._act(actions)
            for process in message.destinations:
                self._send(message.sent, 0, number, process)
            if not number % every:
                progress(number)
        while self.events:
            self._act(actions)
        progress(len(self.messages))
        return self._result()

    def _act(self, actions: tuple[Callable[[int, int, int, int], None], ...]) -> None:
        now, _, action, message, process, value = heapq.heappop(self.events)
        actions[action](now, message, process, value)

    def _assign_timestamp(self, now: int, message: int, at: int, _: int) -> None:
        """Lines 10 to 15."""
        stamp = self._stamp(now, message, at)
        destinations = self.messages[message].destinations
        to = destinations[:1] if self.model.coordinator else destinations
        for other in to:
            self._send(now, 1, message, other, stamp)

    def _stamp(self, now: int, message: int, at: int) -> int:
        """Gives the message a timestamp of the process; it is pending from now on."""
        process = self.processes[at]
        process.clock += 1
        if self.model.clock == "hybrid":
            process.clock = max(process.clock, now + process.offset)
        process.wait[message] = (process.clock, False)
        heapq.heappush(process.heap, (process.clock, message))
        return process.clock

    def _collect(self, now: int, message: int, at: int, stamp: int) -> None:
        """Lines 16 to 20, at the coordinator, or at every destination."""
        stamps = self.collected.setdefault((message, at), [])
        stamps.append(stamp)
        destinations = self.messages[message].destinations
        if len(stamps) < len(destinations):
            return
        del self.collected[message, at]
        if not self.model.coordinator:
            self._assign_number(now, message, at, max(stamps))
            return
        for other in destinations:
            self._send(now, 2, message, other, max(stamps))

    def _assign_number(self, now: int, message: int, at: int, number: int) -> None:
        """Lines 21 to 26."""
        process = self.processes[at]
        if self.model.advance:
            process.clock = max(process.clock, number)
        process.wait[message] = (number, True)
        heapq.heappush(process.heap, (number, message))
        process.decided_at[message] = now
        if self.model.commute is None and self.model.keys is None:
            self._deliver_in_order(now, process)
        else:
            self._deliver_generic(now, process)

    def _deliver_in_order(self, now: int, process: _Process) -> None:
        """Lines 27 to 32: the smallest of all, if it is decided."""
        while process.heap:
            value, message = process.heap[0]
            current = process.wait.get(message)
            if current is None or current[0] != value:
                heapq.heappop(process.heap)  # outdated
            elif current[1]:
                heapq.heappop(process.heap)
                self._deliver(now, process, message)
            else:
                return

    def _deliver_generic(self, now: int, process: _Process) -> None:
        """Section IV: the smallest of those that it conflicts with. Only smaller ones block."""
        smaller: list[int] = []
        for message in sorted(process.wait, key=lambda each: (process.wait[each][0], each)):
            blocked = any(self.conflict(message, other) for other in smaller)
            if process.wait[message][1] and not blocked:
                self._deliver(now, process, message)
            else:
                smaller.append(message)

    def _deliver(self, now: int, process: _Process, message: int) -> None:
        del process.wait[message]
        self.waited.append(now - process.decided_at.pop(message))
        process.order.append(message)
        process.times.append(now)

    def _result(self) -> MulticastRun:
        orders = [process.order for process in self.processes]
        times = [process.times for process in self.processes]
        return summary(self.messages, orders, times, self.waited)


def summary(
    messages: Sequence[Sent],
    orders: Sequence[Sequence[int]],
    times_us: Sequence[Sequence[int]],
    waited_us: Sequence[int],
) -> MulticastRun:
    """The means of a run: per process the delivered messages and the times, and all the waits."""
    count, convoy = len(waited_us), sum(waited_us)
    latency = sum(
        time - messages[message].sent
        for order, times in zip(orders, times_us, strict=True)
        for message, time in zip(order, times, strict=True)
    )
    return MulticastRun(
        messages=len(messages),
        deliveries=count,
        latency_ms=latency / count / 1000,
        base_ms=(latency - convoy) / count / 1000,
        convoy_ms=convoy / count / 1000,
        convoy_max_ms=max(waited_us) / 1000,
        orders=tuple(map(tuple, orders)),
        delivered_us=tuple(map(tuple, times_us)),
    )


def conflict_of(model: MulticastModel, seed: int) -> Callable[[int, int], bool]:
    """Whether two messages conflict: a function of their numbers and the seed alone."""
    if model.keys is not None:
        keys = model.keys
        return lambda one, two: key_of(one, keys, seed) == key_of(two, keys, seed)
    commute = model.commute or 0.0
    limit = math.floor(commute * 2**64)
    return lambda one, two: _mixed(min(one, two), max(one, two) + 1, seed) >= limit


def key_of(message: int, keys: int, seed: int) -> int:
    """The conflict key of a message, one of `keys`."""
    return _mixed(message, 0, seed) % keys


def _mixed(one: int, two: int, seed: int) -> int:
    """64 well-mixed bits of three numbers (the finaliser of SplitMix64)."""
    bits = (one * 0x9E3779B97F4A7C15 + two * 0xC2B2AE3D27D4EB4F + seed + 1) % 2**64
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB % 2**64
    return bits ^ (bits >> 31)


def has_cycle(run: MulticastRun, conflict: Callable[[int, int], bool] | None = None) -> bool:
    """True if the order of conflicting deliveries is not a partial order: Ordering is violated."""
    before: dict[int, set[int]] = {}
    for order in run.orders:
        if conflict is None:
            for earlier, later in pairwise(order):
                before.setdefault(later, set()).add(earlier)
            continue
        if len(order) > CYCLE_CHECK_MAX:
            raise InvalidArgument(f"at most {CYCLE_CHECK_MAX} deliveries per process are compared")
        for at, later in enumerate(order):
            before.setdefault(later, set()).update(
                earlier for earlier in order[:at] if conflict(earlier, later)
            )
    try:
        TopologicalSorter(before).prepare()
    except CycleError:
        return True
    return False

"""The real node core in virtual time beside the simulator of paper 1.

``python -m tests.sim.stochastic`` runs eight nodes, each with its producer, and consumers that walk
as the clients do (``weft.probe_walk``). Every message takes an exponential time, as in the paper;
nodes answer in no time. Each node is a cluster of its own: replication would add times that the
paper's model does not have, and the client chooses the node of a probe in any case.

The figures correspond as follows:

- A hop of a client is a request and an answer, so the paper's simulator runs with `returning`.
- The paper's production thread stops when its buffer holds f objects. Here the producer holds one
  object in hand and waits for room: the node's bound is f - 1.
- A wait at a node ends after a second, which is 10,000 ticks here: about never.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from weft.dht.view import Member
from weft.models.johnson import ProducerType, QueueModel
from weft.models.johnson_sim import simulate
from weft.persistence.memory import MemoryStore
from weft.probe_walk import ProbeMemory, ProbeWalk
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.core.node_core import NodeCore

#: One tick of the paper, in microseconds of the nodes' clocks.
TICK_US: Final = 100
NODES: Final = 8
#: The paper's f, mean time to produce and to consume, and mean time of a message, in ticks.
BUFFERS: Final = 6
PRODUCE: Final = 100.0
CONSUME: Final = 100.0
MESSAGE: Final = 1.0
MAX_HOPS: Final = 3
LOADS: Final = (0.5, 0.75, 1.0, 2.0)
#: Rates of the unbalanced run: half of the producers make nine times as much.
FAST: Final = 9.0
_QUEUE: Final = "events"
_WARM_UP: Final = 0.1
_PAYLOAD: Final = wire.encode(wire.Payload([b"object"]))
_LEASE_MS: Final = 3_600_000

Event = Callable[[], None]


class Measured(NamedTuple):
    hops: float
    wait: float


class Node:
    """A node core that is its whole cluster."""

    def __init__(self, name: str, settings: Settings, seed: int) -> None:
        entropy = random.Random(seed)
        self.name = name
        self._store = MemoryStore()
        self.core = NodeCore(
            name, name, self._store, partitions=4, entropy=lambda: entropy.getrandbits(62) + 1
        )
        self.core.found(Member(f"{name}:1", name, f"{name}:2", f"{name}:3"), 0)
        self.core.recover(1)
        self.now = 1
        while self.core.leads != 5:
            self.round(self.now + 1)
        self.round(self.now + 1, ("create", wire.CreateStochasticQueue(_QUEUE, settings), ()))

    def round(
        self, now: int, *requests: tuple[object, wire.AnyRequest, tuple[bytes, ...]]
    ) -> list[tuple[object, wire.AnyAnswer]]:
        self.now = now
        self.core.begin(now)
        for to, request, payload in requests:
            self.core.handle(request, payload, to, plain=False)
        ready = self.core.end()
        if ready.writes:
            self._store.write(ready.writes, sync=True)
        return [(answered.to, answered.answer) for answered in ready.answers]


@dataclass
class Consumer:
    number: int
    memory: ProbeMemory
    walk: ProbeWalk
    issued: int = 0
    probes: int = 0


class Run:
    """Producers, consumers and nodes on one virtual clock."""

    def __init__(
        self, rates: list[float], consumers: int, lots: int, access: str, seed: int
    ) -> None:
        self._random = random.Random(seed)
        self._rates = rates
        self.now = 1_000
        self._events: list[tuple[int, int, Event]] = []
        self._order = itertools.count()
        settings = Settings(
            lease_ms=_LEASE_MS, dedup_window_ms=1_000, kind="stochastic", buffers=BUFFERS - 1,
            max_hops=MAX_HOPS, access=access,
        )  # fmt: skip
        self._nodes = [Node(f"n{n}", settings, seed * 100 + n) for n in range(len(rates))]
        self._by_name = {node.name: node for node in self._nodes}
        self._batches = itertools.count(1)
        self._callers: dict[object, Callable[[wire.AnyAnswer], None]] = {}
        self._woken: dict[str, int] = {}
        self._left, self._counted = lots, lots - int(lots * _WARM_UP)
        self._waited = self._probes = 0
        report = wire.ProbeReport(0.0, MAX_HOPS, access)
        self._consumers = [self._consumer(n, report) for n in range(consumers)]

    def run(self) -> Measured:
        for number in range(len(self._nodes)):
            self._produce(number)
        for consumer in self._consumers:
            self._after(CONSUME, self._begin_of(consumer))
        while self._left:
            self.now, _, event = heapq.heappop(self._events)
            event()
        return Measured(self._probes / self._counted, self._waited / self._counted / TICK_US)

    # --- producers ------------------------------------------------------------------------

    def _produce(self, number: int) -> None:
        self._after(PRODUCE / self._rates[number], lambda: self._push(number, next(self._batches)))

    def _push(self, number: int, batch: int) -> None:
        node = self._nodes[number]

        def pushed(answer: wire.AnyAnswer) -> None:
            if isinstance(answer, wire.Pushed):
                self._produce(number)
                return
            assert isinstance(answer, wire.Failure), answer
            assert answer.code == "QUEUE_FULL", answer
            self._ask(node, wire.Room(_QUEUE, 0, number, batch, 1, 60_000), roomy)

        def roomy(answer: wire.AnyAnswer) -> None:
            assert isinstance(answer, wire.Done), answer
            self._push(number, batch)  # also after a wait in vain: the node refuses again

        self._ask(node, wire.Push(_QUEUE, number, batch, 1), pushed, _PAYLOAD)

    # --- consumers ------------------------------------------------------------------------

    def _consumer(self, number: int, report: wire.ProbeReport) -> Consumer:
        memory = ProbeMemory(report)
        return Consumer(number, memory, self._walk(memory))

    def _walk(self, memory: ProbeMemory) -> ProbeWalk:
        return ProbeWalk([*self._by_name], memory, self._random.randrange)

    def _begin_of(self, consumer: Consumer) -> Event:
        def begin() -> None:
            consumer.issued, consumer.probes = self.now, 0
            consumer.walk = self._walk(consumer.memory)
            self._probe(consumer)

        return begin

    def _probe(self, consumer: Consumer) -> None:
        probe = consumer.walk.next(60_000)
        assert probe is not None, "a pop with time left goes on"
        consumer.probes += 1
        node = self._by_name[probe.node]
        request = wire.Pop(_QUEUE, 1, probe.wait_ms)

        def answered(answer: wire.AnyAnswer) -> None:
            self._after(MESSAGE, lambda: self._received(consumer, node, answer))

        self._after(MESSAGE, lambda: self._ask(node, request, answered))

    def _received(self, consumer: Consumer, node: Node, answer: wire.AnyAnswer) -> None:
        assert isinstance(answer, wire.Popped), answer
        assert answer.probe is not None, "a stochastic queue reports"
        consumer.memory.learn(node.name, answer.probe)
        if not answer.lent:
            consumer.walk.empty(node.name)
            self._probe(consumer)
            return
        (lent,) = answer.lent
        if self._left <= self._counted:
            self._waited += self.now - consumer.issued
            self._probes += consumer.probes
        self._left -= 1
        receipt = wire.Receipt(lent.partition, lent.lsn, lent.nonce)
        self._ask(node, wire.Ack(_QUEUE, [receipt]), _acked)
        self._after(CONSUME, self._begin_of(consumer))

    # --- the clock ------------------------------------------------------------------------

    def _after(self, mean: float, event: Event) -> None:
        """An exponential time from now."""
        self._at(self.now + int(self._random.expovariate(1 / mean) * TICK_US), event)

    def _at(self, when: int, event: Event) -> None:
        heapq.heappush(self._events, (when, next(self._order), event))

    def _ask(
        self,
        node: Node,
        request: wire.AnyRequest,
        answered: Callable[[wire.AnyAnswer], None],
        *payload: bytes,
    ) -> None:
        token = next(self._order)
        self._callers[token] = answered
        self._round(node, (token, request, payload))

    def _round(
        self, node: Node, *requests: tuple[object, wire.AnyRequest, tuple[bytes, ...]]
    ) -> None:
        for to, answer in node.round(self.now, *requests):
            self._callers.pop(to)(answer)
        due = max(node.core.next_due(), self.now + 1)
        if not self.now < self._woken.get(node.name, 0) <= due:
            self._woken[node.name] = due
            self._at(due, lambda: self._wake(node, due))

    def _wake(self, node: Node, due: int) -> None:
        if self._woken.get(node.name) == due:
            self._round(node)


def _acked(answer: wire.AnyAnswer) -> None:
    assert isinstance(answer, wire.Settled), answer
    assert answer.done == 1, answer


def of_core(
    load: float, lots: int, *, access: str = "even", fast: float = 1.0, seed: int = 1
) -> Measured:
    """The real core; half of the producers are `fast` times as fast as the others."""
    return Run(rates_of(fast), consumers_of(load), lots, access, seed).run()


def of_simulator(
    load: float, objects: int, *, fast: float = 1.0, share: float = 0.5, seed: int = 1
) -> Measured:
    """The paper's simulator; `share` of the probes go to the fast producers."""
    half, rates = NODES // 2, rates_of(fast)
    producers = (
        ProducerType(half, rates[0] / PRODUCE, share, BUFFERS),
        ProducerType(half, rates[-1] / PRODUCE, 1 - share, BUFFERS),
    )
    model = QueueModel(producers, consumers_of(load), 1 / CONSUME, MAX_HOPS, MESSAGE)
    run = simulate(model, objects, seed=seed, returning=True)
    return Measured(run.probes, run.wait)


def rates_of(fast: float) -> list[float]:
    """Rates relative to the mean: the load is the same for every `fast`."""
    slow = 2 / (1 + fast)
    return [fast * slow] * (NODES // 2) + [slow] * (NODES // 2)


def consumers_of(load: float) -> int:
    return round(load * NODES)


def best_split(load: float, objects: int) -> tuple[float, Measured]:
    """The fixed share of the probes for the fast producers with the shortest wait."""
    shares = [0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95]
    found = [(share, of_simulator(load, objects, fast=FAST, share=share)) for share in shares]
    return min(found, key=lambda each: each[1].wait)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lots", type=int, default=50_000, help="lots of each run of the core")
    parser.add_argument("--objects", type=int, default=400_000, help="objects of the simulator")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    bad = 0
    print(" load     hops  simulator     off        W  simulator     off")
    for load in LOADS:
        core = of_core(load, asked.lots, seed=asked.seed)
        model = of_simulator(load, asked.objects, seed=asked.seed)
        hops_off, wait_off = core.hops / model.hops - 1, core.wait / model.wait - 1
        bad += abs(hops_off) > 0.03 or abs(wait_off) > (0.12 if load == 1 else 0.08)
        print(
            f"{load:>5} {core.hops:>8.3f} {model.hops:>10.3f} {hops_off:>+7.1%} "
            f"{core.wait:>8.2f} {model.wait:>10.2f} {wait_off:>+7.1%}", flush=True,
        )  # fmt: skip
    share, best = best_split(1.0, asked.objects)
    adaptive = of_core(1.0, asked.lots, access="rates", fast=FAST, seed=asked.seed)
    ratio = adaptive.wait / best.wait
    bad += ratio > 1.3
    print(
        f"producers 9:1, load 1: W {adaptive.wait:.2f} with measured rates, {best.wait:.2f} with "
        f"the best fixed split ({share:.0%} to the fast): {ratio:.2f}"
    )
    return bad


if __name__ == "__main__":
    sys.exit(main())

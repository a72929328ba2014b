"""Messages between nodes for the pops of plain clients, counted in a world without faults.

A plain client, such as a gRPC client, talks to one node, and that node searches the others. Real
nodes run on the simulated network, so every figure is a count and does not depend on the clock of
the machine that runs it. Two loads:

* *backlog*: messages lie on all nodes; consumers pop and acknowledge them one by one.
* *arrivals*: one message at a time arrives, on the node given by its hash, at a steady interval,
  so that every pop waits.

A message between nodes is one frame on the wire: everything that one round of a node sends to one
peer, as counted by ``weft_peer_messages_total``. Frames with a ping go out anyway and are excluded.
Frames are counted separately for the *search* (requests for other nodes' messages and for the
metadata list, announcements, returns, acknowledgements) and for *replication* (pushes, leadership
checks).

``python -m tests.sim.plain_costs`` prints the table of docs/scaling.md.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from weft.dht import placement
from weft.dht.messages import AnyMessage, PeerReply, PeerRequest, Ping, ReadyAnnouncement
from weft.proto import wire
from weft.proto.settings import Settings

from .clients import Batch, Used
from .machine import Machine
from .stage import Stage
from .world import SECOND

QUEUE = "work"
PARTITIONS_PER_NODE = 4
LEASE_MS = 30_000
#: Time that a consumer spends on a message.
WORK_US = 200


@dataclass
class Costs:
    """Frames between nodes, by the kinds of messages in them, and the outcome of messages."""

    delivered: int = 0
    #: By kind of message, pings left out.
    messages: Counter[str] = field(default_factory=Counter)
    search_frames: int = 0
    other_frames: int = 0
    stolen: int = 0
    used: int = 0
    #: Leases that ended without an acknowledgement.
    expired: int = 0
    #: Longest time from the push of a message to its delivery, in microseconds.
    slowest_us: int = 0

    @property
    def returned(self) -> int:
        return self.stolen - self.used

    def per_message(self) -> float:
        return self.search_frames / max(1, self.delivered)


class Meter:
    """Counts the frames between nodes of a world."""

    def __init__(self, stage: Stage, costs: Costs) -> None:
        self._world = stage.world
        self._costs = costs
        self._frames: dict[tuple[int, str, str], set[str]] = {}
        carry = self._world._carry

        def counted(sender: str, to: str, message: AnyMessage) -> None:
            key = self._world.now, sender, to
            self._frames.setdefault(key, set()).add(kind(message))
            costs.messages[kind(message)] += 1
            carry(sender, to, message)

        self._world._carry = counted  # type: ignore[method-assign]

    def finish(self) -> None:
        for kinds in self._frames.values():
            if "Ping" in kinds:
                continue
            if any(each in SEARCH for each in kinds):
                self._costs.search_frames += 1
            else:
                self._costs.other_frames += 1
        del self._costs.messages["Ping"]


def kind(message: AnyMessage) -> str:
    match message:
        case PeerRequest():
            return type(message.request).__name__
        case PeerReply():
            return type(message.answer).__name__
        case ReadyAnnouncement():
            return "ReadyAnnouncement"
        case Ping():
            return "Ping"
        case _:
            return type(message).__name__


#: Kinds of messages that nodes exchange on behalf of consumers.
SEARCH = {
    "Pop",
    "Popped",
    "Where",
    "Nodes",
    "ReadyAnnouncement",
    "Ack",
    "Nack",
    "Settled",
    "Failure",
}


class Load:
    """A cluster with one queue, a producer that knows the view, and plain consumers."""

    def __init__(self, nodes: int, *, settings: Settings | None = None) -> None:
        self.stage = Stage(nodes, PARTITIONS_PER_NODE * nodes)
        self.world = self.stage.world
        self.queue = Used(QUEUE, 7, settings or Settings(lease_ms=LEASE_MS))
        self.stage.clients.queues[0] = self.stage.queue = self.queue
        self.stage.make(self.queue)
        self.names = sorted(self.world.machines)
        self.list_owner = self.world.newest_view.places[
            placement.of_text(QUEUE, self.world.options.partitions)
        ].primary
        self._number = 0
        self._tokens = 0
        self._pushed_at: dict[bytes, int] = {}
        self.costs = Costs()
        self.received: list[bytes] = []

    # --- pushing --------------------------------------------------------------------------

    def push(self, on: str | None = None, *, delay_ms: int = 0) -> None:
        """Push one message to the node of its hash; `on`: a message that hashes to this node."""
        view, world = self.world.newest_view, self.world
        while True:
            self._number += 1
            number = placement.of_push(
                QUEUE, self.queue.settings.ordered, self.queue.producer, self._number, None,
                world.options.partitions,
            )  # fmt: skip
            node = view.places[number].primary
            if on is None or node == on:
                break
        body = str(self._number).encode()
        batch = Batch(self.queue, self._number, [body], sent_at=world.now)
        world.checker.ledger.batches[self.queue.producer, self._number] = batch
        self._pushed_at[body] = world.now + delay_ms * 1000
        request = wire.Push(QUEUE, self.queue.producer, self._number, 1, delay_ms)
        payload = wire.encode(wire.Payload(batch.bodies))

        def pushed(_: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]) -> None:
            assert isinstance(answer, wire.Pushed), answer
            world.checker.ledger.pushed(batch, answer)

        world.ask(world.machines[node], request, (payload,), pushed, plain=False)

    def fill(self, count: int) -> None:
        for number in range(count):
            self.push()
            if number % 50 == 49:
                self.run(SECOND // 20)
        self.run(3 * SECOND)

    # --- popping --------------------------------------------------------------------------

    def ask(
        self, node: str, request: wire.AnyRequest, then: Callable[[wire.AnyAnswer], None]
    ) -> object:
        """A plain client's call over a local connection, without a timeout."""
        self._tokens += 1
        token = ("plain", self._tokens)
        machine = self.world.machines[node]
        self.world._callers[token] = (
            request,
            lambda _, answer, frames: then(answer),
        )
        self.world.round(
            machine, lambda node_core: node_core.handle(request, (), token, plain=True)
        )
        return token

    def cancel(self, node: str, token: object) -> None:
        """The client disconnects."""
        self.world._callers[token] = (self.world._callers[token][0], lambda *_: None)
        self.world.round(self.world.machines[node], lambda node_core: node_core.cancel(token))

    def run(self, span_us: int) -> None:
        self.world.run(self.world.now + span_us)

    def measure(self) -> Meter:
        """Count from now on."""
        self._loot_before = self._prefetched()
        return Meter(self.stage, self.costs)

    def finish(self, meter: Meter) -> Costs:
        meter.finish()
        stolen, used = self._prefetched()
        self.costs.stolen = stolen - self._loot_before[0]
        self.costs.used = used - self._loot_before[1]
        self.costs.expired = sum(
            machine.node_core.engine.state.queues[QUEUE].expired_leases
            for machine in self.world.machines.values()
        )
        return self.costs

    def _prefetched(self) -> tuple[int, int]:
        loots = [
            machine.node_core.remote_pop.prefetched for machine in self.world.machines.values()
        ]
        return sum(prefetched.stolen for prefetched in loots), sum(
            prefetched.used for prefetched in loots
        )


class Consumer:
    """A plain client at one node that pops and acknowledges one message after the other."""

    def __init__(
        self,
        load: Load,
        node: str,
        *,
        wait_ms: int = 20_000,
        work_us: int = WORK_US,
        limit: int = 1,
    ) -> None:
        self._load, self._node = load, node
        self._request = wire.Pop(QUEUE, limit, wait_ms)
        self._work_us = work_us
        self.delivered = 0
        self.stopped = False
        self.token: object = None
        self._pop()

    def cancel(self) -> None:
        self.stopped = True
        self._load.cancel(self._node, self.token)

    def _pop(self) -> None:
        if not self.stopped:
            self.token = self._load.ask(self._node, self._request, self._popped)

    def _popped(self, answer: wire.AnyAnswer) -> None:
        assert isinstance(answer, wire.Popped), answer
        load, world = self._load, self._load.world
        if not answer.lent:
            self._pop()
            return
        for lent in answer.lent:
            self.delivered += lent.count
            load.costs.delivered += lent.count
            pushed_at = load._pushed_at[str(lent.batch).encode()]
            late_us = world.now - pushed_at
            load.costs.slowest_us = max(load.costs.slowest_us, late_us)
            load.received.append(str(lent.batch).encode())
        receipts = [
            wire.Receipt(one.partition, one.lsn, one.nonce, [(one.first, one.count)])
            for one in answer.lent
        ]
        ack = wire.Ack(QUEUE, receipts)

        def acknowledge() -> None:
            load.ask(self._node, ack, lambda _: self._pop())

        world.after(self._work_us, acknowledge)


def backlog(nodes: int, messages: int, consumers: int = 1, work_us: int = WORK_US) -> Costs:
    """Consumers on different nodes empty a queue whose messages lie on all nodes."""
    load = Load(nodes)
    load.fill(messages)
    meter = load.measure()
    names = deque(name for name in load.names if name != load.list_owner)
    all_consumers = [
        Consumer(load, names[n % len(names)], work_us=work_us) for n in range(consumers)
    ]
    for _ in range(6000):
        if load.costs.delivered >= messages:
            break
        load.run(SECOND // 100)
    for consumer in all_consumers:
        consumer.stopped = True
    costs = load.finish(meter)
    assert len(load.received) == messages == len(set(load.received)), load.costs
    return costs


def arrivals(nodes: int, messages: int, every_us: int, consumers: int = 1) -> Costs:
    """Consumers wait, and one message at a time arrives."""
    load = Load(nodes)
    names = deque(name for name in load.names if name != load.list_owner)
    for number in range(consumers):
        Consumer(load, names[number % len(names)])
    load.run(3 * SECOND + 137)
    meter = load.measure()
    for _ in range(messages):
        load.push()
        load.run(every_us)
    costs = load.finish(meter)
    assert len(load.received) == messages == len(set(load.received)), load.costs
    return costs


def idle(nodes: int, seconds: int) -> Costs:
    """One consumer waits, and nothing arrives."""
    load = Load(nodes)
    names = [name for name in load.names if name != load.list_owner]
    Consumer(load, names[0])
    load.run(5 * SECOND)
    meter = load.measure()
    load.run(seconds * SECOND)
    return load.finish(meter)


def main() -> int:
    print(
        f"{'load':<34} {'nodes':>5} {'search':>8} {'other':>8} {'stolen':>7} {'used':>6} "
        f"{'returned':>8} {'expired':>7} {'slowest ms':>10}"
    )
    rows: list[tuple[str, int, Costs]] = []
    for nodes in (3, 8):
        rows.append(("backlog of 2,000", nodes, backlog(nodes, 2000)))
        rows.append(("backlog of 300, 20 ms of work", nodes, backlog(nodes, 300, 1, 20_000)))
        rows.append(("one arrival each 100 ms", nodes, arrivals(nodes, 100, 100_000)))
        rows.append(("the same, 4 consumers", nodes, arrivals(nodes, 100, 100_000, 4)))
        rows.append(("one arrival each 3 s", nodes, arrivals(nodes, 10, 3 * SECOND)))
    for name, nodes, costs in rows:
        print(
            f"{name:<34} {nodes:>5} {costs.per_message():>8.2f} "
            f"{costs.other_frames / costs.delivered:>8.2f} {costs.stolen:>7} {costs.used:>6} "
            f"{costs.returned:>8} {costs.expired:>7} {costs.slowest_us / 1000:>10.1f}"
        )
        each = {k: round(v / costs.delivered, 2) for k, v in costs.messages.most_common()}
        print("    per message:", ", ".join(f"{k} {v}" for k, v in each.items()))
    for nodes in (3, 8):
        costs = idle(nodes, 20)
        print(f"nothing arrives, {nodes} nodes: {costs.search_frames / 20:.2f} frames a second")
    return 0


if __name__ == "__main__":
    sys.exit(main())

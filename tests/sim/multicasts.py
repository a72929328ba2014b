"""Clients that push to several queues, named by the client or bound to a topic.

23 a multicast is stored in all its queues or in none, once in each, and its payload lives as long
as a queue refers to it: every copy of an acknowledged multicast is delivered, and of another one
every copy or none.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from weft.proto import wire

from .clients import FANS, RETRY, Batch, Clients, Used
from .ledger import pushed_of

if TYPE_CHECKING:
    from .machine import Machine
    from .world import World

#: The topic with all the queues.
TOPIC: Final = "news"
_PRODUCER: Final = 60


class Multicasts:
    def __init__(self, world: World, clients: Clients) -> None:
        self._world = world
        self._clients = clients
        self._rng = random.Random(f"multicasts {world.seed}")
        self._queues = [queue for queue in clients.queues if queue.name in FANS]
        self._batches: list[Batch] = []
        #: Requests that make the topic, in order; the first is under way.
        self._setup: list[wire.AnyRequest] = [wire.CreateTopic(TOPIC)]
        self._setup += [wire.Bind(TOPIC, queue.name) for queue in self._queues]

    def schedule(self, span: int) -> None:
        world, rng = self._world, self._rng
        used = Used(self._queues[0].name, _PRODUCER, self._queues[0].settings, made=True)
        for number in range(world.options.pushes // 2):
            bodies = [f"fan.{number}.{index}".encode() for index in range(rng.randrange(1, 4))]
            copies = len(self._queues)
            delayed = world.options.delays and rng.random() < 0.3
            delay_us = rng.randrange(2_000) * 1000 if delayed else 0
            batch = Batch(used, number, bodies * copies, delay_us=delay_us, copies=copies)
            world.checker.ledger.batches[_PRODUCER, number] = batch
            self._batches.append(batch)
            world.after(rng.randrange(span), partial(self._push, batch))
        self._clients.batches += self._batches
        self._make_topic()

    def _make_topic(self) -> None:
        """Creates the topic and binds the queues, one request after the other."""
        world = self._world
        if not self._setup:
            return
        world.after(RETRY, self._make_topic)
        machine = world.member()
        if machine is None or not all(queue.made for queue in self._queues):
            return
        request = self._setup[0]

        def answered(_: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]) -> None:
            if isinstance(answer, wire.Created) and self._setup[:1] == [request]:
                del self._setup[0]

        world.ask(machine, request, (), answered, plain=True)

    def _push(self, batch: Batch, *, again: bool = False) -> None:
        world = self._world
        if batch.done and not again:
            return
        if not again:
            world.after(RETRY, lambda: self._push(batch))
        machine = world.member()
        if machine is None or not all(queue.made for queue in self._queues):
            return
        by_topic = batch.number % 3 == 2
        if by_topic and self._setup:
            return  # until all queues are bound, the topic means fewer queues
        batch.sent_at = batch.sent_at or world.now
        bodies = batch.bodies[: len(batch.bodies) // batch.copies]
        rest = _PRODUCER, batch.number, len(bodies), batch.delay_us // 1000
        names = [queue.name for queue in self._queues]
        request: wire.Multicast | wire.PushTopic = wire.Multicast(names, *rest)
        if by_topic:
            request = wire.PushTopic(TOPIC, *rest)
        plain = batch.number % 2 == 0
        if not plain:
            number = batch.partition(world.options.partitions)
            machine = world.machines[machine.node_core.view.places[number].primary]
        payload = wire.encode(wire.Payload(bodies))
        world.ask(machine, request, (payload,), partial(self._pushed, batch), plain=plain)

    def _pushed(
        self, batch: Batch, _: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]
    ) -> None:
        if not isinstance(answer, wire.Multicasted):
            return
        first, ledger = not batch.done, self._world.checker.ledger
        self._world.checker.that(
            [copy.queue for copy in answer.copies] == [queue.name for queue in self._queues],
            f"23: batch {batch.number} was answered for {answer.copies}",
        )
        ledger.pushed(batch, *pushed_of(answer))
        if first and self._rng.random() < 0.3:  # a duplicate that was in flight for long
            delay = self._rng.randrange(2_000_000)
            self._world.after(delay, lambda: self._push(batch, again=True))

    def disabled(self) -> str:
        """What is missing for multicasts: every member has to say once that it knows them."""
        machines = [each for each in self._world.machines.values() if each.up]
        if any(each.node_core.engine.destinations.enabled for each in machines):
            return ""
        return "multicasts are not enabled" if self._batches else ""

    def check(self) -> None:
        """At the end of the run, when every queue is empty."""
        checker = self._world.checker
        for batch in self._batches:
            found = checker.ledger.indexes.get((_PRODUCER, batch.number), set())
            missing = set(range(len(batch.bodies))) - found
            whole = not missing or (not found and not batch.done)
            checker.that(whole, f"23: of batch {batch.number} the messages {missing} never came")

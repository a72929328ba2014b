"""Nodes that do not know what has happened elsewhere, played on purpose in the simulated world."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from weft.dht import placement
from weft.proto import wire

from . import faults, settled
from .clients import Batch, Clients, Used
from .machine import Machine
from .options import Options
from .planted import planted
from .run import _until
from .violation import Violation
from .world import SECOND, World


class Stage:
    """A healthy cluster, and clients whose every step is told."""

    def __init__(self, nodes: int, partitions: int) -> None:
        options = Options(nodes=nodes, partitions=partitions, crashes=False)
        self.world = World(3, options)
        self.clients = Clients(self.world)
        self.world.build()
        _until(self.world, lambda: settled.whole(self.world), 20 * SECOND)
        _until(self.world, lambda: settled.level(self.world), 40 * SECOND)
        self.queue = self.clients.queues[0]

    def make(self, queue: Used) -> None:
        self.clients.make(queue)
        _until(self.world, lambda: settled.made(self.clients), 5 * SECOND)

    def push(self, partition: int) -> Batch:
        """A batch that hashes to a partition; returns when it is acknowledged."""
        producer, count = self.queue.producer, self.world.options.partitions
        number = next(
            n for n in range(1, 999, 2) if placement.of_batch(producer, n, count) == partition
        )
        batch = Batch(self.queue, number, [b"one"])
        self.clients.batches.append(batch)
        self.world.checker.ledger.batches[producer, number] = batch
        self.clients.push(batch)
        _until(self.world, lambda: "" if batch.done else "the push", 5 * SECOND)
        return batch

    def ask(self, machine: Machine, request: wire.AnyRequest) -> wire.AnyAnswer | None:
        """What one node itself answers within two seconds."""
        said: list[wire.AnyAnswer] = []

        def answered(_: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]) -> None:
            said.append(answer)

        self.world.ask(machine, request, (), answered, plain=False)
        for _ in range(200):
            if not said:
                self.world.run(self.world.now + SECOND // 100)
        return said[0] if said else None

    def cut_off(self, name: str) -> None:
        for other in self.world.machines:
            self.world.network.cut(name, other)
            self.world.network.cut(other, name)

    def primary(self, partition: int) -> Machine:
        return self.world.machines[self.world.newest_view.places[partition].primary]


def _a_replaced_primary_is_asked() -> None:
    stage = Stage(3, 1)
    stage.make(stage.queue)
    stage.push(0)
    old = stage.primary(0)
    stage.cut_off(old.name)
    stage.world.run(stage.world.now + 4 * SECOND)
    new = stage.primary(0)
    assert new is not old
    popped = stage.ask(new, wire.Pop("work", 1))
    assert isinstance(popped, wire.Popped)
    (lent,) = popped.lent
    receipt = wire.Receipt(lent.partition, lent.lsn, lent.nonce, [(lent.first, lent.count)])
    assert stage.ask(new, wire.Ack("work", [receipt])) == wire.Settled(1, 0, [])
    assert old.loom.core.serving(0), "it knows nothing of all that"
    assert stage.ask(old, wire.Pop("work", 1)) is None


def test_a_primary_that_was_replaced_lends_nothing() -> None:
    _a_replaced_primary_is_asked()


def test_without_the_barrier_it_lends_what_was_acked() -> None:
    with planted("no_barrier"), pytest.raises(Violation, match="11: "):
        _a_replaced_primary_is_asked()


def _a_queue_is_not_known_yet() -> list[bytes]:
    """The node that takes a partition over has not heard of the queue whose messages are in it."""
    stage = Stage(5, 5)
    world = stage.world
    *places, catalogue = world.newest_view.places
    keeper = catalogue.primary
    number, place = next(
        (n, p)
        for n, p in enumerate(places)
        if keeper not in p.sync and p.sync[1] not in catalogue.sync
    )
    dies, follows = place.sync
    world.network.cut(keeper, follows)
    stage.make(stage.queue)
    stage.push(number)
    assert "work" not in world.machines[follows].loom.engine.state.queues
    world.crash(world.machines[dies])
    world.run(world.now + 4 * SECOND)
    assert stage.primary(number).name == follows
    faults.heal(world)
    world.run(world.now + 3 * SECOND)
    popped = stage.ask(stage.primary(number), wire.Pop("work", 9))
    assert isinstance(popped, wire.Popped)
    return [b"one" for lent in popped.lent if lent.count]


def test_messages_of_a_queue_that_is_not_known_yet_wait_until_it_is() -> None:
    assert _a_queue_is_not_known_yet() == [b"one"]


def test_buried_at_once_they_would_be_lost() -> None:
    with planted("strays_buried_early"):
        assert _a_queue_is_not_known_yet() == []

"""A healthy cluster for scripted scenarios: schedules that no seed draws."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ids import partition_of
from weft.proto import wire

from . import settled
from .clients import Batch, Clients, Used
from .machine import Machine
from .options import Options
from .run import _until
from .world import SECOND, World


class Stage:
    """A healthy cluster, and clients that act step by step."""

    def __init__(
        self, nodes: int, partitions: int, *, witness: bool = False, learners: int = 1
    ) -> None:
        options = Options(
            nodes=nodes, partitions=partitions, crashes=False, witness=witness, learners=learners
        )
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
        """Push a batch that hashes to the partition; return when acknowledged."""
        producer, count = self.queue.producer, self.world.options.partitions
        number = next(n for n in range(1, 999, 2) if partition_of(producer, n, count) == partition)
        batch = Batch(self.queue, number, [b"one"])
        self.clients.batches.append(batch)
        self.world.checker.ledger.batches[producer, number] = batch
        self.clients.push(batch)
        for _ in range(5_000):  # short steps: stop right after the acknowledgement
            if not batch.done:
                self.world.run(self.world.now + SECOND // 1000)
        assert batch.done
        return batch

    def ask(
        self, machine: Machine, request: wire.AnyRequest, *, plain: bool = False
    ) -> wire.AnyAnswer | None:
        """Answer of this node within two seconds; `plain`: the node may forward the request."""
        said: list[wire.AnyAnswer] = []

        def answered(_: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]) -> None:
            said.append(answer)

        self.world.ask(machine, request, (), answered, plain=plain)
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

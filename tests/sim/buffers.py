"""The stochastic queue at the end of a run, when all faults are over.

24: a plain client's pop finds the only message of the queue wherever it is, and "nothing there" is
answered only when all nodes said so. 25: a full buffer refuses, and a producer that waits for room
gets it as soon as a consumer has taken a message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from weft.proto import wire

from .clients import EVENTS, Batch, Used
from .network import NetworkFaults

if TYPE_CHECKING:
    from .clients import Clients
    from .machine import Machine
    from .world import World

#: Virtual time for one step; each takes a few messages.
_STEP_US = 5_000_000
#: Waits and kept room of the clients before have ended by then.
_QUIET_US = 3_000_000
#: A producer waits this long for room, which must come long before.
_ROOM_WAIT_MS = 1_900


class Buffers:
    def __init__(self, world: World, clients: Clients) -> None:
        self._world = world
        self._queue: Used = next(queue for queue in clients.queues if queue.name == EVENTS)
        self._numbers = len(clients.batches)

    def check(self) -> None:
        """Runs both checks at every node that leads a partition."""
        world = self._world
        world.network.network_faults = NetworkFaults()
        world.run(world.now + _QUIET_US)
        view = world.newest_view
        for number, place in enumerate(view.places[: view.catalogue]):
            self._push(number)
            for name in sorted(view.members):
                if name != place.primary and not view.members[name].witness:
                    self._finds(name)
                    break
            else:
                self._finds(place.primary)
        self._fills(0, world.machines[view.places[0].primary])

    # --- the two checks -------------------------------------------------------------------

    def _finds(self, name: str) -> None:
        popped = self._ask(name, wire.Pop(EVENTS, 1), plain=True)
        found = isinstance(popped, wire.Popped) and len(popped.lent) == 1
        self._world.checker.that(found, f"24: {name} answers {popped}, and one message is ready")
        assert isinstance(popped, wire.Popped)
        self._ack(popped)
        popped = self._ask(name, wire.Pop(EVENTS, 1), plain=True)
        gone = isinstance(popped, wire.Popped) and not popped.lent
        self._world.checker.that(gone, f"24: {name} answers {popped}, and no message is ready")

    def _fills(self, number: int, machine: Machine) -> None:
        bound = self._queue.settings.buffers
        for _ in range(bound):
            self._push(number)
        refused = self._try_push(number)
        full = isinstance(refused, wire.Failure) and refused.code == "QUEUE_FULL"
        self._world.checker.that(full, f"25: a full buffer answers {refused}")
        said: list[wire.AnyAnswer] = []
        batch = self._next(number)
        room = wire.Room(EVENTS, number, batch.queue.producer, batch.number, 1, _ROOM_WAIT_MS)
        began = self._world.now
        self._send(machine.name, room, (), said.append, plain=False)
        self._world.run(self._world.now + 200_000)
        self._world.checker.that(not said, f"25: no room, and the answer is {said}")
        popped = self._ask(machine.name, wire.Pop(EVENTS, 1), plain=False)
        assert isinstance(popped, wire.Popped)
        self._ack(popped)
        while not said and self._world.now < began + _ROOM_WAIT_MS * 1000 + 1_000_000:
            self._world.run(self._world.now + 20_000)
        waited_us = self._world.now - began
        woken = said == [wire.Done(1)] and waited_us < _ROOM_WAIT_MS * 900
        self._world.checker.that(woken, f"25: after {waited_us} us the producer got {said}")
        pushed = self._push_batch(batch)
        self._world.checker.that(
            isinstance(pushed, wire.Pushed), f"25: kept room, and the answer is {pushed}"
        )
        for _ in range(bound):
            popped = self._ask(machine.name, wire.Pop(EVENTS, 1), plain=True)
            assert isinstance(popped, wire.Popped)
            self._ack(popped)

    # --- steps ----------------------------------------------------------------------------

    def _next(self, number: int) -> Batch:
        """The next batch whose name falls on the partition."""
        while True:
            self._numbers += 1
            batch = Batch(self._queue, self._numbers, [f"{EVENTS}.{self._numbers}".encode()])
            if batch.partition(self._world.options.partitions) == number:
                self._world.checker.ledger.batches[self._queue.producer, batch.number] = batch
                batch.sent_at = self._world.now
                return batch

    def _push(self, number: int) -> None:
        pushed = self._try_push(number)
        self._world.checker.that(isinstance(pushed, wire.Pushed), f"25: room, and {pushed}")

    def _try_push(self, number: int) -> wire.AnyAnswer:
        return self._push_batch(self._next(number))

    def _push_batch(self, batch: Batch) -> wire.AnyAnswer:
        partition = batch.partition(self._world.options.partitions)
        name = self._world.newest_view.places[partition].primary
        push = wire.Push(EVENTS, batch.queue.producer, batch.number, 1)
        payload = (wire.encode(wire.Payload(batch.bodies)),)
        return self._ask(name, push, payload, plain=False)

    def _ack(self, popped: wire.Popped) -> None:
        for lent in popped.lent:
            name = self._world.newest_view.places[lent.partition].primary
            receipt = wire.Receipt(lent.partition, lent.lsn, lent.nonce, [(lent.first, lent.count)])
            settled = self._ask(name, wire.Ack(EVENTS, [receipt]), plain=False)
            done = isinstance(settled, wire.Settled) and settled.done == lent.count
            self._world.checker.that(done, f"an ack of {lent} is answered with {settled}")

    def _ask(
        self, name: str, request: wire.AnyRequest, payload: Sequence[bytes] = (), *, plain: bool
    ) -> wire.AnyAnswer:
        said: list[wire.AnyAnswer] = []
        down = self._world.now + _STEP_US
        while not self._world.machines[name].up and self._world.now < down:
            self._world.run(self._world.now + 5_000)  # it has found a damaged disk just now
        self._send(name, request, payload, said.append, plain=plain)
        end = self._world.now + _STEP_US
        while not said:
            self._world.checker.that(
                self._world.now < end, f"{name} does not answer {type(request).__name__}"
            )
            self._world.run(self._world.now + 5_000)
        return said[0]

    def _send(
        self,
        name: str,
        request: wire.AnyRequest,
        payload: Sequence[bytes],
        on_answer: Callable[[wire.AnyAnswer], None],
        *,
        plain: bool,
    ) -> None:
        machine = self._world.machines[name]
        self._world.ask(
            machine, request, payload, lambda _, answer, __: on_answer(answer), plain=plain
        )

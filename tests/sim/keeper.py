"""An administrator of the queues during faults: purge, delete, create again, update.

An unanswered purge or delete may still be executed, at any time. From then on the content of the
queue is undefined, and the checker only requires that the queue holds nothing that it should not.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from weft.proto import wire

from .clients import Clients, Used

if TYPE_CHECKING:
    from .machine import Machine
    from .world import World

_PATIENCE = 3_000_000


class Keeper:
    def __init__(self, world: World, clients: Clients) -> None:
        self._world = world
        self._clients = clients

    def schedule(self, span: int) -> None:
        rng, options = self._world.rng, self._world.options
        for queue in self._clients.queues:
            if queue.name == "temporary":
                for _ in range(rng.randrange(1, 4)):
                    delete = rng.random() < 0.5
                    self._world.after(rng.randrange(span), partial(self._sweep, queue, delete))
            elif options.updates:
                self._world.after(rng.randrange(span), partial(self._update, queue))

    def _sweep(self, queue: Used, delete: bool) -> None:
        machine = self._world.member()
        if machine is None or not queue.made:
            return
        if delete:
            queue.made = False
        queue.made_again = True
        queue.doubts += 1  # until the answer arrives

        def answered(_: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]) -> None:
            gone = isinstance(answer, wire.Failure) and answer.code == "QUEUE_NOT_FOUND"
            if isinstance(answer, wire.Done) or gone:
                queue.doubts -= 1
                queue.swept_at = self._world.now
            if delete:
                self._clients.make(queue)

        request = wire.DeleteQueue(queue.name) if delete else wire.PurgeQueue(queue.name)
        self._world.ask(machine, request, (), answered, plain=True)
        if delete:
            self._world.after(_PATIENCE, lambda: self._clients.make(queue))

    def _update(self, queue: Used) -> None:
        machine = self._world.member()
        if machine is None or not queue.made:
            return
        lease_ms = self._world.options.lease_ms + self._world.rng.randrange(500)
        changes: dict[str, int | str] = {"lease_ms": lease_ms}
        request = wire.UpdateQueue(queue.name, changes)
        self._world.ask(machine, request, (), lambda *_: None, plain=True)

"""Clients that cancel messages, and the invariants of the answers.

22 a message whose cancel was answered with 1 is never lent afterwards; a message whose cancel was
refused is delivered and acked like any other; and the primary answers a cancel with 0 only if some
client has tried to ack or to cancel the message before, or moved it to a dead-letter queue. A node
that forwards the cancel of a plain client may answer with 0 after its own first attempt removed the
message and the answer to that attempt was lost.

A cancel whose answer is lost or ambiguous is repeated, as the Python client does. A message may be
gone as soon as one attempt to cancel it was not refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from weft.proto import wire

if TYPE_CHECKING:
    from .clients import Batch, Clients
    from .machine import Machine
    from .world import World

_RETRY_US = 2_500_000
_TRIES_MAX = 4
#: Share of the batches of which a client cancels one message.
_SHARE = 0.5
#: Error codes that prove that the cancel was not executed.
_NOT_DONE = ("NOT_PRIMARY", "MESSAGE_LEASED", "QUEUE_NOT_FOUND")


class Cancels:
    def __init__(self, world: World, clients: Clients) -> None:
        self._world = world
        self._clients = clients

    def schedule(self, span: int) -> None:
        rng = self._world.rng
        for batch in self._clients.batches:
            if batch.queue.name != "temporary" and rng.random() < _SHARE:
                index = rng.randrange(len(batch.bodies))
                self._world.after(rng.randrange(span), partial(self._begin, batch, index))

    def _begin(self, batch: Batch, index: int) -> None:
        """Waits until the push is acknowledged: a client has no id before that."""
        if batch.done:
            self._cancel(batch, index, _TRIES_MAX)
        else:
            self._world.after(_RETRY_US // 10, partial(self._begin, batch, index))

    def _cancel(self, batch: Batch, index: int, tries: int) -> None:
        world, queue, body = self._world, batch.queue, batch.bodies[index]
        ledger, machine = world.checker.ledger, world.member()
        if not tries or body in ledger.cancelled:
            return
        again = partial(self._cancel, batch, index, tries - 1)
        if machine is None:
            world.after(_RETRY_US, again)
            return
        partition = batch.partition(world.options.partitions)
        plain = (batch.number + tries) % 2 == 0
        if not plain:
            machine = world.machines[machine.node_core.view.places[partition].primary]
        request = wire.Cancel(queue.name, partition, queue.producer, batch.number, index)
        may_be_gone = ledger.may_be_gone(body) or bool(queue.settings.max_deliveries)
        ledger.open_cancels[body] = ledger.open_cancels.get(body, 0) + 1
        definite = False

        def answered(_: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]) -> None:
            nonlocal definite
            not_done = isinstance(answer, wire.Failure) and answer.code in _NOT_DONE
            definite = isinstance(answer, wire.Done) or not_done
            if not_done:
                ledger.open_cancels[body] -= 1
            elif answer == wire.Done(0):
                overtaken = ledger.open_cancels[body] > 1  # a later attempt removed the message
                gone = may_be_gone or overtaken or body in ledger.given_up or plain
                world.checker.that(gone, f"22: {body!r} is said to be gone, and nobody removed it")

        def retry() -> None:
            if not definite:
                again()

        world.ask(machine, request, (), answered, plain=plain)
        world.after(_RETRY_US, retry)

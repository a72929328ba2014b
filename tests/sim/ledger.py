"""What clients see: every message, where it is, how often it was lent, and what became of it.

11 an OK'd ack is never redelivered; 12 a batch is stored once; 17 limits hold; 18 dead letters are
neither lost nor doubled; 19 first deliveries of a partition keep their order; and nothing that was
stored vanishes without an ack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.proto import wire
from weft.server.engine import handle

from .line import Line
from .machine import Machine
from .violation import Violation

if TYPE_CHECKING:
    from .clients import Batch, Used
    from .world import World

#: A message: partition, the batch's number there, index in the batch.
Message = tuple[int, int, int]


class Ledger:
    def __init__(self, world: World) -> None:
        self._world = world
        self.batches: dict[tuple[int, int], Batch] = {}
        #: What a client was given, has tried to ack, has acked.
        self.delivered: set[bytes] = set()
        self.given_up: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.dead: set[Message] = set()
        self._places: dict[tuple[int, int], tuple[int, int]] = {}
        self._owners: dict[tuple[int, int], tuple[int, int]] = {}
        self._settled: dict[Message, int] = {}  # when
        self._lent: dict[int, set[Message]] = {}  # by nonce
        self._lends: dict[Message, int] = {}
        self._pushed: dict[tuple[str, int, int], tuple[int, int]] = {}
        self.line = Line(world)

    # --- what machines say ----------------------------------------------------------------

    def settled(self, request: wire.Ack, answer: wire.Settled) -> None:
        for position, receipt in enumerate(request.receipts):
            if position not in answer.lost:
                place = receipt.partition, receipt.lsn
                for first, count in receipt.ranges:
                    for index in range(first, first + count):
                        self._settled.setdefault((*place, index), self._world.now)

    def lent(self, machine: Machine, answer: wire.Popped, payload: Sequence[bytes]) -> None:
        """A pop's answer leaves the machine that lends, for a client or for another machine."""
        if answer.lent and self._queue_of(answer.lent[0]).settings.ordered:
            self.line.leaves(machine, answer.lent)
        for lent, frame in zip(answer.lent, payload, strict=True):
            bodies = wire.decode_payload(frame).bodies
            batch = self.batches[lent.producer, lent.batch]
            wanted = batch.bodies[lent.first : lent.first + lent.count]
            self._that(bodies == wanted, f"{machine.name} lends {lent} with {bodies}, not {wanted}")
            self.delivered.update(bodies)
            if lent.nonce in self._lent:
                continue  # handed on by the machine that asked for a client
            indexes = range(lent.first, lent.first + lent.count)
            messages = {(lent.partition, lent.lsn, index) for index in indexes}
            self._lent[lent.nonce] = messages
            known = self._knows(machine, lent)
            self._that(
                all(self._settled.get(message, known + 1) > known for message in messages),
                f"11: {machine.name} lends {lent}, which was acked",
            )
            self._once(lent, batch)
            self._dead_letter(lent, batch, messages)
            if lent.deliveries == 1 and not lent.reason:
                self._in_order(machine, lent, batch)
            for message in messages:
                self._lends[message] = self._lends.get(message, 0) + 1

    def _knows(self, machine: Machine, lent: wire.Lent) -> int:
        """Until when whoever lends something must know what became of it: until now. But a node
        that was replaced and could not hear of it knows what was so when it last asked the others,
        which is after it took the message, and not long ago."""
        now, number = self._world.now, lent.partition
        own, newest = machine.loom.view.places[number], self._world.newest_view.places[number]
        if own.epoch >= newest.epoch:
            return now
        asked_at, patience = self.line.asked.get(lent.nonce, (now, 0))
        return max(asked_at, now - patience)

    def _queue_of(self, lent: wire.Lent) -> Used:
        return self.batches[lent.producer, lent.batch].queue

    def _once(self, lent: wire.Lent, batch: Batch) -> None:
        """12, and that a number is one batch's for ever."""
        name, place = (lent.producer, lent.batch), (lent.partition, lent.lsn)
        if batch.queue.made_again:
            return  # the same batch may be in the queue of before and in the new one
        known = self._places.setdefault(name, place)
        self._that(known == place, f"12: batch {lent.batch} is stored at {known} and {place}")
        owner = self._owners.setdefault(place, name)
        self._that(owner == name, f"19: {place} is batch {owner} and batch {name}")

    def _dead_letter(self, lent: wire.Lent, batch: Batch, messages: set[Message]) -> None:
        """18: after so many deliveries, and from then on only there."""
        most = batch.queue.settings.max_deliveries
        if not lent.reason:
            self._that(not messages & self.dead, f"18: {lent} is a dead letter and in its queue")
            self._that(not most or lent.deliveries <= most, f"18: {lent} is delivered too often")
            return
        self.dead |= messages
        for message in messages:
            count = self._lends.get(message, 0)
            self._that(count >= most, f"18: {lent} is a dead letter after {count} deliveries")

    def _in_order(self, machine: Machine, lent: wire.Lent, batch: Batch) -> None:
        """19: what is lent for the first time was not overtaken; and not before its time."""
        early = batch.sent_at + batch.delay_us - self._world.now
        slack = self._world.options.skew_us + 1000
        self._that(early <= slack, f"{lent} is lent {early} us before it is due")
        queue = machine.loom.engine.state.queues.get(batch.queue.name)
        if queue is None or batch.delay_us:
            return
        for level in queue.ids.levels:
            for waiting in level.fresh:
                partition, lsn = handle.split_key(handle.key(waiting))
                overtaken = partition == lent.partition and lsn < lent.lsn
                self._that(not overtaken, f"19: {lent} has overtaken number {lsn}")

    # --- limits ---------------------------------------------------------------------------

    def looked(self, machine: Machine) -> None:
        """17: whoever takes a push in a round has room for it afterwards."""
        state = machine.loom.engine.state
        for queue in state.queues.values():
            most = queue.settings.max_messages
            if not most:
                continue
            name = (machine.name, machine.boots, queue.id)
            before = self._pushed.get(name, (0, 0))
            led = len(state.led)
            self._pushed[name] = queue.pushed, led
            new = queue.pushed - before[0]
            if new and led == before[1]:
                # A batch that is larger than a node's share is taken when it is the only one.
                room = max(state.share(most), min(new, most))
                self._that(
                    queue.messages <= room,
                    f"17: {machine.name} took a push and holds {queue.messages} of {room}",
                )

    # --- what clients say -----------------------------------------------------------------

    def pushed(self, batch: Batch, answer: wire.Pushed) -> None:
        batch.taken_count += not answer.duplicate
        once = batch.taken_count <= 1 or batch.queue.made_again
        self._that(once, f"12: batch {batch.number} was taken a second time")
        batch.done = True

    def acking(self, bodies: list[bytes]) -> None:
        """A client sends an ack: from now on nobody can say that these are still there."""
        self.given_up.update(bodies)

    @property
    def lost(self) -> list[bytes]:
        """What was stored, and is nowhere any more although nobody has acked it."""
        stored = [
            body for batch in self.batches.values() if batch.done and batch.queue.keeps(batch)
            for body in batch.bodies
        ]  # fmt: skip
        return [body for body in stored if body not in self.given_up]

    def _that(self, holds: bool, what: str) -> None:
        if not holds:
            raise Violation(what)

"""The clients' observations: every message, its place, its deliveries and its outcome.

11 an OK'd ack is never redelivered; 12 a batch is stored once; 17 limits hold; 18 dead letters are
neither lost nor duplicated; 19 first deliveries of a partition keep their order; 22 a cancelled
message is never lent; and no stored message vanishes without an ack or a cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.proto import wire
from weft.server.engine.message_id_queue import Handle
from weft.server.engine.tenants import TenantLevel

from .leases import Leases
from .machine import Machine
from .ordered_delivery import GroupLines, Line
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
        #: Bodies that a client received, has tried to ack, has acked.
        self.delivered: set[bytes] = set()
        self.given_up: set[bytes] = set()
        self.acked: set[bytes] = set()
        #: Messages with a confirmed cancel -> time of the confirmation.
        self.cancelled: dict[bytes, int] = {}
        #: Cancels that were sent and not refused, by message.
        self.open_cancels: dict[bytes, int] = {}
        self.dead: set[Message] = set()
        #: Messages that a consumer has moved from "jobs" to the dead-letter queue.
        self.moved: set[Message] = set()
        #: The messages of multicasts that were delivered, by batch.
        self.indexes: dict[tuple[int, int], set[int]] = {}
        self._places: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._owners: dict[tuple[int, int], tuple[int, int]] = {}
        self._settled: dict[Message, int] = {}  # when
        self._lent: dict[int, set[Message]] = {}  # by nonce
        #: Leases whose messages an application received, and how often each message was received.
        self._counted: set[int] = set()
        self._lends: dict[Message, int] = {}
        self._pushed: dict[tuple[str, int, int], tuple[int, int]] = {}
        self.line = Line(world)
        self.groups = GroupLines(world, self.line)
        self.leases = Leases(world)

    # --- answers of machines --------------------------------------------------------------

    def settled(self, request: wire.Ack | wire.CommitAck, answer: wire.Settled) -> None:
        for position, receipt in enumerate(request.receipts):
            if position not in answer.lost:
                place = receipt.partition, receipt.lsn
                for first, count in receipt.ranges:
                    for index in range(first, first + count):
                        self._settled.setdefault((*place, index), self._world.now)

    def confirmed_cancel(self, request: wire.Cancel) -> None:
        """A node has answered that the message is removed."""
        body = self.batches[request.producer, request.batch].bodies[request.index]
        self.cancelled.setdefault(body, self._world.now)

    def lent(self, machine: Machine, answer: wire.Popped, payload: Sequence[bytes]) -> None:
        """A pop's answer leaves the lending machine, for a client or for another machine."""
        if answer.lent and self._queue_of(answer.lent[0]).settings.ordered:
            self.line.leaves(machine, answer.lent)
        if answer.lent and self._queue_of(answer.lent[0]).settings.grouped:
            self.groups.leaves(machine, answer.lent)
        for lent, frame in zip(answer.lent, payload, strict=True):
            bodies = wire.decode_payload(frame).bodies
            batch = self.batches[lent.producer, lent.batch]
            wanted = batch.bodies[lent.first : lent.first + lent.count]
            self._that(bodies == wanted, f"{machine.name} lends {lent} with {bodies}, not {wanted}")
            self.delivered.update(bodies)
            if batch.copies > 1:
                delivered = self.indexes.setdefault((lent.producer, lent.batch), set())
                delivered.update(range(lent.first, lent.first + lent.count))
            if lent.nonce in self._lent:
                continue  # forwarded by the node that popped on behalf of a client
            indexes = range(lent.first, lent.first + lent.count)
            messages = {(lent.partition, lent.lsn, index) for index in indexes}
            self._lent[lent.nonce] = messages
            self.leases.lent(machine, lent, messages, batch)
            known = self._knows(machine, lent)
            self._that(
                all(self._settled.get(message, known + 1) > known for message in messages),
                f"11: {machine.name} lends {lent}, which was acked",
            )
            self._that(
                all(self.cancelled.get(body, known + 1) > known for body in bodies),
                f"22: {machine.name} lends {lent}, which was cancelled",
            )
            self._once(lent, batch)
            self._dead_letter(lent, batch, messages)
            # A moved message is in another queue, where others may wait.
            if lent.deliveries == 1 and not lent.reason and not messages & self.moved:
                self._in_order(machine, lent, batch)
            lease = machine.node_core.engine.state.leases.by_nonce.get(lent.nonce)
            if lease is None or lease.handed:  # otherwise counted when handed out
                self.handed(lent.nonce)

    def moving(self, lent: wire.Lent) -> None:
        """A consumer moves the messages of a lease to the dead-letter queue, as it moves any."""
        indexes = range(lent.first, lent.first + lent.count)
        self.moved.update((lent.partition, lent.lsn, index) for index in indexes)

    def handed(self, nonce: int) -> None:
        """An application receives the messages of a lease, or reports that they failed."""
        if nonce not in self._counted:
            self._counted.add(nonce)
            for message in self._lent.get(nonce, ()):
                self._lends[message] = self._lends.get(message, 0) + 1

    def _knows(self, machine: Machine, lent: wire.Lent) -> int:
        """Time up to which the lending node must know the outcome of a message.

        A primary must know everything up to now. A replaced primary that could not learn of the new
        view knows the outcomes up to its last leadership check, which is later than the pop of the
        message and not long ago.
        """
        now, number = self._world.now, lent.partition
        own, newest = machine.node_core.view.places[number], self._world.newest_view.places[number]
        if own.epoch >= newest.epoch:
            return now
        asked_at, patience = self.line.asked.get(lent.nonce, (now, 0))
        return max(asked_at, now - patience)

    def _queue_of(self, lent: wire.Lent) -> Used:
        return self.batches[lent.producer, lent.batch].queue

    def _once(self, lent: wire.Lent, batch: Batch) -> None:
        """12, and an lsn belongs to one batch for ever."""
        name, place = (lent.producer, lent.batch), (lent.partition, lent.lsn)
        if batch.queue.made_again:
            return  # the same batch may be in the old queue and in the new one
        part = lent.partition if batch.spread else -1
        known = self._places.setdefault((*name, part), place)
        self._that(known == place, f"12: batch {lent.batch} is stored at {known} and {place}")
        owner = self._owners.setdefault(place, name)
        self._that(owner == name, f"19: {place} is batch {owner} and batch {name}")

    def _dead_letter(self, lent: wire.Lent, batch: Batch, messages: set[Message]) -> None:
        """18: a dead letter had `max_deliveries` deliveries to an application, and stays one."""
        most = batch.queue.settings.max_deliveries
        if not lent.reason:
            self._that(not messages & self.dead, f"18: {lent} is a dead letter and in its queue")
            few = not most or lent.deliveries <= most or messages <= self.moved
            self._that(few, f"18: {lent} is delivered too often")
            return
        self.dead |= messages
        for message in messages:
            count = self._lends.get(message, 0)
            self._that(count >= most, f"18: {lent} is a dead letter, handed out {count} times")

    def _in_order(self, machine: Machine, lent: wire.Lent, batch: Batch) -> None:
        """19: a message lent for the first time was not overtaken, and is not early."""
        early = batch.sent_at + batch.delay_us - self._world.now
        slack = self._world.options.skew_us + 1000
        self._that(early <= slack, f"{lent} is lent {early} us before it is due")
        if batch.spread:
            return  # a multicast has its place by its number, not by its arrival
        queue = machine.node_core.engine.state.queues.get(batch.queue_of(lent.first))
        if queue is None or batch.delay_us or queue.settings.graphs:
            return  # tasks of a graph are ready in the order of their parents' ends
        for level in queue.ids.levels:
            if isinstance(level, TenantLevel) and level.tenant != batch.tenant:
                continue
            for waiting in level.fresh:
                partition, lsn = Handle.split_key(Handle.key(waiting))
                overtaken = partition == lent.partition and lsn < lent.lsn
                self._that(not overtaken, f"19: {lent} has overtaken number {lsn}")

    # --- limits ---------------------------------------------------------------------------

    def looked(self, machine: Machine) -> None:
        """17: a node that accepts a push in a round is within its limit afterwards."""
        state = machine.node_core.engine.state
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
                # A batch larger than a node's share is accepted when it is the only one.
                room = max(state.share(most), min(new, most))
                self._that(
                    queue.messages <= room,
                    f"17: {machine.name} took a push and holds {queue.messages} of {room}",
                )

    # --- actions of clients ---------------------------------------------------------------

    def pushed(self, batch: Batch, answer: wire.Pushed) -> None:
        batch.taken_count += not answer.duplicate
        once = batch.taken_count <= 1 or batch.queue.made_again
        self._that(once, f"12: batch {batch.number} was taken a second time")
        batch.done = True

    def acking(self, bodies: list[bytes]) -> None:
        """A client sends an ack: from now on these messages may be gone."""
        self.given_up.update(bodies)

    def may_be_gone(self, body: bytes) -> bool:
        """True if a client has tried to ack the message, or to cancel it without being refused."""
        return body in self.given_up or body in self.cancelled or self.open_cancels.get(body, 0) > 0

    @property
    def lost(self) -> list[bytes]:
        """Messages that were stored and are gone without an ack or a cancel."""
        stored = [
            body for batch in self.batches.values() if batch.done and batch.queue.keeps(batch)
            for body in batch.bodies
        ]  # fmt: skip
        return [body for body in stored if not self.may_be_gone(body)]

    def _that(self, holds: bool, what: str) -> None:
        if not holds:
            raise Violation(what)


def pushed_of(answer: wire.Multicasted) -> list[wire.Pushed]:
    """The answer for the batch, which is one for all copies."""
    return [
        wire.Pushed(
            answer.partition, copy.producer, copy.batch, sum(count for _, count in copy.ranges),
            copy.duplicate, answer.durability,
        )
        for copy in [each for each in answer.copies if each.partition in (-1, answer.partition)][:1]
    ]  # fmt: skip

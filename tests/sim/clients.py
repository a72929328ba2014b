"""Clients of the queues: producers retry until the push succeeds; consumers ack, nack or die.

Half of the clients route by the view, as the Python client does; the others know one node and let
that node forward their requests, as a gRPC client does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.dht import placement
from weft.proto import wire
from weft.proto.settings import Settings

if TYPE_CHECKING:
    from .machine import Machine
    from .world import World

RETRY = 500_000
#: Longest time that a consumer holds a message while `hurry` is set.
_HURRIED_HOLD_US_MAX = 20_000
#: The dead-letter queue of "jobs".
DEAD = "dead"
#: The ordered queue.
LINE = "line"
#: The grouped queue, and the number of its groups.
GROUPED = "grouped"
#: The stochastic queue.
EVENTS = "events"
_GROUPS = 3
#: Of so many nacks of "jobs", one is a move to the dead-letter queue.
_MOVES = 4
#: The queue that transactions consume, while there are faults.
INTAKE = "intake"
#: The queue of the tasks of graphs, which only workers of graphs consume.
GRAPH = "graph"
#: The queues of multicasts, which get plain pushes, too.
FANS = ("fan-a", "fan-b", "fan-c")


@dataclass
class Used:
    """A queue from its clients' point of view."""

    name: str
    producer: int
    settings: Settings
    made: bool = False
    #: The queue was purged, or deleted and created again: earlier messages may be gone.
    made_again: bool = False
    swept_at: int = 0
    #: Unanswered purges and deletes: each may be executed at any time.
    doubts: int = 0

    def keeps(self, batch: Batch) -> bool:
        """True if an acknowledged batch must be delivered."""
        return not self.doubts and batch.sent_at > self.swept_at


@dataclass
class Batch:
    """One push, retried under the same batch number until acknowledged."""

    queue: Used
    number: int
    bodies: list[bytes]
    dedup_key: str | None = None
    delay_us: int = 0
    group: str | None = None
    #: The queues of a multicast; `bodies` has the messages of all copies.
    copies: int = 1
    tenant: str = ""
    #: A multicast to several partitions: one stored batch on each of them.
    spread: bool = False
    sent_at: int = 0
    done: bool = False
    #: Answers that reported the batch as new.
    taken_count: int = 0

    def queue_of(self, index: int) -> str:
        """The name of the queue with a message."""
        if self.copies == 1:
            return self.queue.name
        return FANS[index * self.copies // len(self.bodies)]

    def partition(self, partitions: int) -> int:
        if self.group is not None:
            return placement.of_text(self.group, partitions)
        queue = self.queue
        return placement.of_push(
            queue.name, queue.settings.ordered, queue.producer, self.number, self.dedup_key,
            partitions,
        )  # fmt: skip


def queues(world: World) -> list[Used]:
    options = world.options
    lease_ms = options.lease_ms
    work = Settings(lease_ms=lease_ms, keep_leases=options.keep_leases)
    if options.limits:
        work = replace(work, rate_limit=200, max_in_flight=12)
    used = [Used("work", 7, work)]
    if options.dead_letters:
        settings = Settings(lease_ms=lease_ms, max_deliveries=2, dead_letter=DEAD)
        used.append(Used("jobs", 8, settings))
    if options.limited:
        used.append(Used("small", 9, Settings(lease_ms=lease_ms, max_messages=6)))
    if options.temporary:
        used.append(Used("temporary", 10, Settings(lease_ms=lease_ms)))
    if options.ordered:
        used.append(Used(LINE, 11, Settings(lease_ms=lease_ms, ordered=True)))
    if options.grouped:
        used.append(Used(GROUPED, 12, Settings(lease_ms=lease_ms, grouped=True)))
    if options.transactions:
        from . import transactions  # which needs this module

        used += transactions.queues(lease_ms)
    if options.graphs:
        from . import graphs

        used += graphs.queues(lease_ms)
    if options.multicasts:
        settings = Settings(lease_ms=lease_ms)
        used += [Used(name, 13 + number, settings) for number, name in enumerate(FANS)]
    if options.sequences:
        from . import sequences  # which needs this module

        used += sequences.queues(options.partitions, lease_ms)
    if options.stochastic:
        kind = Settings(
            lease_ms=lease_ms, kind="stochastic", buffers=4, max_hops=2, access=options.access
        )
        used.append(Used(EVENTS, 47, kind))
    return used


class Clients:
    def __init__(self, world: World) -> None:
        self.world = world
        self.queues = queues(world)
        self.batches: list[Batch] = []
        self.consuming = True
        #: The remaining messages are to be delivered now: consumers do not delay.
        self.hurry = False

    # --- queues ---------------------------------------------------------------------------

    def make(self, queue: Used) -> None:
        """Create a queue; retry until a node confirms that the queue exists."""
        if queue.made:
            return
        self.world.after(RETRY, lambda: self.make(queue))
        machine = self.world.member()
        if machine is None:
            return

        def made(_: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]) -> None:
            exists = isinstance(answer, wire.Failure) and answer.code == "QUEUE_EXISTS"
            queue.made = queue.made or isinstance(answer, wire.Created) or exists

        create = wire.create_request(queue.name, queue.settings)
        self.world.ask(machine, create, (), made, plain=True)

    def make_again(self, queue: Used) -> None:
        """For a client that was told that the queue does not exist.

        A delete may be executed after the answer to a create that was sent before the delete.
        """
        queue.made = False
        self.make(queue)

    # --- producers ------------------------------------------------------------------------

    def prepare(self, count: int) -> list[Batch]:
        """Make batches for the producers, spread over all queues in turn."""
        rng = self.world.rng
        queues = [queue for queue in self.queues if queue.name != GRAPH]
        for number in range(count):
            queue = queues[number % len(queues)]
            size = rng.randrange(1, 4)
            bodies = [f"{queue.name}.{number}.{index}".encode() for index in range(size)]
            key = f"key {number}" if rng.random() < 0.2 else None
            delayed = self.world.options.delays and rng.random() < 0.3
            delay = rng.randrange(2_000_000) // 1000 * 1000 if delayed else 0
            delay = 0 if queue.settings.ordered else delay
            batch = Batch(queue, number, bodies, key, delay)
            if queue.settings.grouped:
                group = f"group {number // len(queues) % _GROUPS}"
                batch = Batch(queue, number, bodies, group=group)
            elif self.world.options.tenants and number % 3 and not queue.settings.ordered:
                batch.tenant = f"tenant {number % 3}"
            self.batches.append(batch)
            self.world.checker.ledger.batches[queue.producer, number] = batch
        return self.batches

    def push(self, batch: Batch, *, again: bool = False) -> None:
        world, queue = self.world, batch.queue
        if batch.done and not again:
            return
        if not again:
            world.after(RETRY, lambda: self.push(batch))
        machine = world.member()
        if machine is None or not queue.made:
            return
        batch.sent_at = batch.sent_at or world.now
        request = wire.Push(
            queue.name, queue.producer, batch.number, len(batch.bodies), batch.delay_us // 1000, 0,
            batch.dedup_key,
        )  # fmt: skip
        if batch.group is not None:
            request = wire.PushGroup(
                queue.name, queue.producer, batch.number, len(batch.bodies), group=batch.group
            )
        elif batch.tenant:
            request = wire.PushTenant(
                queue.name, queue.producer, batch.number, len(batch.bodies),
                batch.delay_us // 1000, 0, batch.dedup_key, batch.tenant,
            )  # fmt: skip
        plain = batch.number % 2 == 0
        if not plain:
            number = batch.partition(world.options.partitions)
            machine = world.machines[machine.node_core.view.places[number].primary]
        payload = wire.encode(wire.Payload(batch.bodies))
        world.ask(machine, request, (payload,), partial(self._pushed, batch), plain=plain)

    def _pushed(
        self, batch: Batch, _: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]
    ) -> None:
        if isinstance(answer, wire.Pushed):
            first = not batch.done
            self.world.checker.ledger.pushed(batch, answer)
            if first and self.world.rng.random() < 0.15:  # a duplicate that was in flight for long
                self.world.after(
                    self.world.rng.randrange(2_000_000), lambda: self.push(batch, again=True)
                )
        elif isinstance(answer, wire.Failure) and answer.code == "QUEUE_NOT_FOUND":
            self.make_again(batch.queue)
        elif isinstance(answer, wire.Failure) and batch.queue.name == EVENTS:
            self._await_room(batch, answer)

    def _await_room(self, batch: Batch, failure: wire.Failure) -> None:
        """A producer at a full buffer waits for room, and pushes again at once."""
        machine = self.world.member()
        if failure.code != "QUEUE_FULL" or machine is None:
            return
        room = wire.Room(
            EVENTS, batch.partition(self.world.options.partitions), batch.queue.producer,
            batch.number, len(batch.bodies), 400,
        )  # fmt: skip

        def told(_: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]) -> None:
            if answer == wire.Done(1) and not batch.done:
                self.push(batch, again=True)

        self.world.ask(machine, room, (), told, plain=True)

    # --- consumers ------------------------------------------------------------------------

    def consume(self, number: int) -> None:
        """One pop after the other, each at a random node."""
        world, rng = self.world, self.world.rng
        if not self.consuming:
            return
        pause = 60_000 if self.hurry else rng.randrange(200_000, 700_000)
        world.after(pause, lambda: self.consume(number))
        machine = world.member()
        name = self._some_queue()
        if machine is None or not name:
            return
        plain = number % 2 == 0 and not self.hurry
        lease_ms = world.options.lease_ms if name == DEAD else 0
        # A consumer that promises to report empty nodes to the list's owner, and never does.
        prefetch = not plain and self.world.now // 1000 % 2 == 0
        request = wire.Pop(
            name, rng.randrange(1, 5), 300 if plain else 0, lease_ms, not plain, prefetch
        )
        if self.hurry:
            machine = self._holder(name) or machine
        world.ask(machine, request, (), partial(self._popped, name, prefetch), plain=plain)

    def _some_queue(self) -> str:
        names = [queue.name for queue in self.queues if queue.made and queue.name != GRAPH]
        if not self.hurry:
            names = [name for name in names if name != INTAKE]  # for transactions
        names += [DEAD] * (self.world.options.dead_letters and bool(names))
        if self.hurry:
            names = [name for name in names if self._holder(name)]
        return self.world.rng.choice(names) if names else ""

    def _holder(self, name: str) -> Machine | None:
        """A machine that has ready messages of the queue."""
        for machine in self.world.machines.values():
            queue = machine.node_core.engine.state.queues.get(name) if machine.up else None
            if queue is not None and queue.ready:
                return machine
        return None

    def _popped(
        self,
        queue: str,
        prefetch: bool,
        _: Machine,
        answer: wire.AnyAnswer,
        frames: Sequence[bytes],
    ) -> None:
        if not isinstance(answer, wire.Popped):
            return
        world, rng = self.world, self.world.rng
        world.checker.sequences.received(queue, answer.lent)
        contents = [wire.decode_payload(frame).bodies for frame in frames]
        if queue == LINE:
            world.checker.ledger.line.received(answer.lent, contents)
        elif queue == GROUPED:
            world.checker.ledger.groups.received(answer.lent, contents)
        for lent, bodies in zip(answer.lent, contents, strict=True):
            luck = 0.5 if self.hurry else rng.random()
            if luck < 0.15:
                if prefetch and lent.nonce % 3:
                    self._hand_out(queue, lent)
                continue  # the consumer dies with the message, in use or prefetched
            hold_us_max = _HURRIED_HOLD_US_MAX if self.hurry else world.options.hold_us_max
            if luck < 0.3:
                hold_us_max = 2 * world.options.lease_ms * 1000
            delay = rng.randrange(hold_us_max)
            nack = luck > (0.6 if queue == "jobs" else 0.9)
            world.after(delay, partial(self._settle, queue, lent, bodies, nack))

    def _hand_out(self, queue: str, lent: wire.Lent) -> None:
        """A prefetching consumer records that its application receives the messages."""
        world = self.world
        machine = world.member()
        if machine is None:
            return
        machine = world.machines[machine.node_core.view.places[lent.partition].primary]
        receipts = [wire.Receipt(lent.partition, lent.lsn, lent.nonce)]
        world.checker.ledger.handed(lent.nonce)
        # An extension shorter than the lease would end the lease before the checker expects.
        request = wire.Extend(queue, receipts, lent.lease_ms, handed=True)
        world.ask(machine, request, (), lambda *_: None, plain=False)

    def _settle(self, queue: str, lent: wire.Lent, bodies: list[bytes], nack: bool) -> None:
        world = self.world
        plain = lent.nonce % 2 == 0
        machine = world.member()
        if machine is None:
            return
        if not plain:
            machine = world.machines[machine.node_core.view.places[lent.partition].primary]
        ranges = [(lent.first, lent.count)]  # other consumers may hold the rest of the lease
        receipts = [wire.Receipt(lent.partition, lent.lsn, lent.nonce, ranges)]
        if queue == LINE:
            world.checker.ledger.line.ended(lent.nonce)
        elif queue == GROUPED:
            world.checker.ledger.groups.ended(lent)
        if nack:
            world.checker.ledger.handed(lent.nonce)
            delays = world.options.delays and queue != LINE
            delay_ms = world.rng.randrange(800) if delays else 0
            request: wire.AnyRequest = wire.Nack(queue, receipts, delay_ms)
            if queue == "jobs" and not lent.nonce % _MOVES:
                request = wire.Move(queue, receipts, DEAD)
                world.checker.ledger.moving(lent)
        else:
            request = wire.Ack(queue, receipts)
            world.checker.ledger.acking(bodies)

        def settled(_: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]) -> None:
            if isinstance(answer, wire.Settled) and not answer.lost and not nack:
                world.checker.ledger.acked.update(bodies)

        world.ask(machine, request, (), settled, plain=plain)

"""Clients that push to several ordered queues at once, some of them with a conflict key.

24 a multicast to ordered queues on several partitions is in all its queues or in none, once in
each, with one stamp; first deliveries of conflicting multicasts have no cycle; and the clock of a
partition never falls, across failovers too.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from typing import TYPE_CHECKING, Final

from weft.dht import placement
from weft.dht.log import Changes
from weft.persistence import layout
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.engine import head

from .clients import RETRY, Batch, Clients, Used
from .ledger import pushed_of
from .violation import Violation

if TYPE_CHECKING:
    from .machine import Machine
    from .world import World

#: The grouped queue among the destinations.
GROUPS: Final = "seq-groups"
#: A plain destination, and one that is purged, deleted and created again: what it got may be gone.
_PLAIN: Final = "work"
_SWEPT: Final = "temporary"
_PRODUCER: Final = 61
_KEYS: Final = 3


def names(partitions: int) -> list[str]:
    """Three ordered queues, on as many partitions as there are."""
    found: list[str] = []
    for number in range(3):
        some = (f"seq-{number}-{luck}" for luck in itertools.count())
        wanted = number % partitions
        found.append(next(n for n in some if placement.of_text(n, partitions) == wanted))
    return found


def queues(partitions: int, lease_ms: int) -> list[Used]:
    ordered = Settings(lease_ms=lease_ms, ordered=True)
    grouped = Settings(lease_ms=lease_ms, grouped=True)
    used = [Used(name, 50 + at, ordered) for at, name in enumerate(names(partitions))]
    return [*used, Used(GROUPS, 54, grouped)]


class Sequences:
    """The publishers."""

    def __init__(self, world: World, clients: Clients) -> None:
        self._world = world
        self._clients = clients
        self._rng = random.Random(f"sequences {world.seed}")
        self._names = [*names(world.options.partitions), GROUPS, _PLAIN]
        self._batches: list[Batch] = []
        self._queues: dict[int, list[str]] = {}
        self._keys: dict[int, str | None] = {}
        #: (batch, queue) -> the copy, as answered.
        self._copies: dict[tuple[int, str], wire.QueueCopy] = {}

    def schedule(self, span: int) -> None:
        world, rng = self._world, self._rng
        also = random.Random(f"swept queue of sequences {world.seed}")
        used = Used("sequences", _PRODUCER, Settings(lease_ms=world.options.lease_ms), made=True)
        for number in range(world.options.pushes):
            bodies = [f"seq.{number}.{index}".encode() for index in range(rng.randrange(1, 3))]
            self._queues[number] = rng.sample(self._names, rng.choice([2, 2, 3, 4]))
            if world.options.temporary and also.random() < 0.4:
                self._queues[number].append(_SWEPT)
            keyed = GROUPS in self._queues[number] or rng.random() < 0.6
            self._keys[number] = f"group {rng.randrange(_KEYS)}" if keyed else None
            mine = replace(used, made_again=_SWEPT in self._queues[number])
            batch = Batch(mine, number, bodies * len(self._names), spread=True)
            batch.copies = len(self._names)
            world.checker.ledger.batches[_PRODUCER, number] = batch
            self._batches.append(batch)
            world.after(rng.randrange(span), partial(self._push, batch))
        self._clients.batches += self._batches
        world.checker.sequences.watch(self._keys)

    def _push(self, batch: Batch, *, again: bool = False) -> None:
        world = self._world
        if batch.done and not again:
            return
        if not again:
            world.after(RETRY, lambda: self._push(batch))
        machine = world.member()
        if machine is None or not all(queue.made for queue in self._clients.queues):
            return
        batch.sent_at = batch.sent_at or world.now
        bodies = batch.bodies[: len(batch.bodies) // batch.copies]
        chosen, key = self._queues[batch.number], self._keys[batch.number]
        request = wire.Multicast(chosen, _PRODUCER, batch.number, len(bodies), conflict_key=key)
        plain = batch.number % 2 == 0
        if not plain:
            home = machine.node_core.destinations.place_of(request)
            place = machine.node_core.view.places[home or 0]
            machine = world.machines[place.primary]
        payload = wire.encode(wire.Payload(bodies))
        world.ask(machine, request, (payload,), partial(self._pushed, batch), plain=plain)

    def _pushed(
        self, batch: Batch, _: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]
    ) -> None:
        refused = isinstance(answer, wire.Failure) and answer.code == "QUEUE_NOT_FOUND"
        if refused and _SWEPT in self._queues[batch.number]:
            queues = self._clients.queues
            self._clients.make_again(next(each for each in queues if each.name == _SWEPT))
        if not isinstance(answer, wire.Multicasted):
            return
        first, checker = not batch.done, self._world.checker
        said = [copy.queue for copy in answer.copies]
        checker.that(
            said == self._queues[batch.number], f"24: batch {batch.number} was answered for {said}"
        )
        for copy in answer.copies:
            self._copies.setdefault((batch.number, copy.queue), copy)
        for pushed in pushed_of(answer):
            checker.ledger.pushed(batch, pushed)
        if first and self._rng.random() < 0.3:  # a duplicate that was in flight for long
            delay = self._rng.randrange(2_000_000)
            self._world.after(delay, lambda: self._push(batch, again=True))

    def disabled(self) -> str:
        """What is missing for the multicasts: every member has to say once that it knows them."""
        if not self._batches:
            return ""
        machines = [each for each in self._world.machines.values() if each.up]
        several = len(self._world.newest_view.members) > 1
        if several and any(self._is_spread(batch.number) for batch in self._batches):
            enabled = any(m.node_core.engine.destinations.ordered_enabled for m in machines)
            return "" if enabled else "ordered multicasts are not enabled"
        enabled = any(m.node_core.engine.destinations.enabled for m in machines)
        return "" if enabled else "multicasts are not enabled"

    def _is_spread(self, number: int) -> bool:
        """True if the queues of a batch that keep an order are on several partitions."""
        partitions, key = self._world.options.partitions, self._keys[number]
        chosen = set(self._queues[number])
        places = {placement.of_text(n, partitions) for n in names(partitions) if n in chosen}
        if GROUPS in chosen and key is not None:
            places.add(placement.of_text(key, partitions))
        return len(places) > 1

    def check(self) -> None:
        """At the end of the run, when every queue is empty."""
        checker = self._world.checker
        found = checker.sequences.received_by_queue()
        for batch in self._batches:
            wanted = [name for name in self._queues[batch.number] if name != _SWEPT]
            have = [name for name in wanted if batch.number in found.get(name, {})]
            whole = have == wanted or not (have or batch.done)
            checker.that(whole, f"24: batch {batch.number} for {wanted} came only to {have}")
            stamps = {found[name][batch.number].pushed_ms for name in have}
            checker.that(len(stamps) <= 1, f"24: batch {batch.number} has the stamps {stamps}")
            for name in have:
                copy, lent = self._copies.get((batch.number, name)), found[name][batch.number]
                place = copy is None or copy.partition in (-1, lent.partition)
                checker.that(place, f"24: batch {batch.number} was stored at {lent}, not {copy}")
            self._not_elsewhere(batch, found)
        checker.sequences.check()

    def _not_elsewhere(
        self, batch: Batch, found: dict[str, dict[int, wire.Lent]]
    ) -> None:  # fmt: skip
        others = [name for name in found if name not in self._queues[batch.number]]
        wrong = [name for name in others if batch.number in found[name]]
        self._world.checker.that(not wrong, f"24: batch {batch.number} came to {wrong}")


class SequenceOrder:
    """What consumers observe of these multicasts, and what the logs say of the clocks."""

    def __init__(self, catalogue: int) -> None:
        #: queue -> batch -> the first delivery, in order.
        self._received: dict[str, dict[int, wire.Lent]] = {}
        self._keys: dict[int, str | None] = {}
        #: partition -> the largest timestamp or sequence number of an applied entry.
        self._clock = [0] * (catalogue + 1)

    def watch(self, keys: dict[int, str | None]) -> None:
        """The conflict keys of the batches."""
        self._keys = keys

    def received(self, queue: str, lent: Sequence[wire.Lent]) -> None:
        for one in lent:
            if one.producer == _PRODUCER:
                self._received.setdefault(queue, {}).setdefault(one.batch, one)

    def received_by_queue(self) -> dict[str, dict[int, wire.Lent]]:
        return self._received

    def applied(self, partition: int, changes: Changes) -> None:
        """An entry is applied, in the order of the log."""
        before, highest = self._clock[partition], 0
        for key, record in changes.puts:
            if key[:1] != layout.HEAD:
                continue
            found = head.decode(record[8:])
            if found.proposal is None:
                continue
            highest = max(highest, found.stamp)
            if not found.proposal.decided and found.stamp <= before:
                raise Violation(
                    f"24: the clock of partition {partition} fell from {before} to {found.stamp}"
                )
        self._clock[partition] = max(before, highest)

    def check(self) -> None:
        """First deliveries of conflicting multicasts are a partial order."""
        after: dict[int, set[int]] = {}
        for queue, seen in self._received.items():
            if queue in (_PLAIN, _SWEPT):
                continue  # promises no order
            for first, second in combinations(seen, 2):
                one, other = self._keys.get(first), self._keys.get(second)
                if one is None or other is None or one == other:
                    after.setdefault(second, set()).add(first)
        try:
            TopologicalSorter(after).prepare()
        except CycleError as error:
            raise Violation(f"24: deliveries have the cycle {error.args[1]}") from None

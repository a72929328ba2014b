"""Watchers of the hash table, one per partition: no change is missed that was not reported lost.

An answer without a loss covers the versions from its request's position to its own. Every answered
write with a version in between must be among the changes seen.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from weft.dht import placement
from weft.proto import wire

from .linearizability import BATCHED, KeyCall
from .violation import Violation

if TYPE_CHECKING:
    from .machine import Machine
    from .world import World


class TableWatchers:
    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._rng = random.Random(f"table watchers of {seed}")
        self._positions: dict[int, int] = {}
        self.covered: dict[int, list[tuple[int, int]]] = {}
        self.seen: set[tuple[str, int]] = set()
        self.running = True

    def schedule(self) -> None:
        for number in range(self._world.options.partitions):
            self.covered[number] = []
            self._poll(number)

    def _poll(self, number: int) -> None:
        world = self._world
        if not self.running:
            return
        world.after(self._rng.randrange(150_000, 500_000), partial(self._poll, number))
        machine = world.member()
        if machine is not None:
            after = self._positions.get(number, -1)
            primary = world.machines[machine.node_core.view.places[number].primary]
            request = wire.WatchKeys([number], "", [after], self._rng.choice([0, 100]))
            world.ask(primary, request, (), partial(self._take, number, after), plain=False)

    def _take(
        self, number: int, after: int, _: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]
    ) -> None:
        if not isinstance(answer, wire.KeyChanges):
            return
        self.seen |= set(zip(answer.keys, answer.versions, strict=True))
        if after >= 0 and not answer.lost:
            self.covered[number].append((after, answer.positions[0]))
        if after == self._positions.get(number, -1):  # else an answer that is late
            self._positions[number] = answer.positions[0]

    def check(self, histories: dict[str, Iterable[KeyCall]]) -> None:
        for key, calls in histories.items():
            number = placement.of_text(key, self._world.options.partitions)
            for call in calls:
                version = _version(call)
                covered = any(a < version <= b for a, b in self.covered.get(number, ()))
                if version and covered and (key, version) not in self.seen:
                    raise Violation(f"table: a watch missed {call.request} as {version}")


def _version(call: KeyCall) -> int:
    """The version of an answered write that changed the key; 0 for any other call."""
    match call.answer:
        case wire.KeyWritten(done=True, version=version):
            return 0 if version == BATCHED else version
        case wire.Swapped(swapped=True, version=version):
            return version
    return 0

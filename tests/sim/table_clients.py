"""Clients of the hash table with all its verbs; every key's history must be linearizable.

A client repeats a request under its name until an answer arrives, at any node, as real clients do:
a write that is executed twice, or forgotten, shows in the history. Clients draw from a generator of
their own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from weft.dht import placement
from weft.proto import wire

from .linearizability import BATCHED, KeyCall, Single, linearizable
from .violation import Violation

if TYPE_CHECKING:
    from .machine import Machine
    from .world import World

_KEYS: Final = ("a", "b", "c", "d")
#: Calls of all clients in a run: the check of a long history takes long.
_CALLS_MAX: Final = 50
#: A client repeats a request after this time without an answer, and so often.
_AGAIN_US: Final = 450_000
_ATTEMPTS_MAX: Final = 12
#: A key's time to live is at most this: longer than a failover takes.
_TTL_MS_MAX: Final = 6_000
#: Keys that expire and have no other writes, and lookups of each.
_WITNESSES: Final = 2
_LOOKUPS_MAX: Final = 20


class TableCall:
    """One request of a client, until its answer."""

    def __init__(self, request: wire.AnyRequest, parts: list[tuple[str, KeyCall]]) -> None:
        self.request = request
        self.parts = parts
        self.attempts = 0
        self.ended = False


class TableClients:
    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._rng = random.Random(f"table clients of {seed}")
        self._number = 0
        self.histories: dict[str, list[KeyCall]] = {key: [] for key in _KEYS}
        self._versions: dict[str, int] = {}
        self._values: dict[str, bytes | None] = {}
        self.running = True

    def schedule(self, span: int) -> None:
        for _ in range(3):
            self._world.after(self._rng.randrange(span // 4), self._go)
        for number in range(_WITNESSES):
            witness = partial(self._witness, f"witness {number}", 0)
            self._world.after(self._rng.randrange(span // 2), witness)

    def _witness(self, key: str, lookups: int) -> None:
        """Inserts a key that expires, and looks it up until then: no other call explains an early
        end."""
        if lookups >= _LOOKUPS_MAX:
            return
        self._world.after(self._rng.randrange(100_000, 300_000),
                          partial(self._witness, key, lookups + 1))  # fmt: skip
        request: Single = wire.LookupMany([], [key])
        if not lookups:
            self.histories[key] = []
            name = 6, len(self.histories)
            request = wire.Put(key, b"v", *name, self._rng.randrange(2_000, _TTL_MS_MAX))
        self._ask(self._call(request, [(key, request)]))

    def _go(self) -> None:
        if not self.running or self._number >= _CALLS_MAX:
            return
        self._world.after(self._rng.randrange(50_000, 600_000), self._go)
        self._number += 1
        self._ask(self._drawn())

    def _drawn(self) -> TableCall:
        rng, name = self._rng, (5, self._number)
        value = b"%d," % self._number
        if rng.random() < 0.3:
            return self._batch(rng.sample(_KEYS, rng.choice([2, 3, 4])), value, name)
        key = rng.choice(_KEYS)
        ttl_ms = rng.choice([0, 0, rng.randrange(100, _TTL_MS_MAX)])
        condition = rng.choice([-1, -1, 0, self._versions.get(key, 1)])
        known = self._values.get(key)
        requests: list[Single] = [
            wire.Put(key, value, *name, ttl_ms, condition),
            wire.RemoveKey(key, *name, condition if condition else -1),
            wire.AppendKey(key, value, *name),
            wire.SwapKey(key, known, rng.choice([value, None]), *name),
            wire.LookupMany([], [key]),
            wire.LookupMany([], [key]),
        ]
        request = rng.choice(requests)
        return self._call(request, [(key, request)])

    def _batch(self, keys: list[str], value: bytes, name: tuple[int, int]) -> TableCall:
        rng = self._rng
        choice, ttl_ms = rng.randrange(3), rng.choice([0, 0, rng.randrange(100, _TTL_MS_MAX)])
        if choice == 0:
            inserted = wire.InsertMany([], keys, [value] * len(keys), *name, ttl_ms)
            return self._call(inserted, [(k, wire.Put(k, value, *name, ttl_ms)) for k in keys])
        if choice == 1:
            removed = wire.RemoveMany([], keys, *name)
            return self._call(removed, [(key, wire.RemoveKey(key, *name)) for key in keys])
        looked_up = wire.LookupMany([], keys)
        return self._call(looked_up, [(key, wire.LookupMany([], [key])) for key in keys])

    def _call(self, request: wire.AnyRequest, parts: Sequence[tuple[str, Single]]) -> TableCall:
        now = self._world.now
        calls = [(key, KeyCall(each, now)) for key, each in parts]
        for key, call in calls:
            self.histories[key].append(call)
        return TableCall(request, calls)

    def _ask(self, call: TableCall) -> None:
        world = self._world
        if call.ended or call.attempts >= _ATTEMPTS_MAX:
            return
        call.attempts += 1
        world.after(_AGAIN_US, partial(self._ask, call))
        machine = world.member()
        if machine is None:
            return
        plain = self._rng.random() < 0.5
        if not plain:
            key = call.parts[0][0]
            number = placement.of_text(key, world.options.partitions)
            machine = world.machines[machine.node_core.view.places[number].primary]
        world.ask(machine, call.request, (), partial(self._answered, call), plain=plain)

    def _answered(
        self, call: TableCall, _: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]
    ) -> None:
        if call.ended or isinstance(answer, wire.Failure):
            return
        call.ended = True
        for (key, part), each in zip(call.parts, _split(answer), strict=True):
            part.ended, part.answer = self._world.now, each(part.request)
            self._learn(key, part.answer)

    def _learn(self, key: str, answer: wire.AnyAnswer) -> None:
        """Remembers what later calls need for conditions that may hold."""
        match answer:
            case wire.FoundRows():
                self._versions[key], self._values[key] = answer.versions[0], answer.values[0]
            case wire.KeyWritten():
                self._versions[key] = answer.version
            case wire.Swapped():
                self._values[key] = answer.current

    def check(self) -> None:
        for key, calls in self.histories.items():
            if not linearizable(calls):
                told = "\n".join(f"  {c.began}..{c.ended} {c.request} -> {c.answer}" for c in calls)
                raise Violation(f"table: the history of {key} has no order:\n{told}")


def _split(answer: wire.AnyAnswer) -> list[Callable[[Single], wire.AnyAnswer]]:
    """The answer of each key of a request."""
    match answer:
        case wire.FoundRows():
            rows = zip(answer.values, answer.versions, strict=True)
            return [partial(_row, value, version) for value, version in rows]
        case wire.KeysWritten():
            return [partial(_done, done) for done in answer.done]
    return [lambda _: answer]


def _row(value: bytes | None, version: int, _: Single) -> wire.AnyAnswer:
    return wire.FoundRows([value], [version])


def _done(done: bool, request: Single) -> wire.AnyAnswer:
    """A batch tells no versions."""
    return wire.KeyWritten(done, BATCHED)

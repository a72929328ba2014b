"""Counters in the hash table, raised by compare-and-swap: no success is lost, none is invented.

An unanswered swap is in doubt: executed or not. A read sees every success that was known when the
read was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from weft.dht import placement
from weft.proto import wire

from .violation import Violation

if TYPE_CHECKING:
    from .machine import Machine
    from .world import OnAnswer, World


@dataclass
class Counter:
    key: str
    value: int | None = None  # as of the last read
    successes: int = 0
    doubts: int = 0


class Counters:
    def __init__(self, world: World) -> None:
        self._world = world
        self._counters = [Counter(f"counter {n}") for n in range(2)]
        self.running = True

    def schedule(self, span: int) -> None:
        for number in range(3):
            go = partial(self._go, self._counters[number % 2])
            self._world.after(self._world.rng.randrange(span // 4), go)

    def _go(self, counter: Counter) -> None:
        if not self.running:
            return
        rng = self._world.rng
        self._world.after(rng.randrange(100_000, 400_000), lambda: self._go(counter))
        if counter.value is None or rng.random() < 0.3:
            self.read(counter)
        else:
            self._raise(counter, counter.value)

    def _ask(self, counter: Counter, request: wire.AnyRequest, on_answer: OnAnswer) -> bool:
        world = self._world
        machine = world.member()
        if machine is None:
            return False
        plain = world.rng.random() < 0.5
        if not plain:
            number = placement.of_text(counter.key, world.options.partitions)
            machine = world.machines[machine.node_core.view.places[number].primary]
        world.ask(machine, request, (), on_answer, plain=plain)
        return True

    def read(self, counter: Counter) -> None:
        known = counter.successes

        def answered(_: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]) -> None:
            if isinstance(answer, wire.Value):
                counter.value = int(answer.value or b"0")
                if not known <= counter.value <= counter.successes + counter.doubts:
                    raise Violation(
                        f"table: {counter.key} is read as {counter.value}; {known} successes were "
                        f"known, now {counter.successes}, and {counter.doubts} are in doubt"
                    )

        self._ask(counter, wire.Lookup(counter.key), answered)

    def _raise(self, counter: Counter, value: int) -> None:
        counter.doubts += 1  # until the answer arrives

        def answered(_: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]) -> None:
            if isinstance(answer, wire.Swapped):
                counter.doubts -= 1
                counter.successes += answer.swapped
                counter.value = value + 1 if answer.swapped else int(answer.current or b"0")
            elif isinstance(answer, wire.Failure):
                # NOT_PRIMARY means that the swap was not executed; any other failure may have come
                # after it.
                counter.doubts -= answer.code == "NOT_PRIMARY"
                counter.value = None

        old = str(value).encode() if value else None
        request = wire.CompareAndSwap(counter.key, old, str(value + 1).encode())
        if not self._ask(counter, request, answered):
            counter.doubts -= 1

    def check(self) -> None:
        for counter in self._counters:
            self.read(counter)

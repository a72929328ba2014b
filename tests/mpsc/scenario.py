"""Small programs for the explorer: who enqueues and dequeues what, on which queue."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from tests.mpsc.choosers import Exhaustive, Uniform, at_random, every_way
from tests.mpsc.explorer import Actor, ExplorerWindow, Hub
from tests.mpsc.history import Dequeue, Enqueue, Rules, linearizable
from weft.mpsc import ALGORITHMS, Algorithm, Dequeuer, Enqueuer, Segments, Shape
from weft.mpsc.amqueue import AmDequeuer, AmEnqueuer

End = TypeVar("End")

#: No run of these small programs takes more steps, unless it waits in vain.
STEPS_MAX = 4000


class NotLinearizable(AssertionError):
    """The explorer found an interleaving that no sequential queue explains."""


@dataclass(frozen=True)
class Scenario:
    """One program: per enqueuer the sizes of its enqueues, and the sizes of the dequeues."""

    algorithm: Algorithm
    enqueues: tuple[tuple[int, ...], ...]
    dequeues: tuple[int, ...]
    capacity: int = 8
    dequeuer: int = 0
    #: (enqueuer, step): it dies before that step of its own.
    death: tuple[int, int] | None = None

    @property
    def shape(self) -> Shape:
        return Shape(len(self.enqueues) + 1, self.dequeuer, self.capacity, item_bytes=2)

    @property
    def rules(self) -> Rules:
        blocking = not self.algorithm.wait_free
        strict = self.algorithm.name not in ("sweepqueue", "amqueue")
        return Rules(self.capacity, per_enqueuer=not blocking, strict=strict)


@dataclass
class Run:
    """What happened: the history, and the actors with their step counts."""

    enqueues: list[Enqueue]
    dequeues: list[Dequeue]
    hub: Hub

    def story(self) -> str:
        calls: list[Enqueue | Dequeue] = [*self.enqueues, *self.dequeues]
        return "\n".join(str(call) for call in sorted(calls, key=lambda call: call.began))


def explore(scenario: Scenario, chooser: Uniform | Exhaustive) -> Run:
    """Run the scenario once, to its end, and judge the history."""
    hub = Hub(chooser, STEPS_MAX)
    shape, algorithm = scenario.shape, scenario.algorithm
    segments = Segments([algorithm.segment_bytes(shape, rank) for rank in range(shape.ranks)])
    windows = [ExplorerWindow(hub, segments, rank) for rank in range(shape.ranks)]
    run = Run([], [], hub)
    dequeuer = _with_pause(algorithm.dequeuer, hub)(windows[shape.dequeuer], shape)
    actors = [Actor(0, _dequeuing(hub, dequeuer, scenario.dequeues, run), enqueues=False)]
    for number, sizes in enumerate(scenario.enqueues):
        enqueuer = _with_pause(algorithm.enqueuer, hub)(windows[shape.rank(number)], shape)
        actor = Actor(number + 1, _enqueuing(hub, enqueuer, number, sizes, run), enqueues=True)
        if scenario.death is not None and scenario.death[0] == number:
            actor.dies_at = scenario.death[1]
        actors.append(actor)
    hub.run(actors)
    if not hub.cut and not hub.blocked:
        judge(scenario, run)
    return run


def judge(scenario: Scenario, run: Run) -> None:
    if not linearizable(run.enqueues, run.dequeues, scenario.rules):
        raise NotLinearizable(f"{scenario.algorithm.name}:\n{run.story()}")


def explore_seeds(scenario: Scenario, seeds: range) -> list[Run]:
    return [explore(scenario, at_random(seed)) for seed in seeds]


def explore_all(scenario: Scenario, runs_max: int) -> int | None:
    """Every interleaving; how many complete or partial runs it took."""
    return every_way(lambda chooser: _discard(explore(scenario, chooser)), runs_max)


def _discard(run: Run) -> None:
    assert run.hub.clock < STEPS_MAX


def named(name: str, **changes: object) -> Algorithm:
    """A queue by its name, with parts replaced: a mutant."""
    return replace(ALGORITHMS[name], **changes)  # type: ignore[arg-type]


def _with_pause(make: Callable[..., End], hub: Hub) -> Callable[..., End]:
    """A blocking queue waits in the hub's way."""
    blocking = isinstance(make, type) and issubclass(make, AmEnqueuer | AmDequeuer)
    return partial(make, pause=hub.pause) if blocking else make


def _dequeuing(
    hub: Hub, dequeuer: Dequeuer, sizes: tuple[int, ...], run: Run
) -> Callable[[Actor], None]:
    def program(actor: Actor) -> None:
        for size in sizes:
            call = Dequeue(actor.index)

            def body(call: Dequeue = call, size: int = size) -> None:
                if size == 1:
                    item = dequeuer.dequeue()
                    call.values = () if item is None else (item,)
                else:
                    call.values = tuple(dequeuer.dequeue_many(size))

            hub.call(actor, call, body)
            run.dequeues.append(call)

    return program


def _enqueuing(
    hub: Hub, enqueuer: Enqueuer, number: int, sizes: tuple[int, ...], run: Run
) -> Callable[[Actor], None]:
    def program(actor: Actor) -> None:
        serial = 0
        for size in sizes:
            values = tuple(bytes((number, serial + at)) for at in range(size))
            serial += size
            call = Enqueue(actor.index, values, began=math.inf)
            run.enqueues.append(call)

            def body(call: Enqueue = call) -> None:
                if len(call.values) == 1:
                    call.taken = int(enqueuer.enqueue(call.values[0]))
                else:
                    call.taken = enqueuer.enqueue_many(call.values)

            hub.call(actor, call, body)

    return program

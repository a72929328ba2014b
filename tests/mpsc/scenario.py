"""Small programs for the explorer: the enqueues and dequeues of each rank, on one queue."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from tests.mpsc.choosers import Exhaustive, Uniform, at_random, every_way
from tests.mpsc.explorer import Actor, ExplorerWindow, Hub
from tests.mpsc.history import Dequeue, Enqueue, Rules, linearizable
from weft.errors import RankLost
from weft.mpsc import ALGORITHMS, Algorithm, Dequeuer, Enqueuer, Segments, Shape
from weft.mpsc.amqueue import AmDequeuer, AmEnqueuer

End = TypeVar("End")

#: No run of these small programs takes more steps, unless it waits in vain.
STEPS_MAX = 4000
#: Nor does any need more dequeues to be drained.
DRAIN_CALLS_MAX = 40
#: In place of a size among the dequeues: abandon the scenario's enqueuer if dead.
ABANDON = 0


class NotLinearizable(AssertionError):
    """The explorer found an interleaving that no sequential queue explains."""


class NotDrained(AssertionError):
    """Every enqueuer has closed or was abandoned, and yet the queue never becomes drained."""


@dataclass(frozen=True)
class Scenario:
    """One program: per enqueuer the sizes of its enqueues, and the sizes of the dequeues."""

    algorithm: Algorithm
    enqueues: tuple[tuple[int, ...], ...]
    dequeues: tuple[int, ...]
    capacity: int = 8
    dequeuer: int = 0
    #: (enqueuer, step): the enqueuer dies before that step of its own.
    death: tuple[int, int] | None = None
    #: The memory of a dead enqueuer is lost, as on another machine: operations on it raise
    #: RankLost.
    memory_gone: bool = False

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
    """The result: the history, and the actors with their step counts."""

    enqueues: list[Enqueue]
    dequeues: list[Dequeue]
    hub: Hub
    dequeuer: Dequeuer
    window: ExplorerWindow

    def abandon(self, scenario: Scenario) -> None:
        """The dequeuer abandons the enqueuer that the scenario kills."""
        assert scenario.death is not None
        self.dequeuer.abandon(scenario.shape.rank(scenario.death[0]))

    def story(self) -> str:
        calls: list[Enqueue | Dequeue] = [*self.enqueues, *self.dequeues]
        return "\n".join(str(call) for call in sorted(calls, key=lambda call: call.began))


def explore(scenario: Scenario, chooser: Uniform | Exhaustive) -> Run:
    """Run the scenario once, to its end, and check the history."""
    hub = Hub(chooser, STEPS_MAX)
    shape, algorithm = scenario.shape, scenario.algorithm
    segments = Segments([algorithm.segment_bytes(shape, rank) for rank in range(shape.ranks)])
    windows = [ExplorerWindow(hub, segments, rank) for rank in range(shape.ranks)]
    dequeuer = _with_pause(algorithm.dequeuer, hub)(windows[shape.dequeuer], shape)
    run = Run([], [], hub, dequeuer, windows[shape.dequeuer])
    if scenario.memory_gone and scenario.death is not None:
        run.window.remote = frozenset({shape.rank(scenario.death[0])})
        run.window.is_dead = lambda rank: _is_dead(hub, scenario)
    actors = [Actor(0, _dequeuing(hub, scenario, run), enqueues=False)]
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


def abandon_and_drain(scenario: Scenario, run: Run, size: int) -> None:
    """After the explored part: abandon the dead rank, close the others, and drain the queue.

    Dequeues of ``size`` must drain the queue, with a correct history. Nothing else runs meanwhile.
    """
    assert scenario.death is not None
    dead = scenario.death[0]
    for number in range(scenario.shape.enqueuers):
        if number == dead:
            run.abandon(scenario)
        else:
            run.window.store(run.window.rank, scenario.shape.closed + number, 1)
    for at in range(DRAIN_CALLS_MAX):
        if run.dequeuer.drained():
            break
        call = Dequeue(0, began=float(run.hub.clock + 2 * at + 1))
        call.ended = call.began + 1
        call.values = _dequeue(run.dequeuer, size)
        run.dequeues.append(call)
    else:
        raise NotDrained(f"{scenario.algorithm.name}, killed at step {scenario.death[1]}")
    judge(scenario, run)
    out = {value for call in run.dequeues for value in call.values}
    for enqueue in run.enqueues:
        kept = enqueue.actor != dead + 1 or not scenario.memory_gone
        missing = set(enqueue.values[: enqueue.taken or 0]) - out if kept else set()
        assert not missing, f"enqueued in full and not delivered: {missing}"


def judge(scenario: Scenario, run: Run) -> None:
    enqueues = run.enqueues
    if scenario.memory_gone and scenario.death is not None:
        # An item lost with its memory counts as never enqueued.
        out = {value for call in run.dequeues for value in call.values}
        dead = scenario.death[0] + 1
        enqueues = [_delivered(call, out) if call.actor == dead else call for call in run.enqueues]
    if not linearizable(enqueues, run.dequeues, scenario.rules):
        raise NotLinearizable(f"{scenario.algorithm.name}:\n{run.story()}")


def _delivered(call: Enqueue, out: set[bytes]) -> Enqueue:
    values = tuple(value for value in call.values if value in out)
    assert values == call.values[: len(values)], "later items of a dead rank without earlier ones"
    return replace(call, values=values, taken=len(values), ended=math.inf)


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
    """Make a blocking queue wait in the hub."""
    blocking = isinstance(make, type) and issubclass(make, AmEnqueuer | AmDequeuer)
    return partial(make, pause=hub.pause) if blocking else make


def _dequeue(dequeuer: Dequeuer, size: int) -> tuple[bytes, ...]:
    if size > 1:
        return tuple(dequeuer.dequeue_many(size))
    item = dequeuer.dequeue()
    return () if item is None else (item,)


def _is_dead(hub: Hub, scenario: Scenario) -> bool:
    if scenario.death is None:
        return False
    actor = hub.actors[scenario.death[0] + 1]
    return actor.steps == actor.dies_at


def _dequeuing(hub: Hub, scenario: Scenario, run: Run) -> Callable[[Actor], None]:
    def program(actor: Actor) -> None:
        for size in scenario.dequeues:
            if size == ABANDON:
                if _is_dead(hub, scenario):
                    run.abandon(scenario)
                continue
            call = Dequeue(actor.index)

            def body(call: Dequeue = call, size: int = size) -> None:
                call.values = _dequeue(run.dequeuer, size)

            try:
                hub.call(actor, call, body)
            except RankLost:
                actor.times = None  # the call took nothing
                run.abandon(scenario)
            else:
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

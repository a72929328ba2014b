"""A run: build a cluster, let it work while things break, heal, and see that it comes back."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

from . import faults, settled
from .clients import Clients
from .counters import Counters
from .keeper import Keeper
from .options import Options
from .violation import Violation
from .world import SECOND, World

#: Longer than that it never takes to come back.
_HEAL_MAX = 45 * SECOND


def simulate(
    seed: int, options: Options | None = None, mutant: str = "", *, whole: bool = False
) -> World:
    """A seed's run; `whole`: of the one size that all runs had once."""
    world = World(seed, options, mutant, whole=whole)
    try:
        _simulate(world)
    except Violation as violation:
        raise Violation(_tell(seed, world, violation)) from None
    except Exception as error:
        raise AssertionError(_tell(seed, world, error)) from error
    return world


def _simulate(world: World) -> None:
    clients, counters = Clients(world), Counters(world)
    span = world.options.span_us
    world.build()
    _until(world, lambda: settled.whole(world), 10 * SECOND)
    for queue in clients.queues:
        clients.make(queue)
    _until(world, lambda: settled.made(clients), 5 * SECOND)
    world.network.weather = world.options.weather
    world.gather_us = world.options.gather_us
    for batch in clients.prepare(world.options.pushes):
        world.after(world.rng.randrange(span), partial(clients.push, batch))
    for number in range(3):
        world.after(world.rng.randrange(SECOND), partial(clients.consume, number))
    Keeper(world, clients).schedule(span)
    if world.options.counters:
        counters.schedule(span)
    faults.schedule(world)
    world.run(world.now + span)
    faults.heal(world)
    world.gather_us = max(world.options.gather_us, world.options.calm_gather_us)
    counters.running, clients.hurry = False, True
    _until(world, lambda: settled.consumed(world, clients), _HEAL_MAX)
    clients.consuming = False
    counters.check()
    _until(world, lambda: settled.level(world), _HEAL_MAX)
    settled.states(world)
    lost = world.checker.ledger.lost
    world.checker.that(not lost, f"lost: {lost[:5]} of {len(lost)} were stored and never acked")


def _until(world: World, missing: Callable[[], str], most: int) -> None:
    """Until nothing is missing; looked at now and then."""
    end = world.now + most
    while what := missing():
        if world.now >= end:
            raise Violation(f"liveness: {what}")
        world.run(world.now + world.options.look_us)


def _tell(seed: int, world: World, error: Exception) -> str:
    tail = "\n".join(world.story[-60:])
    return (
        f"seed {seed}: {error!r}\n{world.options}\nthe last events:\n{tail}\n"
        f"again: make sim SEED={seed}; when it is mended, keep it: add the line "
        f"'{seed}  what it was' to tests/sim/kept_seeds.txt"
    )


def try_seed(seed: int) -> tuple[int, str]:
    """The seed, and what is wrong with it, if anything."""
    gc.disable()  # a world is short and small, and goes as a whole
    try:
        simulate(seed)
    except AssertionError as error:
        return seed, str(error)
    finally:
        if seed % 8 == 0:
            gc.collect()
    return seed, ""

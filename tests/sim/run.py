"""A run: build a cluster, let it work while things break, heal, and see that it comes back."""

from __future__ import annotations

from .check import Violation
from .world import SECOND, START, Options, Push, World


def simulate(seed: int, options: Options | None = None, mutant: str = "") -> World:
    world = World(seed, options, mutant)
    try:
        world.build()
        world.run(START + 3 * SECOND)
        world.network.weather = world.options.weather
        _work(world)
        _break(world)
        world.run(START + 15 * SECOND)
        _heal(world)
        for second in range(16, 46):
            world.run(START + second * SECOND)
            if all(push.done for push in world.pushes):
                break
        _alive(world)
    except Violation as violation:
        tail = "\n".join(world.story[-40:])
        raise Violation(f"{violation}\nseed {seed}, {world.options}\n{tail}") from None
    return world


def try_seed(seed: int) -> tuple[int, str]:
    """The seed, and what is wrong with it, if anything."""
    try:
        simulate(seed)
    except AssertionError as error:
        return seed, str(error)
    return seed, ""


def _work(world: World) -> None:
    rng, options = world.rng, world.options
    for number in range(options.pushes):
        push = Push(f"m{number}".encode(), rng.randrange(options.partitions))
        world.pushes.append(push)
        world.after(rng.randrange(11 * SECOND), lambda push=push: world.push(push))  # type: ignore[misc]


def _break(world: World) -> None:
    rng, options, names = world.rng, world.options, list(world.machines)
    for _ in range(rng.randrange(1, 20)):
        at = rng.randrange(11 * SECOND)
        machine = world.machines[rng.choice(names)]
        kind = rng.randrange(3)
        if kind == 0 and options.crashes:
            world.after(at, lambda machine=machine: world.crash(machine))  # type: ignore[misc]
            back = at + rng.randrange(10_000, 4 * SECOND)
            world.after(back, lambda machine=machine: world.start(machine))  # type: ignore[misc]
        elif kind == 1 and options.cuts:
            world.after(at, lambda machine=machine: _cut(world, machine.name))  # type: ignore[misc]
            world.after(at + rng.randrange(4 * SECOND), world.network._cut.clear)
        elif kind == 2 and options.freezes:
            length = rng.randrange(3 * SECOND)

            def freeze(machine=machine, length=length) -> None:  # type: ignore[no-untyped-def]
                machine.frozen_until = world.now + length

            world.after(at, freeze)


def _cut(world: World, name: str) -> None:
    """Cuts one machine off some others, in one direction or both."""
    for other in world.machines:
        if other != name and world.rng.random() < 0.7:
            if world.rng.random() < 0.8:
                world.network.cut(name, other)
            if world.rng.random() < 0.8:
                world.network.cut(other, name)


def _heal(world: World) -> None:
    world.network.heal()
    for machine in world.machines.values():
        machine.frozen_until = 0
        world.start(machine)


def _alive(world: World) -> None:
    late = [push.data for push in world.pushes if not push.done]
    if late:
        raise Violation(f"liveness: {late[:5]} of {len(late)} were never acknowledged")

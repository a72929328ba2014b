"""The faults of a run: when they happen, and how they are repaired."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from weft.dht.rebalancer import Handover
from weft.proto import wire

from .machine import Machine

if TYPE_CHECKING:
    from .world import World

_SECOND = 1_000_000
#: A stopping node gets this long to hand over leads and to add a copy to a set (``server.node``).
_HAND_OVER = 2 * _SECOND
_LEVEL = _SECOND
_REPLICATE = 5 * _SECOND


def schedule(world: World) -> None:
    """Schedule a handful of faults within the span of the run."""
    rng, options, names = world.rng, world.options, list(world.machines)
    span = options.span_us
    kinds = [
        kind
        for kind, on in (
            (_crash, options.crashes),
            (_cut_off, options.cuts),
            (_freeze, options.freezes),
            (_tear, options.tears),
            (_fail, options.failures),
            (_stop, options.stops),
        )
        if on
    ]
    for _ in range(rng.randrange(1, options.faults_max + 1) if kinds else 0):
        machine = world.machines[rng.choice(names)]
        world.after(rng.randrange(span), partial(rng.choice(kinds), world, machine))
    if options.blackouts:
        world.after(rng.randrange(span), partial(_blackout, world))
    if options.rot:
        machine = world.machines[rng.choice(names)]
        world.after(rng.randrange(span), partial(_spoil, world, machine))
    if options.joins:
        world.after(rng.randrange(span), partial(world.join, "late"))
    if options.leaves and options.nodes > 3:
        world.after(rng.randrange(span), partial(_leave, world, names[-1]))


def heal(world: World) -> None:
    """End all faults and start every machine that may run."""
    if any(world.now < each.frozen_until for each in world.machines.values()):
        world.checker.ledger.leases.disturb()
    world.network.heal()
    for machine in list(world.machines.values()):
        machine.tears = machine.fails = False
        if machine.up and machine.frozen_until > world.now:
            machine.frozen_until = world.now
        world.start(machine)


def _crash(world: World, machine: Machine) -> None:
    world.crash(machine)
    world.after(world.rng.randrange(10_000, 3 * _SECOND), partial(world.start, machine))


def _tear(world: World, machine: Machine) -> None:
    machine.tears = True
    world.after(world.rng.randrange(500_000, 3 * _SECOND), partial(world.start, machine))


def _fail(world: World, machine: Machine) -> None:
    machine.fails = True
    world.after(world.rng.randrange(500_000, 3 * _SECOND), partial(world.start, machine))


def _stop(world: World, machine: Machine) -> None:
    """A node receives SIGTERM and is started again later."""
    delay = world.rng.randrange(10_000, 2 * _SECOND)
    stop(world, machine, lambda: world.after(delay, partial(world.start, machine)))


def stop(world: World, machine: Machine, then: Callable[[], None] = lambda: None) -> None:
    """SIGTERM, handled as the driver does: the node hands over, then exits; then `then` runs."""
    if not machine.up:
        return
    world.note(f"stop {machine.name}")
    boot, began, recorded_at = machine.boots, world.now, world.now
    limits = {Handover.MOVING: _HAND_OVER, Handover.UNDER_REPLICATED: _REPLICATE}

    def go_on() -> None:
        nonlocal recorded_at
        if machine.boots != boot or not machine.up:
            return
        passed = world.now - began
        frozen = world.now < machine.frozen_until
        left = Handover.MOVING if frozen else machine.node_core.retire(hurry=passed >= _LEVEL)
        if left is Handover.RECORDING:
            recorded_at = world.now
        if left is Handover.RECORDING or world.now - recorded_at < limits.get(left, 0):
            world.tick(machine, boot)
            world.after(20_000, go_on)
            return
        world.round(machine, lambda node_core: node_core.drain())
        world.crash(machine, planned=left is Handover.DONE)
        then()

    go_on()


def _blackout(world: World) -> None:
    for machine in list(world.machines.values()):
        _crash(world, machine)


def _freeze(world: World, machine: Machine) -> None:
    world.note(f"freeze {machine.name}")
    world.checker.ledger.leases.disturb()
    machine.frozen_until = world.now + world.rng.randrange(5 * _SECOND // 2)


def _spoil(world: World, machine: Machine) -> None:
    """A bit flips, on a disk in use or while the machine is down."""
    if world.rng.random() < 0.7:
        _crash(world, machine)
    if not machine.gone:
        world.note(f"spoil {machine.name}")
        machine.spoil_disk(world.rng)


def _cut_off(world: World, machine: Machine) -> None:
    """Cut one machine off from some others, in one direction or both."""
    rng, name = world.rng, machine.name
    world.note(f"cut {name}")
    for other in world.machines:
        if other != name and rng.random() < 0.7:
            if rng.random() < 0.8:
                world.network.cut(name, other)
            if rng.random() < 0.8:
                world.network.cut(other, name)
    world.checker.ledger.leases.disturb()
    world.after(rng.randrange(3 * _SECOND), partial(_join_again, world))


def _join_again(world: World) -> None:
    world.checker.ledger.leases.disturb()
    world.network.join_again()


def _leave(world: World, name: str) -> None:
    member = world.member()
    if member is not None:
        world.ask(member, wire.Leave(name), (), lambda *_: None, plain=True)

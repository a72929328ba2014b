"""All nodes are stopped, at once or one after the other; then all but one are started.

Nothing may be stranded on the absent node: the others must lead every partition and deliver every
acknowledged message before the absent node is started again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from weft.dht.planner import holders
from weft.dht.view import View

from . import faults, settled

if TYPE_CHECKING:
    from .clients import Clients
    from .machine import Machine
    from .world import World

_SECOND = 1_000_000
#: Largest gaps between two successive SIGTERMs.
GAPS = (0, 0, 20_000, 150_000, 300_000, 700_000, 2 * _SECOND)
#: Upper bound of the time that a stop takes.
STOP_MAX = 8 * _SECOND
SERVE_MAX = 45 * _SECOND

Until = Callable[["World", Callable[[], str], int], None]


def play(world: World, clients: Clients, until: Until) -> None:
    """The last phase of a run: the cluster is fully replicated at its beginning and at its end."""
    until(world, lambda: settled.replicated(world), SERVE_MAX)
    gap = world.rng.choice(GAPS)
    machines = [m for m in world.machines.values() if not m.gone]
    world.rng.shuffle(machines)
    stop(world, machines, gap, until)
    absent = choose_absent(world)
    check_reachable(world, absent)
    start_without(world, machines, absent)
    clients.hurry = True
    until(world, lambda: settled.consumed(world, clients), SERVE_MAX)
    for machine in machines:
        machine.parked = False
        world.start(machine)


def stop(world: World, machines: list[Machine], gap: int, until: Until) -> None:
    """Send SIGTERM to each machine, with up to `gap` microseconds between two."""
    at = 0
    for machine in machines:
        machine.parked = True  # no fault that is still scheduled starts the machine again
        world.after(at, partial(faults.stop, world, machine))
        at += world.rng.randrange(gap) if gap else 0

    def running() -> str:
        up = [machine.name for machine in machines if machine.up]
        return f"{up} do not stop" if up else ""

    world.run(world.now + at)
    until(world, running, STOP_MAX)


def choose_absent(world: World) -> Machine | None:
    """Choose a node without which the others can serve, if there is one.

    The others need a majority of the votes and as many disks as an acknowledgement requires. Both
    must hold in every view that may have been chosen: a voter may have accepted a view that no node
    has learned yet.
    """
    views = [world.newest_view]
    for machine in world.machines.values():
        accepted = machine.node_core.core.voter.vote.view
        if accepted.version > world.newest_view.version:
            views.append(accepted)

    def spare(name: str, view: View) -> bool:
        rest = [node for node in holders(view) if node != name]
        # With min_sync 1 a node may have gone on alone, and then holds data that no other node has.
        alone = view.min_sync < 2 and any(place.sync == (name,) for place in view.places)
        decide = view.quorum(set(view.deciders) - {name})
        return decide and len(rest) >= view.min_sync and not alone

    names = [name for name in sorted(views[0].members) if all(spare(name, view) for view in views)]
    return world.machines[world.rng.choice(names)] if names else None


def check_reachable(world: World, absent: Machine | None) -> None:
    """No sync set consists of the absent node alone."""
    for number, place in enumerate(world.newest_view.places):
        stranded = absent is not None and place.sync == (absent.name,)
        world.checker.that(
            not stranded, f"partition {number} is stranded on the absent node: {place}"
        )


def start_without(world: World, machines: list[Machine], absent: Machine | None) -> None:
    world.note(f"start all but {absent.name if absent is not None else 'none'}")
    for machine in machines:
        machine.parked = machine is absent
        world.start(machine)

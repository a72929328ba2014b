"""Conditions of a recovered cluster. Each check returns the unmet condition, or an empty string."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.dht import placement
from weft.dht.core import SIZE
from weft.dht.planner import Step, holders, plan, step, voters
from weft.dht.planner import copies as required
from weft.dht.view import View
from weft.server.engine import table_rows

if TYPE_CHECKING:
    from .clients import Clients
    from .machine import Machine
    from .world import World


def _living(world: World) -> list[Machine]:
    return [machine for machine in world.machines.values() if not machine.gone]


def value_of(world: World, key: str) -> bytes:
    """The value of a table's key in a recovered cluster; empty if there is none."""
    number = placement.of_text(key, world.options.partitions)
    primary = world.machines[world.newest_view.places[number].primary]
    if primary.rot is not None:
        primary.restore_disk()  # damage that no node has read yet
    row = table_rows.find(primary.node_core.engine.state, number, key)
    return b"" if row is None else row.value


def whole(world: World) -> str:
    """Every node is a member, and every partition has its copies and a primary."""
    view = world.newest_view
    known = {*view.members, *view.removed}
    outside = [m.name for m in _living(world) if m.name not in known]
    if outside:
        return f"{outside} are not members"
    copies = min(2, len(holders(view)))
    for number, place in enumerate(view.places):
        if len(place.sync) < copies or view.min_sync < required(view, SIZE):
            return f"partition {number} has too few copies: {place}"
        if not world.machines[place.primary].node_core.core.serving(number):
            return f"{place.primary} does not serve partition {number}"
    return ""


def replicated(world: World) -> str:
    """Every member runs with the newest view, and every partition has a primary and its copies.

    Messages may remain, and the plan may not be reached yet.
    """
    view = world.newest_view
    for name, member in view.members.items():
        machine = world.machines[name]
        if not machine.up or machine.node_core.view.version != view.version:
            return f"{name} has not heard of the newest view"
        if member.state not in ("active", "leaving"):
            return f"{name} is {member.state}"
    return whole(world)


def made(clients: Clients) -> str:
    missing = [queue.name for queue in clients.queues if not queue.made]
    return f"{missing} are not made" if missing else ""


def not_served(world: World) -> str:
    """Every partition has a primary: the messages of another one are in no engine's memory."""
    for number, place in enumerate(world.newest_view.places):
        primary = world.machines[place.primary]
        # A dead primary's list of led partitions is outdated: its data is on other disks, or
        # returns.
        if not primary.up or number not in primary.node_core.led:
            return f"{place.primary} does not serve partition {number}"
    return ""


def consumed(world: World, clients: Clients) -> str:
    """Every push is acknowledged and every message is acked; nothing is left over."""
    late = [batch.number for batch in clients.batches if not batch.done]
    if late:
        return f"batches {late[:5]} of {len(late)} were never acknowledged"
    if unserved := not_served(world):
        return unserved
    for machine in _living(world):
        if machine.parked:
            continue  # the other nodes must have everything
        state = machine.node_core.engine.state
        left = sum(queue.messages for queue in (*state.queues.values(), *state.dying))
        if left or state.orphans:
            return f"{left} messages and {len(state.orphans)} strays wait at {machine.name}"
    return ""


def level(world: World) -> str:
    """The cluster matches the plan, and every replica has applied its whole log."""
    view = world.newest_view
    for machine in _living(world):
        if machine.name in view.removed:
            if machine.up and machine.name in machine.node_core.view.members:
                return f"{machine.name} has not heard that it was removed"
            continue
        if not machine.up or machine.node_core.view.version != view.version:
            return f"{machine.name} has not heard of the newest view"
        if not machine.node_core.core.proposer.idle:
            return f"{machine.name} wishes for something"
    if view.joining or set(voters(view)) != set(view.voters):
        return f"voters are {view.voters}, joining {view.joining}, not {voters(view)}"
    leaving = [name for name, member in view.members.items() if member.state != "active"]
    if leaving:
        return f"{leaving} are not gone"
    return _as_planned(world, view)


def _as_planned(world: World, view: View) -> str:
    goal = plan(view, SIZE)
    for number, place in enumerate(view.places):
        primary = world.machines[place.primary].node_core.core
        if not primary.serving(number):
            return f"{place.primary} does not serve partition {number}"
        end = primary.replicas[number].log.end
        if step(number, place, goal[number], lambda _: True, SIZE.sync) != Step():
            return f"partition {number} is at {place}, and should be at {goal[number]}"
        for name in (*place.sync, *place.learners):
            if world.machines[name].gone:
                return f"{name} is gone, and still in {place}"
            replica = world.machines[name].node_core.core.replicas[number]
            if replica.applied != end:  # log.end may be larger: entries of a dead primary
                return f"{name} has applied {replica.applied} of {end} in partition {number}"
    return ""


def states(world: World) -> None:
    """14, 15 for every replica; and a node that holds no copy has no payloads."""
    checker, view = world.checker, world.newest_view
    for number, place in enumerate(view.places):
        bodies: dict[bytes, bytes] | None = None
        for machine in _living(world):
            replica = machine.node_core.core.replicas.get(number)
            if replica is None or not machine.up:
                continue  # only a removed node may be down now
            checker.fold.compare(machine, replica)
            found = checker.fold.payloads(machine, replica)
            if not place.holds(machine.name):
                checker.that(not found, f"{machine.name} keeps payloads of {number}")
                continue
            bodies = found if bodies is None else bodies
            checker.that(found == bodies, f"15: {machine.name} has other payloads of {number}")

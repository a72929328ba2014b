"""Orderly stops of several nodes, one scenario per test: no sync set is left to a stopped node."""

from __future__ import annotations

import itertools

import pytest

from weft.dht.view import ReplicaSet

from . import faults, settled, stop_all
from .machine import Machine
from .planted import planted
from .run import _until
from .stage import Stage
from .world import SECOND, World


def _stop(world: World, *at: tuple[str, int]) -> None:
    """Send SIGTERM to nodes, each after a delay in microseconds; return when all have exited."""
    for name, delay in at:
        machine = world.machines[name]
        world.after(delay, lambda machine=machine: faults.stop(world, machine))  # type: ignore[misc]
    world.run(world.now + max(delay for _, delay in at))

    def running() -> str:
        up = [name for name, _ in at if world.machines[name].up]
        return f"{up} do not stop" if up else ""

    _until(world, running, stop_all.STOP_MAX)


def _places(world: World) -> tuple[ReplicaSet, ...]:
    return world.newest_view.places


def _serves(stage: Stage, absent: Machine | None = None) -> None:
    """Every partition is led and every pushed message is delivered, without `absent`."""
    world, clients = stage.world, stage.clients
    for machine in world.machines.values():
        machine.parked = machine is absent
        world.start(machine)
    clients.hurry = True
    for number in range(3):
        clients.consume(number)
    _until(world, lambda: settled.consumed(world, clients), 20 * SECOND)


def _stage(nodes: int = 3, *, witness: bool = False) -> Stage:
    stage = Stage(nodes, 4, witness=witness)
    stage.make(stage.queue)
    for partition in range(4):
        stage.push(partition)
    return stage


GAPS = (0, 50_000, 300_000, 2 * SECOND)


@pytest.mark.parametrize(("gap", "absent"), [*itertools.product(GAPS, range(3))])
def test_any_two_of_three_go_on_after_all_three_were_stopped(gap: int, absent: int) -> None:
    stage = _stage()
    world = stage.world
    _stop(world, ("n0", 0), ("n1", gap), ("n2", 2 * gap))
    assert all(len(place.sync) == 2 for place in _places(world))
    _serves(stage, world.machines[f"n{absent}"])


def test_a_member_that_stops_is_replaced_before_it_ends_and_the_pause_is_short() -> None:
    stage = _stage()
    world, began = stage.world, stage.world.now
    machine = world.machines["n0"]
    faults.stop(world, machine)
    shortest, paused = 2, 0
    while machine.up or paused_now(world):
        world.run(world.now + 10_000)
        paused += 10_000 * bool(paused_now(world))
        shortest = min(shortest, *(len(place.sync) for place in _places(world)))
        assert world.now < began + 5 * SECOND
    assert shortest == 2, "a set had one member for a moment"
    assert paused < SECOND // 5
    assert not any("n0" in place.sync for place in _places(world))
    _serves(stage, machine)


def paused_now(world: World) -> list[int]:
    """The partitions that no node serves at this moment."""
    return [
        number
        for number, place in enumerate(_places(world))
        if not world.machines[place.primary].up
        or not world.machines[place.primary].node_core.core.serving(number)
    ]


def test_a_set_that_lost_a_member_gets_another_copy_before_the_last_two_nodes_end() -> None:
    """A node crashes; as soon as the survivors have dropped it, both are stopped."""
    stage = _stage()
    world = stage.world
    for machine in world.machines.values():
        machine.parked = True
    place = _places(world)[0]
    world.crash(world.machines[place.primary])
    rest = [name for name in world.machines if name != place.primary]
    while all(len(each.sync) > 1 for each in _places(world)):
        world.run(world.now + 1_000)
    _stop(world, (rest[0], 0), (rest[1], 0))
    assert all(len(each.sync) == 2 for each in _places(world))
    _serves(stage, world.machines[rest[0]])


def test_without_a_live_node_to_join_it_a_set_is_not_shrunk() -> None:
    assert not _one_of_three_data_nodes_is_left()
    with planted("suspicion_strands"):
        assert _one_of_three_data_nodes_is_left()


def _one_of_three_data_nodes_is_left() -> list[ReplicaSet]:
    """Of three data nodes one stops and one crashes; two witnesses keep a majority with the third.

    Returns the sets with one member, which could not acknowledge anything.
    """
    stage = Stage(4, 4, witness=True)
    world = stage.world
    world.join("w", witness=True)
    _until(world, lambda: settled.level(world), 20 * SECOND)
    view = world.newest_view
    assert len(view.voters) == 5
    place = view.places[0]
    (third,) = set(view.members) - {*place.sync, "n3", "w"}
    world.machines[third].parked = world.machines[place.primary].parked = True
    _stop(world, (third, 0))
    world.run(world.now + SECOND)
    world.crash(world.machines[place.primary])
    world.run(world.now + 4 * SECOND)
    return [each for each in _places(world) if len(each.sync) == 1]


def test_two_nodes_keep_both_copies() -> None:
    for stopped in (["n0"], ["n1"], ["n0", "n1"]):
        stage = _stage(2)
        _stop(stage.world, *((name, 0) for name in stopped))
        assert all(len(place.sync) == 2 for place in _places(stage.world))
        primaries = {place.primary for place in _places(stage.world)}
        assert len(stopped) == 2 or primaries.isdisjoint(stopped), "the other one leads"
        _serves(stage)


def test_beside_a_witness_one_data_node_goes_on_alone_and_two_that_stop_keep_both_copies() -> None:
    stage = _stage(3, witness=True)
    world = stage.world
    _stop(world, ("n0", 0))
    world.run(world.now + SECOND)
    assert all(place.sync == ("n1",) for place in _places(world))
    _serves(stage, world.machines["n0"])
    both = _stage(3, witness=True)
    _stop(both.world, ("n0", 0), ("n1", 0))
    assert all(len(place.sync) == 2 for place in _places(both.world))
    _serves(both, both.world.machines["n0"])


def test_both_members_of_a_set_stop_at_once_and_the_other_nodes_go_on() -> None:
    stage = _stage(5)
    world = stage.world
    first, second = _places(world)[0].sync
    _stop(world, (first, 0), (second, 0))
    world.machines[first].parked = world.machines[second].parked = True

    def waiting() -> str:
        left = {first, second} & {name for place in _places(world) for name in place.sync}
        return f"{left} are members, {paused_now(world)} not served" * bool(left)

    _until(world, waiting, 8 * SECOND)
    assert not paused_now(world)


def test_a_node_stops_while_another_one_starts() -> None:
    stage = _stage()
    world = stage.world
    world.machines["n0"].parked = True
    _stop(world, ("n0", 0))
    world.machines["n0"].parked = False
    world.start(world.machines["n0"])
    _stop(world, ("n1", 100_000))
    assert all(len(place.sync) == 2 for place in _places(world))
    _serves(stage, world.machines["n1"])


def test_all_nodes_stop_while_a_new_one_is_given_its_copies() -> None:
    stage = _stage()
    world = stage.world
    world.join("n3")
    while "n3" not in world.newest_view.members:
        world.run(world.now + 10_000)
    world.run(world.now + 250_000)
    _stop(world, *((name, 0) for name in world.machines))
    assert all(len(place.sync) >= 2 for place in _places(world))
    _serves(stage, world.machines["n1"])

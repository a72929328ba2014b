"""A node that stops soon after its start hands nothing over to nodes it has not heard yet.

Nor does a starting node count on such nodes when it drops a dead member.
"""

from __future__ import annotations

from weft.dht.view import ReplicaSet

from .planted import planted
from .stage import Stage
from .world import SECOND


def _it_stops_soon_after_its_start() -> tuple[str, ...]:
    """Both nodes of a set go down, one returns and is stopped at once; return the resulting set."""
    stage = Stage(3, 1)
    world, stops = stage.world, stage.primary(0)
    place = world.newest_view.places[0]
    dead = world.machines[place.sync[1]]
    world.crash(dead)
    world.crash(stops)
    world.start(stops)
    # The node has heard the third node, and does not suspect the second one yet.
    world.run(world.now + SECOND // 2)
    core = stops.node_core.core
    assert place.learners
    assert all(map(core.met, place.learners))
    assert core.alive(dead.name)
    assert world.newest_view.places[0].sync == place.sync, "the story needs this"
    for _ in range(20):
        if stops.node_core.retire():
            world.tick(stops, stops.boots)
        world.run(world.now + SECOND // 100)
    return world.newest_view.places[0].sync


def test_a_node_that_stops_leaves_nothing_to_one_that_it_never_heard() -> None:
    assert len(_it_stops_soon_after_its_start()) == 2


def _all_other_copies_are_lost() -> list[ReplicaSet]:
    """A member of many sets starts, while the other data nodes are dead.

    The member has noticed the death of one of them only. Returns the sets that the member has
    shrunk to itself although no node can join.
    """
    stage = Stage(5, 4, witness=True)
    world = stage.world
    view = world.newest_view
    data = [name for name in view.members if not view.members[name].witness]
    starts = world.machines[view.places[0].primary]
    for name in data:
        world.crash(world.machines[name])
    world.start(starts)
    core = starts.node_core.core
    missing = view.places[0].sync[1]
    world.run(world.now + SECOND // 10)
    for name in data:
        core.last_seen[name] = core.failure_detector.awaited[name] = core.now
    core.last_seen[missing] = 0
    live = tuple(name for name in data if core.met(name))
    return [
        place
        for number, place in enumerate(view.places)
        if core.failure_detector.drops(number, place, missing, live)
    ]


def test_a_node_that_was_not_heard_yet_does_not_count_as_one_that_can_join_a_set() -> None:
    assert not _all_other_copies_are_lost()
    with planted("unheard_trusted"):
        assert _all_other_copies_are_lost()

"""A node that stops hands over: to nodes that are there, not to those that it only hopes for."""

from __future__ import annotations

from .planted import planted
from .stage import Stage
from .world import SECOND


def _it_stops_soon_after_its_start() -> tuple[str, ...]:
    """Of the two nodes of a set both go down, and one comes back and is stopped at once: who is in
    the set then."""
    stage = Stage(3, 1)
    world, stops = stage.world, stage.primary(0)
    place = world.newest_view.places[0]
    dead = world.machines[place.sync[1]]
    world.crash(dead)
    world.crash(stops)
    world.start(stops)
    world.run(
        world.now + SECOND // 2
    )  # it has heard the third one, and does not suspect the second
    core = stops.loom.core
    assert place.learners
    assert all(map(core.met, place.learners))
    assert core.alive(dead.name)
    assert world.newest_view.places[0].sync == place.sync, "the story needs this"
    for _ in range(20):
        if stops.loom.retire():
            world.tick(stops, stops.boots)
        world.run(world.now + SECOND // 100)
    return world.newest_view.places[0].sync


def test_a_node_that_stops_leaves_nothing_to_one_that_it_never_heard() -> None:
    assert len(_it_stops_soon_after_its_start()) == 2


def test_if_it_did_the_dead_one_would_have_the_last_copy_that_counts() -> None:
    with planted("unheard_trusted"):
        assert len(_it_stops_soon_after_its_start()) == 1

"""Disks are lost for good: an operator declares their nodes lost, and the others go on."""

from __future__ import annotations

import pytest

from weft.proto import wire

from . import settled
from .machine import Machine
from .run import _until
from .stage import Stage
from .world import SECOND, World

PARTITIONS = 4


def _stage(nodes: int) -> Stage:
    """A cluster with a message in each partition, known to every learner."""
    stage = Stage(nodes, PARTITIONS)
    stage.make(stage.queue)
    for partition in range(PARTITIONS):
        stage.push(partition)
    _until(stage.world, lambda: settled.level(stage.world), 20 * SECOND)
    return stage


def _lose(world: World, *names: str) -> None:
    for name in names:
        world.crash(world.machines[name])
        world.machines[name].parked = True
    world.run(world.now + 3 * SECOND)


def _ask(stage: Stage, at: Machine, request: wire.AnyRequest) -> wire.AnyAnswer:
    said: list[wire.AnyAnswer] = []
    stage.world.ask(at, request, (), lambda _, answer, __: said.append(answer), plain=True)
    _until(stage.world, lambda: "" if said else f"no answer to {request}", 5 * SECOND)
    return said[0]


def _recover(stage: Stage, at: Machine, *lost: str, force: bool = False) -> wire.Recovery:
    report = _ask(stage, at, wire.Recover(list(lost)))
    assert isinstance(report, wire.Recovery)
    numbers = [place.partition for place in report.places]
    done = _ask(stage, at, wire.Recover(list(lost), True, force, numbers))
    assert isinstance(done, wire.Recovery), done
    assert done.done
    return report


def _served(world: World, *, without: tuple[str, ...]) -> str:
    view = world.newest_view
    for number, place in enumerate(view.places):
        if any(place.holds(name) for name in without):
            return f"partition {number} is still at {place}"
        if not world.machines[place.primary].node_core.core.serving(number):
            return f"partition {number} is not served: {place}"
    left = [name for name in without if name in view.members]
    return f"{left} are members" if left else ""


def _delivered(stage: Stage) -> int:
    """Number of messages that the cluster delivers, all nodes together."""
    found = 0
    for machine in stage.world.machines.values():
        if machine.up:
            popped = stage.ask(machine, wire.Pop("work", 99))
            assert isinstance(popped, wire.Popped)
            found += sum(lent.count for lent in popped.lent)
    return found


def _two_lost(stage: Stage) -> tuple[tuple[str, str], Machine]:
    """Both members of a sync set are lost; returns their names and a node that runs."""
    first, second = stage.world.newest_view.places[0].sync
    _lose(stage.world, first, second)
    others = [m for name, m in stage.world.machines.items() if name not in (first, second)]
    return (first, second), others[0]


def test_partitions_whose_whole_set_is_lost_go_on_from_the_learners() -> None:
    stage = _stage(5)
    lost, at = _two_lost(stage)
    world = stage.world
    assert not world.machines[world.newest_view.places[0].primary].up
    report = _recover(stage, at, *lost)
    assert 0 in [place.partition for place in report.places]
    assert report.quorum
    assert all(place.messages == {"work": 1} for place in report.places if place.partition < 4)
    _until(world, lambda: _served(world, without=lost), 20 * SECOND)
    assert _delivered(stage) == PARTITIONS
    assert set(lost) <= set(world.newest_view.removed)


def test_a_lost_node_that_comes_back_never_serves_again_and_keeps_its_data() -> None:
    stage = _stage(5)
    lost, at = _two_lost(stage)
    world = stage.world
    _recover(stage, at, *lost)
    _until(world, lambda: _served(world, without=lost), 20 * SECOND)
    back = world.machines[lost[0]]
    before = len(back.store._keys)
    back.parked = False
    world.start(back)
    world.run(world.now + 4 * SECOND)
    assert back.node_core.core.is_lost, "it has heard, and its driver ends it"
    assert back.node_core.leads == 0
    assert len(back.store._keys) >= before, "what is on its disk may still be of use"


def test_if_a_majority_of_the_voters_is_lost_one_node_decides_alone_when_it_is_told_so() -> None:
    stage = _stage(3)
    lost, at = _two_lost(stage)
    world = stage.world
    report = _ask(stage, at, wire.Recover(list(lost)))
    assert isinstance(report, wire.Recovery)
    assert not report.quorum
    numbers = [place.partition for place in report.places]
    refused = _ask(stage, at, wire.Recover(list(lost), True, False, numbers))
    assert isinstance(refused, wire.Failure)
    assert "--force-voters" in refused.message
    _recover(stage, at, *lost, force=True)
    _until(world, lambda: _served(world, without=lost), 20 * SECOND)
    assert world.newest_view.voters == (at.name,)
    assert _delivered(stage) == PARTITIONS
    # New nodes join, vote and hold data; a lost node that returns learns that it was removed.
    world.join("new1")
    world.join("new2")
    _until(world, lambda: "" if len(world.newest_view.voters) == 3 else "alone", 20 * SECOND)
    world.machines[lost[0]].parked = False
    world.start(world.machines[lost[0]])
    world.run(world.now + 4 * SECOND)
    assert world.machines[lost[0]].node_core.core.is_lost


def test_without_any_copy_a_partition_begins_empty_and_takes_pushes() -> None:
    stage = Stage(5, PARTITIONS)
    stage.make(stage.queue)
    world = stage.world
    place = world.newest_view.places[0]
    lost = (*place.sync, *place.learners)
    assert len(lost) == 3
    _lose(world, *lost)
    at = next(m for name, m in world.machines.items() if name not in lost)
    report = _recover(stage, at, *lost, force=True)
    assert next(each for each in report.places if each.partition == 0).base == ""
    _until(world, lambda: _served(world, without=lost), 20 * SECOND)
    stage.push(0)


@pytest.mark.parametrize("execute", [False, True])
def test_a_node_that_answers_is_not_lost(execute: bool) -> None:
    stage = _stage(3)
    at = stage.world.machines["n0"]
    said = _ask(stage, at, wire.Recover(["n1"], execute))
    assert isinstance(said, wire.Failure)
    assert "is alive" in said.message


def test_there_is_nothing_to_recover_while_every_partition_has_a_live_member() -> None:
    stage = _stage(3)
    _lose(stage.world, "n2")
    at = stage.world.machines["n0"]
    report = _ask(stage, at, wire.Recover(["n2"]))
    assert isinstance(report, wire.Recovery)
    assert report.places == []
    said = _ask(stage, at, wire.Recover(["n2"], True))
    assert isinstance(said, wire.Failure)
    assert "nothing to recover" in said.message


def test_a_dead_node_that_was_not_named_is_no_live_member() -> None:
    """With two of three nodes dead and one named, "every partition has a live member" was wrong."""
    stage = _stage(3)
    for node in ("n1", "n2"):
        _lose(stage.world, node)
    said = _ask(stage, stage.world.machines["n0"], wire.Recover(["n2"], True))
    assert isinstance(said, wire.Failure)
    assert "n1" in said.message
    assert "live member" not in said.message


def test_what_was_not_reported_is_not_given_up() -> None:
    stage = _stage(5)
    lost, at = _two_lost(stage)
    said = _ask(stage, at, wire.Recover(list(lost), True, False, []))
    assert isinstance(said, wire.Failure)
    assert "has changed" in said.message
    said = _ask(stage, at, wire.Recover(["nobody"], True))
    assert isinstance(said, wire.Failure)


def test_leave_of_a_dead_node_with_the_last_copy_says_what_to_do_instead() -> None:
    stage = _stage(5)
    lost, at = _two_lost(stage)
    for force in (False, True):
        said = _ask(stage, at, wire.Leave(lost[0], force))
        assert isinstance(said, wire.Failure)
        assert "weft cluster recover" in said.message

"""A node that missed a queue's delete accepts no pushes for the queue when it leads again."""

from __future__ import annotations

import pytest

from weft.ids import partition_of
from weft.proto import wire
from weft.proto.settings import Settings

from .machine import Machine
from .planted import planted
from .run import _until
from .stage import Stage
from .world import SECOND

PARTITIONS = 8


def _returns_cut_off_from_the_catalogue(stage: Stage, *, made_again: bool) -> tuple[Machine, int]:
    """A node misses a queue's delete and returns, cut off from the catalogue's primary alone.

    The other nodes bring the returned node up to date. Returns the node, and a partition that it
    leads then.
    """
    world = stage.world
    stage.make(stage.queue)
    catalogue = world.newest_view.places[-1]
    node = next(m for m in world.machines.values() if m.name not in catalogue.sync)
    world.crash(node)

    def has_members() -> str:
        left = [p for p in world.newest_view.places if node.name in p.sync]
        return f"it is in {left}" if left else ""

    _until(world, has_members, 10 * SECOND)
    world.run(world.now + SECOND)
    keeper = stage.primary(PARTITIONS)
    assert isinstance(_ask(stage, keeper, wire.DeleteQueue("work")), wire.Done)
    if made_again:
        made = _ask(stage, keeper, wire.CreateQueue("work", Settings()))
        assert isinstance(made, wire.Created)
    world.network.cut(keeper.name, node.name)
    world.network.cut(node.name, keeper.name)
    world.start(node)

    def follows() -> str:
        return "" if _led_by_another(stage, node, keeper) else "it is in no set with others"

    _until(world, follows, 15 * SECOND)
    world.crash(_led_by_another(stage, node, keeper)[0])
    _until(world, lambda: "" if node.node_core.leads else "it leads nothing", 10 * SECOND)
    assert "work" in node.node_core.engine.state.queues, "it has not heard of the delete"
    return node, min(node.node_core.led)


def _led_by_another(stage: Stage, node: Machine, keeper: Machine) -> list[Machine]:
    """The primaries, other than `keeper`, of sets that the node is in."""
    machines = stage.world.machines
    places = [p for p in stage.world.newest_view.places if node.name in p.sync[1:]]
    return [machines[p.primary] for p in places if p.primary != keeper.name and len(p.sync) == 2]


def _ask(stage: Stage, machine: Machine, request: wire.AnyRequest) -> wire.AnyAnswer:
    said: list[wire.AnyAnswer] = []
    stage.world.ask(machine, request, (), lambda _, answer, __: said.append(answer), plain=True)
    _until(stage.world, lambda: "" if said else f"no answer to {request}", 5 * SECOND)
    return said[0]


def _push(stage: Stage, node: Machine, number: int) -> list[wire.AnyAnswer]:
    batch = next(n for n in range(1, 999) if partition_of(77, n, PARTITIONS) == number)
    payload = wire.encode(wire.Payload([b"one"]))
    request = wire.Push("work", 77, batch, 1)
    said: list[wire.AnyAnswer] = []
    world = stage.world
    world.ask(node, request, (payload,), lambda _, answer, __: said.append(answer), plain=False)
    world.run(world.now + 3 * SECOND)
    return said


@pytest.mark.parametrize("made_again", [False, True])
def test_it_takes_no_push_for_the_queue_that_is_gone(made_again: bool) -> None:
    stage = Stage(5, PARTITIONS)
    node, number = _returns_cut_off_from_the_catalogue(stage, made_again=made_again)
    assert not any(isinstance(each, wire.Pushed) for each in _push(stage, node, number))
    stage.world.network.heal()
    stage.world.run(stage.world.now + 3 * SECOND)
    (said,) = _push(stage, stage.primary(number), number)
    if made_again:
        assert isinstance(said, wire.Pushed), "it serves again as soon as it has asked"
    else:
        assert isinstance(said, wire.Failure)
        assert said.code == "QUEUE_NOT_FOUND"


def test_if_it_trusted_what_it_knew_the_push_would_be_acknowledged_and_lost() -> None:
    with planted("missed_deletes_ignored"):
        stage = Stage(5, PARTITIONS)
        node, number = _returns_cut_off_from_the_catalogue(stage, made_again=False)
        assert any(isinstance(each, wire.Pushed) for each in _push(stage, node, number))

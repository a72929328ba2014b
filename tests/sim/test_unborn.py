"""A queue whose creation is not committed yet: pushes to it are not acknowledged."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ids import partition_of
from weft.proto import wire
from weft.proto.settings import Settings

from .machine import Machine
from .stage import Stage
from .world import SECOND


def test_a_push_waits_for_the_queue_to_be_committed() -> None:
    """The catalogue's primary has created the queue; the required follower is cut off.

    If the primary died now, no node would know the queue, and its messages would be orphans.
    """
    stage = Stage(3, 8)
    world = stage.world
    keeper, second = world.newest_view.places[-1].sync
    number = next(
        number
        for number, place in enumerate(world.newest_view.places[:-1])
        if place.primary == keeper and second not in place.sync
    )
    world.network.cut(keeper, second)
    world.network.cut(second, keeper)
    answers: list[wire.AnyAnswer] = []

    def heard(_: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]) -> None:
        answers.append(answer)

    at = world.machines[keeper]
    world.ask(at, wire.CreateQueue("new", Settings()), (), heard, plain=False)
    world.run(world.now + SECOND // 20)
    assert "new" in at.node_core.engine.state.queues
    assert answers == []
    producer = 77
    batch = next(n for n in range(1, 999) if partition_of(producer, n, 8) == number)
    payload = wire.encode(wire.Payload([b"one"]))
    world.ask(at, wire.Push("new", producer, batch, 1), (payload,), heard, plain=False)
    world.run(world.now + SECOND // 20)
    replica = at.node_core.core.replicas[number]
    assert replica.committed == replica.log.end, "the push itself is on two disks"
    assert answers == [], "it is acknowledged before its queue is there"
    world.network.heal()
    world.run(world.now + SECOND)
    assert {type(answer) for answer in answers} == {wire.Created, wire.Pushed}

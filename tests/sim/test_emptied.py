"""Deleted or purged queues: after the answer no node accepts pushes for the old queue."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from weft.proto import wire
from weft.proto.settings import Settings

from . import settled
from .machine import Machine
from .options import Options
from .run import _until as until
from .world import SECOND, World

CALM = Options(nodes=3, partitions=3, crashes=False, cuts=False)


class Asked:
    """A request, and whether it succeeded."""

    def __init__(self, world: World, machine: Machine, request: wire.AnyRequest) -> None:
        self.done = False
        world.ask(machine, request, (), self._heard, plain=True)

    def _heard(self, _: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]) -> None:
        gone = isinstance(answer, wire.Failure) and answer.code == "QUEUE_NOT_FOUND"
        self.done = isinstance(answer, wire.Done | wire.Created) or gone

    def missing(self) -> str:
        return "" if self.done else "there is no answer"


@pytest.mark.parametrize("request_", [wire.DeleteQueue("q"), wire.PurgeQueue("q")])
def test_nobody_who_may_lead_has_the_queue_of_before(request_: wire.AnyRequest) -> None:
    """A primary is cut off from the catalogue's primary, and from no other node."""
    world = World(4, CALM)
    world.build()
    until(world, lambda: settled.whole(world), 10 * SECOND)
    until(world, lambda: settled.level(world), 20 * SECOND)
    until(world, Asked(world, world.machines["n0"], wire.CreateQueue("q", Settings())).missing,
          5 * SECOND)  # fmt: skip
    world.run(world.now + SECOND)
    before = {name: machine.node_core.engine.state.queues["q"].id
              for name, machine in world.machines.items()}  # fmt: skip
    keeper, asked = world.newest_view.places[-1].sync
    (cut,) = world.machines.keys() - {keeper, asked}
    world.network.cut(keeper, cut)
    world.network.cut(cut, keeper)
    emptied = Asked(world, world.machines[asked], request_)
    world.run(world.now + 19 * SECOND // 10)  # slightly less than the client waits
    assert any(place.primary == cut for place in world.newest_view.places), "it does not lead"
    stale = world.machines[cut].node_core.engine.state.queues["q"]
    assert stale.id == before[cut], "it has heard of it"
    assert not emptied.done
    world.network.heal()
    emptied = Asked(world, world.machines[asked], wire.DeleteQueue("q"))
    until(world, emptied.missing, 5 * SECOND)
    for name, machine in world.machines.items():
        queue = machine.node_core.engine.state.queues.get("q")
        assert queue is None or queue.id != before[name]

"""The state checker counts an entry only once the entry is on a disk."""

from __future__ import annotations

import random

import pytest

from weft.proto import wire

from .clients import Batch
from .stage import Stage
from .world import SECOND


@pytest.mark.parametrize("kept", [False, True])
def test_an_entry_whose_write_failed_may_never_have_been(
    kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry of a failed write may exist after the restart, or not.

    A sync set of one commits and applies an entry in the round that creates it. The write fails;
    after the restart the entry exists, or another entry has its lsn. Both are right.
    """
    stage = Stage(3, 1, witness=True)
    stage.make(stage.queue)
    world, first = stage.world, stage.primary(0)
    (other,) = {m.name for m in world.machines.values() if not m.witness} - {first.name}
    world.crash(world.machines[other])
    world.run(world.now + 3 * SECOND)
    assert world.newest_view.places[0].sync == (first.name,)
    assert world.newest_view.places[0].learners == (other,)
    end = first.node_core.core.replicas[0].log.end
    monkeypatch.setattr(random.Random, "randint", lambda rng, low, high: high if kept else low)
    first.fails = True
    lost = Batch(stage.queue, 1, [b"lost"])
    world.checker.ledger.batches[stage.queue.producer, 1] = lost
    request = wire.Push("work", stage.queue.producer, 1, 1)
    payload = wire.encode(wire.Payload(lost.bodies))
    world.ask(first, request, (payload,), lambda *_: None, plain=False)
    world.run(world.now + SECOND)
    assert not first.up, "a storage error while running: the node exits"
    world.start(first)
    world.run(world.now + SECOND)
    assert first.node_core.core.replicas[0].log.end == end + kept
    monkeypatch.undo()
    assert stage.push(0).done, "another entry"
    world.start(world.machines[other])
    world.run(world.now + 3 * SECOND)
    assert len(world.newest_view.places[0].sync) == 2

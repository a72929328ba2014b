"""Planned moves of leads: no lease is lost."""

from __future__ import annotations

import pytest

from weft.dht.rebalancer import Handover
from weft.proto import wire
from weft.server.core.lease_handover import LAPSE_US

from . import faults
from .options import Options
from .run import simulate
from .stage import Stage
from .world import SECOND


def test_no_lease_is_lost_by_planned_moves() -> None:
    """Only leases settled after a move of their partition test anything.

    These 16 runs have about 100 of them, most runs several.
    """
    worlds = [simulate(seed, Options.of_moves(seed)) for seed in range(28, 44)]
    survived = [world.checker.ledger.leases.survived_count for world in worlds]
    assert sum(survived) >= 60, survived
    assert sum(count >= 3 for count in survived) >= 8, survived


class _Lent:
    """A message that is lent at the primary of partition 0."""

    def __init__(self) -> None:
        self.stage = Stage(3, 1)
        self.stage.make(self.stage.queue)
        self.batch = self.stage.push(0)
        self.old = self.stage.primary(0)
        popped = self.stage.ask(self.old, wire.Pop("work", 1, 0, 60_000))
        assert isinstance(popped, wire.Popped)
        (self.lent,) = popped.lent
        self.receipts = [wire.Receipt(0, self.lent.lsn, self.lent.nonce)]

    def record(self) -> None:
        world, old = self.stage.world, self.old
        for _ in range(100):
            if old.node_core.core.ready_to_move(0):
                return
            world.tick(old, old.boots)
            world.run(world.now + SECOND // 100)
        raise AssertionError("the lease is not recorded")

    def stop(self) -> None:
        world, old = self.stage.world, self.old
        for _ in range(200):
            if old.node_core.retire() is Handover.DONE:
                break
            world.tick(old, old.boots)
            world.run(world.now + SECOND // 100)
        world.crash(old, planned=True)
        world.run(world.now + SECOND)

    @property
    def records(self) -> int:
        store = self.stage.primary(0).store
        return sum(key[:1] == b"r" for key in store._rows)


@pytest.mark.parametrize("plain", [False, True])
def test_the_next_primary_takes_the_receipts_of_the_one_that_stops(plain: bool) -> None:
    lent = _Lent()
    lent.stop()
    stage, new = lent.stage, lent.stage.primary(0)
    assert new is not lent.old
    assert lent.records == 1
    assert stage.ask(new, wire.Pop("work", 1)) == wire.Popped([]), "it is out"
    extended = stage.ask(new, wire.Extend("work", lent.receipts, 60_000))
    assert extended == wire.Settled(1, 0, [])
    asked = new
    if plain:  # through another node
        asked = next(m for m in stage.world.machines.values() if m.up and m is not new)
    assert stage.ask(asked, wire.Ack("work", lent.receipts), plain=plain) == wire.Settled(1, 0, [])
    assert stage.ask(asked, wire.Ack("work", lent.receipts), plain=plain) == wire.Settled(0, 1, [])


def test_a_stopping_node_waits_until_its_leases_are_recorded() -> None:
    """Recording many leases takes longer than the limit of a hand-over without leases."""
    lent = _Lent()
    stage, world, old = lent.stage, lent.stage.world, lent.old
    engine, recorded_from = old.node_core.engine, world.now + 5 * SECOND
    begin = engine.recorded_leases.begin

    def record_late(partitions: set[int]) -> None:
        if world.now >= recorded_from:
            begin(partitions)

    setattr(engine.recorded_leases, "begin", record_late)  # noqa: B010
    faults.stop(world, old)
    while old.up:
        world.run(world.now + SECOND // 10)
    world.run(world.now + SECOND)
    assert stage.primary(0) is not old
    acked = stage.ask(stage.primary(0), wire.Ack("work", lent.receipts))
    assert acked == wire.Settled(1, 0, [])


def test_a_crash_loses_them() -> None:
    lent = _Lent()
    lent.stage.world.crash(lent.old)
    lent.stage.world.run(lent.stage.world.now + 5 * SECOND)
    new = lent.stage.primary(0)
    assert lent.stage.ask(new, wire.Ack("work", lent.receipts)) == wire.Settled(0, 0, [0])


def test_a_move_that_is_given_up_leaves_them_where_they_are() -> None:
    lent = _Lent()
    lent.record()
    recorded = lent.old.node_core.engine.state.lease_records.partitions
    assert recorded == {0}
    lent.stage.world.run(lent.stage.world.now + LAPSE_US + SECOND)
    assert not recorded, "nobody asked for the move again"
    assert lent.stage.ask(lent.old, wire.Ack("work", lent.receipts)) == wire.Settled(1, 0, [])
    lent.stage.world.run(lent.stage.world.now + SECOND)
    assert lent.records == 0


def test_a_stopping_node_gives_back_what_it_has_prefetched_for_others() -> None:
    stage = Stage(3, 1)
    stage.make(stage.queue)
    stage.push(0)
    world, primary = stage.world, stage.primary(0)
    other = next(m for m in world.machines.values() if m is not primary)
    popped = stage.ask(primary, wire.Pop("work", 1, 0, 60_000))
    assert isinstance(popped, wire.Popped)
    pieces = [(one, b"x") for one in popped.lent]
    other.node_core.remote_pop.prefetched.keep(
        "work", 60_000, primary.name, pieces, other.node_core.now
    )
    other.node_core.retire()
    world.run(world.now + SECOND // 10)
    world.tick(other, other.boots)
    world.run(world.now + SECOND // 10)
    again = stage.ask(primary, wire.Pop("work", 1))
    assert isinstance(again, wire.Popped)
    assert [one.deliveries for one in again.lent] == [1]

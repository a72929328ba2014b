"""Nodes with outdated knowledge, in directed schedules of the simulated world."""

from __future__ import annotations

import pytest

from weft.dht import planner, rebalancer
from weft.dht.planner import Step
from weft.proto import pipelines, wire

from . import faults
from .machine import Machine
from .planted import planted
from .run import _until
from .stage import Stage
from .violation import Violation
from .world import SECOND


def _lend_and_ack(stage: Stage, node: Machine) -> None:
    popped = stage.ask(node, wire.Pop("work", 1))
    assert isinstance(popped, wire.Popped)
    (lent,) = popped.lent
    receipt = wire.Receipt(lent.partition, lent.lsn, lent.nonce, [(lent.first, lent.count)])
    assert stage.ask(node, wire.Ack("work", [receipt])) == wire.Settled(1, 0, [])


def _a_replaced_primary_is_asked() -> None:
    stage = Stage(3, 1)
    stage.make(stage.queue)
    stage.push(0)
    old = stage.primary(0)
    stage.cut_off(old.name)
    stage.world.run(stage.world.now + 4 * SECOND)
    new = stage.primary(0)
    assert new is not old
    _lend_and_ack(stage, new)
    assert old.node_core.core.serving(0), "it knows nothing of all that"
    assert stage.ask(old, wire.Pop("work", 1)) is None


def test_a_primary_that_was_replaced_lends_nothing() -> None:
    _a_replaced_primary_is_asked()


def test_without_the_barrier_it_lends_what_was_acked() -> None:
    with planted("no_barrier"), pytest.raises(Violation, match="11: "):
        _a_replaced_primary_is_asked()


def _a_primary_freezes_with_its_answer() -> list[wire.AnyAnswer]:
    """A primary freezes between a leadership check and its answer.

    The follower has confirmed the primary's lead. The primary processes the confirmation only after
    the follower has become primary, has lent the same message and has taken its ack.
    """
    stage = Stage(3, 1)
    stage.make(stage.queue)
    stage.push(0)
    world, old = stage.world, stage.primary(0)
    said: list[wire.AnyAnswer] = []
    world.ask(old, wire.Pop("work", 1), (), lambda _, answer, __: said.append(answer), plain=False)
    while not old.node_core._commit_gate._waiting:
        world.run(world.now + 10)
    old.frozen_until = world.now + 6 * SECOND
    world.run(world.now + 20_000)
    assert any(f"{old.name}>" in line and "Confirm" in line for line in world.story[-20:])
    stage.cut_off(old.name)
    world.run(world.now + 4 * SECOND)
    new = stage.primary(0)
    assert new is not old
    _lend_and_ack(stage, new)
    assert world.now < old.frozen_until, "the story needs this"
    world.run(old.frozen_until + SECOND)
    assert any(f">{old.name} Confirmed" in line for line in world.story[-60:])
    faults.heal(world)
    world.run(world.now + 2 * SECOND)
    return said


def test_a_primary_that_was_frozen_asks_again_who_leads() -> None:
    (said,) = _a_primary_freezes_with_its_answer()
    assert isinstance(said, wire.Failure)
    assert said.code == "UNAVAILABLE"


def test_if_it_took_an_old_word_it_would_lend_what_was_acked() -> None:
    with planted("late_word_counts"), pytest.raises(Violation, match="11: "):
        _a_primary_freezes_with_its_answer()


def _a_replaced_home_is_asked() -> wire.AnyAnswer | None:
    """An old home's answer about a reservation that was returned at the new home.

    The answer changes nothing, so no entry has to be committed first.
    """
    stage = Stage(3, 1)
    stage.make(stage.queue)
    stage.push(0)
    old = stage.primary(0)
    opened = stage.ask(old, pipelines.OpenSubscription("work", "sub", 3_600_000, 1))
    assert isinstance(opened, pipelines.Opened)
    made = stage.ask(old, pipelines.Reserve("work", "sub", opened.epoch, 1, 10, 1 << 20))
    assert isinstance(made, pipelines.Reserved)
    describe = pipelines.DescribeReservation("work", "sub", 1)
    assert stage.ask(old, describe) == made
    stage.cut_off(old.name)
    stage.world.run(stage.world.now + 4 * SECOND)
    new = stage.primary(0)
    assert new is not old
    assert isinstance(stage.ask(new, pipelines.ReleaseAll("work", "sub")), wire.Done)
    lost = stage.ask(new, describe)
    assert isinstance(lost, wire.Failure)
    assert lost.code == "RESERVATION_LOST"
    assert old.node_core.core.serving(0), "it knows nothing of all that"
    # Late pings make the old home believe that the others are alive: otherwise it refuses at once.
    others = [name for name in stage.world.machines if name != old.name]
    old.node_core.core.last_seen.update(dict.fromkeys(others, stage.world.now))
    return stage.ask(old, describe)


def test_a_home_that_was_replaced_says_nothing_of_its_reservations() -> None:
    assert _a_replaced_home_is_asked() is None


def test_without_that_check_it_shows_what_others_may_have_taken() -> None:
    with planted("not_sure"):
        assert isinstance(_a_replaced_home_is_asked(), pipelines.Reserved)


def _a_primary_that_grows_its_set_is_asked() -> None:
    """The learner joined the set and became primary, and the old primary has learned of neither."""
    stage = Stage(3, 1, witness=True)
    stage.make(stage.queue)
    stage.push(0)
    world, old = stage.world, stage.primary(0)
    (name,) = {m.name for m in world.machines.values() if not m.witness} - {old.name}
    (witness,) = (m for m in world.machines.values() if m.witness)
    replica, learner = old.node_core.core.replicas[0], world.machines[name]
    world.crash(learner)
    world.run(world.now + 3 * SECOND)
    assert replica.place.sync == (old.name,)
    world.start(learner)
    proposer = old.node_core.core.proposer
    while not (replica.pending and proposer._proposed is not None):
        world.run(world.now + 10)  # until the learner has caught up and the ACCEPT is in flight
    for other in (name, witness.name):
        world.network.cut(other, old.name)
    world.run(world.now + 10_000)
    stage.cut_off(old.name)
    assert replica.place.sync == (old.name,)
    world.crash(witness)
    world.start(witness)  # a proposer finds the accepted view, and learns it
    world.run(world.now + 4 * SECOND)
    assert stage.primary(0) is learner
    popped = stage.ask(learner, wire.Pop("work", 1))
    assert isinstance(popped, wire.Popped)
    (lent,) = popped.lent
    receipt = wire.Receipt(lent.partition, lent.lsn, lent.nonce, [(lent.first, lent.count)])
    assert stage.ask(learner, wire.Ack("work", [receipt])) == wire.Settled(1, 0, [])
    assert old.node_core.core.serving(0), "it knows nothing of all that"
    assert stage.ask(old, wire.Pop("work", 1)) is None


def test_a_primary_that_grows_its_set_asks_the_new_member_too() -> None:
    _a_primary_that_grows_its_set_is_asked()


def test_without_that_it_lends_what_was_acked() -> None:
    with planted("pending_not_asked"), pytest.raises(Violation, match="11: "):
        _a_primary_that_grows_its_set_is_asked()


def test_the_last_one_takes_over_with_what_it_was_not_told_to_be_committed() -> None:
    """The last data node takes over with an entry that it does not know to be committed.

    Of two data nodes and a witness the primary dies before sending the commit index of its last
    entry. The remaining node needs no confirmation, and gets none.
    """
    stage = Stage(3, 1, witness=True)
    stage.make(stage.queue)
    world, old = stage.world, stage.primary(0)
    stage.push(0)
    (name,) = {m.name for m in world.machines.values() if not m.witness} - {old.name}
    replica = world.machines[name].node_core.core.replicas[0]
    assert replica.committed < replica.log.end, "the story needs this"
    world.crash(old)
    world.run(world.now + 3 * SECOND)
    popped = stage.ask(world.machines[name], wire.Pop("work", 1))
    assert isinstance(popped, wire.Popped)
    assert popped.lent


def _a_queue_is_not_known_yet() -> list[bytes]:
    """The node that takes a partition over does not know the queue of the messages in it."""
    stage = Stage(5, 5)
    world = stage.world
    *places, catalogue = world.newest_view.places
    keeper = catalogue.primary
    number, place = next(
        (n, p)
        for n, p in enumerate(places)
        if keeper not in p.sync and p.sync[1] not in catalogue.sync
    )
    dies, follows = place.sync
    world.network.cut(keeper, follows)
    stage.make(stage.queue)
    stage.push(number)
    assert "work" not in world.machines[follows].node_core.engine.state.queues
    world.crash(world.machines[dies])
    world.run(world.now + 4 * SECOND)
    assert stage.primary(number).name == follows
    faults.heal(world)
    world.run(world.now + 3 * SECOND)
    popped = stage.ask(stage.primary(number), wire.Pop("work", 9))
    assert isinstance(popped, wire.Popped)
    return [b"one" for lent in popped.lent if lent.count]


def test_messages_of_a_queue_that_is_not_known_yet_wait_until_it_is() -> None:
    assert _a_queue_is_not_known_yet() == [b"one"]


def test_buried_at_once_they_would_be_lost() -> None:
    with planted("strays_buried_early"):
        assert _a_queue_is_not_known_yet() == []


def _a_cluster_of_one_grows(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], int]:
    """A second node leads partitions before it has the catalogue.

    Returns the answers to pushes there meanwhile, and the number of messages in the end.
    """
    stage = Stage(1, 4)
    world = stage.world
    stage.make(stage.queue)
    for number in range(4):
        stage.push(number)
    with monkeypatch.context() as patched:
        patched.setattr(
            rebalancer, "step", lambda n, *more: Step() if n == 4 else planner.step(n, *more)
        )
        world.join("n1")
        new = world.machines["n1"]
        _until(world, lambda: "" if new.node_core.leads > 1 else "leads nothing", 20 * SECOND)
        world.run(world.now + 2 * SECOND)
        assert world.newest_view.places[-1].learners == (), "the story needs this"
        request = wire.Pop("work", 9)
        said = stage.ask(new, request)
    for machine in world.machines.values():
        machine.node_core.core.rebalancer._settled = None  # the steps are the planner's again
    codes = [said.code] if isinstance(said, wire.Failure) else []
    known = new.node_core.engine.state.queues
    _until(world, lambda: "" if "work" in known else "does not know it", 20 * SECOND)
    world.run(world.now + 2 * SECOND)
    found = 0
    for machine in world.machines.values():
        popped = stage.ask(machine, request)
        assert isinstance(popped, wire.Popped)
        found += sum(lent.count for lent in popped.lent)
    return codes, found


def test_a_node_that_the_catalogue_has_not_reached_denies_no_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _a_cluster_of_one_grows(monkeypatch) == (["UNAVAILABLE"], 4)


def test_if_it_took_its_own_for_all_messages_would_be_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with planted("records_not_counted"):
        assert _a_cluster_of_one_grows(monkeypatch) == (["QUEUE_NOT_FOUND"], 2)

"""delete and purge: nothing of a removed queue or message is left, whatever happens meanwhile."""

from __future__ import annotations

import pytest

from tests.engine.rig import Asked, Rig, messages_of, payload_of, queue_names
from weft.errors import QueueInUse, QueueNotFound
from weft.proto import wire
from weft.server.engine import purged


def kinds(rig: Rig) -> dict[bytes, int]:
    """Rows in the store, by kind."""
    counted: dict[bytes, int] = {}
    for key in rig.store._rows:
        counted[key[:1]] = counted.get(key[:1], 0) + 1
    return counted


# --- purge ------------------------------------------------------------------------------------


def test_a_purge_drops_everything_lent_and_delayed_too(rig: Rig) -> None:
    for number in range(5):
        rig.push("q", b"%d.0" % number, b"%d.1" % number)
    rig.push("q", b"later", delay_ms=1000)
    taken = rig.pop("q", 3)
    assert rig.purge("q") == 11
    assert rig.counts("q") == (0, 0, 0)
    assert rig.ack("q", taken[0]).lost == [0]
    assert rig.nack("q", taken[1]).lost == [0]
    rig.settle()
    rig.advance(60_000)
    assert rig.pop("q", 20) == []
    assert rig.stats("q").bytes == 0
    assert not {b"h", b"b"} & set(kinds(rig))


def test_a_purge_holds_after_a_power_loss_before_the_sweep(rig: Rig) -> None:
    for number in range(50):
        rig.push("q", b"%d" % number)
    rig.pop("q", 7)
    rig.purge("q")
    assert kinds(rig)[b"h"] > 0, "the sweep has not ended"
    rig.crash()
    assert rig.pop("q", 20) == []
    rig.settle()
    assert not {b"h", b"b"} & set(kinds(rig))


def test_a_queue_goes_on_after_a_purge(rig: Rig) -> None:
    rig.push("q", b"old")
    rig.purge("q")
    rig.push("q", b"new")
    rig.purge("q")
    rig.push("q", b"newer")
    assert rig.bodies("q", 5) == [b"newer"]
    rig.crash()
    assert rig.bodies("q", 5) == [b"newer"]


def test_who_waits_goes_on_waiting_over_a_purge(rig: Rig) -> None:
    token = rig.ask(wire.Pop("q", 1, 5000))
    rig.purge("q")
    assert rig.answer(token) is None
    rig.push("q", b"a")
    answered = rig.answer(token)
    assert answered is not None
    assert messages_of(answered.answer, answered.payload)[0].body == b"a"


def test_counters_go_on_over_a_purge(rig: Rig) -> None:
    rig.push("q", b"a", batch=1)
    rig.push("q", b"a", batch=1)
    rig.push("q", b"b", b"c")
    rig.ack("q", *rig.pop("q"))
    rig.pop("q")
    rig.advance(10_000)
    before = rig.stats("q")
    rig.purge("q")
    after = rig.stats("q")
    for name in ("pushed", "delivered", "acked", "dead_lettered", "expired_leases", "duplicates"):
        assert getattr(after, name) == getattr(before, name), name
    assert before.duplicates == before.expired_leases == 1


def test_a_lease_that_ends_as_its_queue_is_purged_makes_no_dead_letter(rig: Rig) -> None:
    rig.create("jobs", lease_ms=1000, max_deliveries=1, dead_letter="jobs.dead")
    rig.push("jobs", b"a", b"b")
    rig.pop("jobs", 2)
    rig.now += 1_000_000
    assert rig.purge("jobs") == 2, "in the very round in which the lease ends"
    rig.settle()
    assert rig.counts("jobs.dead") == (0, 0, 0)
    assert not {b"h", b"b"} & set(kinds(rig))


def test_a_long_sweep_takes_many_rounds_and_pushes_go_on(rig: Rig) -> None:
    rig.checking = False
    for number in range(1200):
        rig.push("q", b"%d" % number)
    assert rig.purge("q") == 1200
    rounds = 0
    while rig.engine.state.jobs:
        assert rig.engine.next_due() == rig.now, "it has something to do at once"
        rig.push("q", b"new")
        rounds += 1
        assert rounds < 100
    assert rounds > 2
    rig.check()
    assert rig.counts("q")[0] == rounds


# --- delete -----------------------------------------------------------------------------------


def test_a_deleted_queue_leaves_nothing(rig: Rig) -> None:
    rig.push("q", b"a", b"b")
    rig.push("q", b"c", delay_ms=1000)
    rig.pop("q")
    assert rig.delete("q") == 3
    rig.settle()
    with pytest.raises(QueueNotFound):
        rig.pop("q")
    assert set(kinds(rig)) == {b"p", b"t"}, "the table has the records of what was removed"
    rig.advance(purged.SLICE_US // 1000 * (purged.SLICES_KEPT + 1))
    rig.settle()
    assert set(kinds(rig)) == {b"p"}
    rig.restart()
    assert queue_names(rig, wire.ListQueues()) == ([], False)


def test_a_delete_holds_after_a_power_loss_before_the_sweep(rig: Rig) -> None:
    rig.create("other")
    for number in range(20):
        rig.push("q", b"%d" % number)
    rig.push("other", b"mine")
    rig.delete("q")
    rig.crash()
    rig.create("q", lease_ms=10_000)
    assert rig.pop("q") == [], "a new queue of the same name has nothing of the old one"
    assert rig.bodies("other") == [b"mine"]
    rig.settle()
    assert kinds(rig)[b"h"] == 1


def test_who_waits_at_a_deleted_queue_is_told(rig: Rig) -> None:
    token = rig.ask(wire.Pop("q", 1, 5000))
    rig.delete("q")
    answered = rig.answer(token)
    assert answered is not None
    assert isinstance(answered.answer, wire.Failure)
    assert answered.answer.code == "QUEUE_NOT_FOUND"
    rig.advance(5000)
    assert rig.answer(token) is None, "and only once"


def test_a_push_and_a_delete_in_one_round_with_someone_waiting(rig: Rig) -> None:
    token = rig.ask(wire.Pop("q", 1, 5000))
    answers = rig.round(
        Asked(wire.Push("q", 1, 1, 1), [payload_of([b"a"])], "push"),
        Asked(wire.DeleteQueue("q"), (), "delete"),
    )
    said = {each.to: each.answer for each in answers}
    assert said["delete"] == wire.Done(1)
    assert isinstance(said[token], wire.Failure)
    rig.settle()
    assert not {b"h", b"b"} & set(kinds(rig))


def test_a_dead_letter_in_use_is_not_deleted(rig: Rig) -> None:
    rig.create("jobs", max_deliveries=1, dead_letter="jobs.dead")
    with pytest.raises(QueueInUse, match="dead letter of jobs"):
        rig.delete("jobs.dead")
    rig.delete("jobs")
    assert rig.delete("jobs.dead") == 0


def test_a_lease_that_ends_after_its_queue_and_its_dead_letter_are_gone(rig: Rig) -> None:
    rig.create("jobs", lease_ms=1000, max_deliveries=1, dead_letter="jobs.dead")
    rig.push("jobs", b"a")
    rig.pop("jobs")
    rig.now += 1_000_000
    rig.round(Asked(wire.DeleteQueue("jobs"), (), 1), Asked(wire.DeleteQueue("jobs.dead"), (), 2))
    rig.settle()
    assert not {b"h", b"b"} & set(kinds(rig))


def test_a_queue_that_dies_while_its_partitions_are_lost_is_left_alone(rig: Rig) -> None:
    """A queue dies while this node loses the queue's partitions.

    The deletion of the queue's record arrives from another node, between two rounds. Before the
    first step of the sweep another node leads the partitions, and this node must not delete their
    content.
    """
    rig.push("q", b"a")
    engine, state = rig.engine, rig.engine.state
    engine.abandon({state.catalogue})
    engine.learn_queue(b"qq", None)
    engine.abandon(set(range(state.partitions)))
    engine.begin(state.now)
    assert engine.end() == []
    assert not state.dying

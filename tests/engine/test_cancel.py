"""cancel: a waiting message is removed for good; a leased message is refused."""

from __future__ import annotations

import pytest

from tests.engine.rig import Asked, Rig, checked
from weft.errors import InvalidArgument, MessageLeased, QueueNotFound
from weft.proto import pipelines, wire
from weft.server.engine import cancel as cancel_module


def test_a_ready_message_is_removed_for_good(rig: Rig) -> None:
    first, second = rig.push("q", b"a"), rig.push("q", b"b")
    assert rig.cancel("q", first) == 1
    assert rig.counts("q") == (1, 0, 0)
    assert rig.cancel("q", first) == 0
    rig.restart()
    assert rig.bodies("q", 10) == [b"b"]
    assert second.batch != first.batch


def test_a_delayed_message_is_removed_and_never_falls_due(rig: Rig) -> None:
    rig.push("q", b"later", delay_ms=60_000)
    sooner = rig.push("q", b"sooner", delay_ms=1000)
    assert [each.body for each in rig.peek("q", delayed=True)] == [b"sooner", b"later"]
    assert rig.peek("q") == []
    due = [each.lent.due_ms - each.lent.pushed_ms for each in rig.peek("q", delayed=True)]
    assert due == [1000, 60_000]
    assert rig.cancel("q", sooner) == 1
    assert rig.counts("q") == (0, 0, 1)
    rig.advance(59_999)
    assert rig.pop("q") == []
    rig.advance(1)
    assert rig.bodies("q", 10) == [b"later"]


@pytest.mark.parametrize("delay_ms", [0, 1000])
@pytest.mark.parametrize("index", [0, 2, 4])
def test_one_message_of_a_batch(rig: Rig, index: int, delay_ms: int) -> None:
    pushed = rig.push("q", b"0", b"1", b"2", b"3", b"4", delay_ms=delay_ms)
    rig.push("q", b"5", delay_ms=delay_ms)
    assert rig.cancel("q", pushed, index) == 1
    assert rig.cancel("q", pushed, index) == 0
    left = [b"%d" % n for n in range(6) if n != index]
    assert rig.counts("q") == ((0, 0, 5) if delay_ms else (5, 0, 0))
    rig.restart()
    rig.advance(delay_ms)
    assert rig.bodies("q", 10) == left


def test_all_messages_of_a_batch_one_by_one(rig: Rig) -> None:
    pushed = rig.push("q", b"0", b"1", b"2")
    for index in (1, 0, 2):
        assert rig.cancel("q", pushed, index) == 1
    stats = rig.stats("q")
    assert (stats.ready, stats.bytes) == (0, 0)
    assert rig.pop("q") == []


def test_a_leased_message_is_refused_until_it_comes_back(rig: Rig) -> None:
    pushed = rig.push("q", b"a", b"b")
    taken = rig.pop("q", 1, lease_ms=1000)[0]
    with pytest.raises(MessageLeased, match="a consumer of q has leased the message"):
        rig.cancel("q", pushed, 0)
    assert rig.cancel("q", pushed, 1) == 1
    rig.nack("q", taken)
    assert rig.cancel("q", pushed, 0) == 1
    assert rig.counts("q") == (0, 0, 0)


def test_what_is_acked_or_anothers_is_not_there(rig: Rig) -> None:
    rig.create("other")
    pushed = rig.push("q", b"a")
    assert rig.cancel("other", pushed) == 0
    rig.ack("q", *rig.pop("q"))
    assert rig.cancel("q", pushed) == 0
    with pytest.raises(QueueNotFound):
        rig.cancel("nope", pushed)
    with pytest.raises(InvalidArgument, match="index"):
        rig.cancel("q", pushed, -1)


def test_two_queues_with_batches_of_the_same_name(rig: Rig) -> None:
    """A producer numbers its batches queue by queue; leased batches are searched first."""
    rig.create("other")
    rig.push("other", b"a", batch=50)
    pushed = rig.push("q", b"b", batch=50)
    assert len(rig.pop("other")) == 1
    assert rig.cancel("q", pushed) == 1
    assert rig.counts("q") == (0, 0, 0)
    assert rig.counts("other") == (0, 1, 0)


def test_a_node_that_lost_the_partition_does_not_say_that_the_message_is_gone(rig: Rig) -> None:
    pushed = rig.push("q", b"a")
    request = wire.Cancel("q", pushed.partition, pushed.producer, pushed.batch, 0)
    engine = rig.engine
    engine.begin(rig.now)
    engine.handle(request, (), "caller")
    engine.abandon({pushed.partition})
    engine.end()
    answers = {each.to: each.answer for each in engine.state.take_answers()}
    failure = answers["caller"]
    assert isinstance(failure, wire.Failure)
    assert failure.code == "NOT_PRIMARY"


def test_ordered_messages_keep_their_order(rig: Rig) -> None:
    """The first ready message, one between two others, and one behind a lease."""
    rig.create("line", ordered=True)
    first = rig.push("line", b"0", b"1", b"2", b"3")
    later = rig.push("line", b"4", b"5")
    assert rig.cancel("line", first, 0) == 1
    assert rig.cancel("line", first, 2) == 1
    (taken,) = rig.pop("line", 1)
    assert taken.body == b"1"
    with pytest.raises(MessageLeased):
        rig.cancel("line", first, 1)
    assert rig.cancel("line", later, 0) == 1
    rig.nack("line", taken)
    assert rig.cancel("line", first, 1) == 1
    rig.restart()
    assert rig.bodies("line", 10) == [b"3", b"5"]


def test_a_reserved_message_is_refused(rig: Rig) -> None:
    pushed = rig.push("q", b"a")
    stage = pipelines.StageBatch("q", "app", 1, 0, 0, 5, 7, 1000, 1)
    staged = rig.call(stage, wire.encode(wire.Payload([b"s"])))
    assert isinstance(staged, wire.Pushed)
    with pytest.raises(MessageLeased, match="a subscription of q, or a stage, holds"):
        rig.cancel("q", staged)
    assert rig.cancel("q", pushed) == 1


def test_a_dead_letter_is_cancelled_where_it_is(rig: Rig) -> None:
    rig.create("jobs", max_deliveries=1, dead_letter="jobs.dead")
    pushed = rig.push("jobs", b"a")
    rig.nack("jobs", *rig.pop("jobs"), reason="no such customer")
    (dead,) = rig.peek("jobs.dead")
    assert dead.lent.origin == "jobs"
    assert dead.lent.reason == "1 deliveries, the last one nacked: no such customer"
    assert rig.cancel("jobs", pushed) == 0
    assert rig.cancel("jobs.dead", pushed) == 1
    assert rig.peek("jobs.dead") == []


def test_its_dedup_key_is_remembered(rig: Rig) -> None:
    pushed = rig.push("q", b"a", dedup_key="k")
    assert rig.cancel("q", pushed) == 1
    assert rig.push("q", b"a", dedup_key="k").duplicate


def test_a_long_search_lets_others_work(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancel_module, "STEP", 2)
    rig.create("ordered", ordered=True)
    pushed = [rig.push("ordered", b"%d" % n) for n in range(20)]
    last = pushed[-1]
    request = wire.Cancel("ordered", last.partition, last.producer, last.batch, 0)
    token = rig.ask(request)
    assert rig.answer(token) is None, "it takes more rounds"
    # A batch acked during the search is not looked up on the disk.
    rig.ack("ordered", *rig.pop("ordered", 5))
    rig.settle()
    answered = rig.answer(token)
    assert answered is not None
    assert checked(answered).answer == wire.Done(1)
    assert rig.counts("ordered") == (14, 0, 0)


def test_a_purge_during_the_search(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancel_module, "STEP", 2)
    rig.create("ordered", ordered=True)
    pushed = [rig.push("ordered", b"%d" % n) for n in range(20)]
    last = pushed[-1]
    request = wire.Cancel("ordered", last.partition, last.producer, last.batch, 0)
    said = rig.round(Asked(request, (), "cancel"), Asked(wire.PurgeQueue("ordered"), (), "purge"))
    rig.settle()
    answers = {each.to: each.answer for each in said}
    answer = answers.get("cancel") or checked(rig.mail.pop("cancel")).answer
    assert answer == wire.Done(0)

"""Stages on one engine: hidden until published, exactly once, across power losses."""

from __future__ import annotations

import pytest

from tests.engine.pipeline import Reader, Writer
from tests.engine.rig import Rig
from weft import errors
from weft.limits import STAGE_TTL_MS
from weft.proto import pipelines, wire


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.create("q")
    return rig


def test_nobody_sees_a_stage_before_it_is_published(rig: Rig) -> None:
    writer = Writer(rig)
    first = writer.stage(0, 0, 0, b"a", b"b")
    loser = writer.stage(0, 0, 1, b"x")
    second = writer.stage(0, 1, 0, b"c")
    assert loser
    assert (rig.counts("q"), rig.stats("q").staged) == ((0, 0, 0), 4)
    assert not Reader(rig).survey(1, 1).bins
    rig.crash()
    assert rig.stats("q").staged == 4
    assert writer.publish(0, (0, 0, first), (1, 0, second)) == 3
    assert rig.stats("q").staged == 0
    assert rig.bodies("q", 10) == [b"a", b"b", b"c"]  # in the order of their parts, and in each
    assert not rig.engine.state.holds.by_key


def test_a_publish_is_once(rig: Rig) -> None:
    writer = Writer(rig)
    token = writer.stage(3, 0, 0, b"a")
    decision = writer.decide(3, (0, 0, 0))
    assert decision == pipelines.Decision(3, [token], 1)
    rig.crash()
    assert len(rig.engine.state.publishing) == 1
    # A repeated request, with any winners, gets the decision that stands.
    assert writer.decide(3, (9, 9, 9)) == decision
    assert writer.decide(4) == decision  # the earlier batch first
    assert writer.reveal(decision) == 1
    assert writer.reveal(decision) == 0
    rig.call(pipelines.Decided("q", "app", 3))
    rig.crash()
    assert writer.reveal(decision) == 0
    assert writer.decide(3, (0, 0, 0)) == pipelines.PublishResult(1, True)
    assert writer.decide(2) == pipelines.PublishResult(0, True)
    assert rig.call(pipelines.LastPublished("q", "app")) == pipelines.LastBatch(3)
    assert rig.bodies("q", 10) == [b"a"]
    assert not rig.engine.state.publishing


def test_what_comes_after_a_publish_is_refused(rig: Rig) -> None:
    writer = Writer(rig)
    token = writer.stage(0, 0, 0, b"a")
    writer.publish(0, (0, 0, token))
    with pytest.raises(errors.Fenced, match="published already"):
        writer.put(0, 0, 0, token, 1, b"a")  # the very same request, arriving late
    rig.crash()
    with pytest.raises(errors.Fenced):
        writer.put(0, 0, 0, token, 1, b"a")
    with pytest.raises(errors.Fenced):
        writer.close(0, 0, 5, 99, 0)
    assert rig.bodies("q", 10) == [b"a"]


def test_a_staged_batch_is_stored_once(rig: Rig) -> None:
    rig.create("w", dedup_window_ms=0)  # stages do not depend on the window
    writer = Writer(rig, "w")
    for duplicate in (False, True):
        answer = writer.put(0, 0, 0, 5, 1, b"a")
        assert isinstance(answer, wire.Pushed)
        assert answer.duplicate is duplicate
        rig.crash()
    assert rig.stats("w").staged == 1


def test_only_a_closed_stage_can_win(rig: Rig) -> None:
    writer = Writer(rig)
    open_ = writer.stage(0, 0, 0, b"a", close=False)
    with pytest.raises(errors.InvalidArgument, match="never closed"):
        writer.decide(0, (0, 0, 0))
    writer.close(0, 0, 0, open_, 1)
    with pytest.raises(errors.InvalidArgument, match="two winners"):
        writer.decide(0, (0, 0, 0), (0, 0, 0))
    with pytest.raises(errors.InvalidArgument):
        writer.decide(0, (0, 0, open_ + 1))
    assert writer.publish(0, (0, 0, 0)) == 1


def test_of_two_lives_of_an_attempt_the_one_closed_last_counts(rig: Rig) -> None:
    writer = Writer(rig)
    first = writer.stage(0, 0, 0, b"before the restart")
    writer.stage(0, 0, 0, b"after it")
    assert writer.publish(0, (0, 0, 0)) == 1
    assert rig.bodies("q", 10) == [b"after it"]
    assert first


def test_what_is_given_up_never_wins(rig: Rig) -> None:
    writer = Writer(rig)
    token = writer.stage(0, 0, 0, b"a")
    late = writer.stage(0, 1, 0, b"b", close=False)
    assert writer.give_up((0, token), (0, late)) == []
    assert writer.give_up((0, token), (0, late), expire=True) == [0, 1]
    rig.crash()
    with pytest.raises(errors.InvalidArgument, match="was discarded"):
        writer.decide(0, (0, 0, token))
    with pytest.raises(errors.Fenced, match="was discarded"):
        writer.close(0, 1, 0, late, 1)
    rig.call(pipelines.DropStages("q", "app", [token, late]))
    rig.settle()
    assert rig.stats("q").staged == 0
    again = writer.stage(0, 0, 0, b"again")  # another attempt of the same batch is free to win
    assert writer.publish(0, (0, 0, again)) == 1


def test_a_decision_stands_against_a_ttl(rig: Rig) -> None:
    writer = Writer(rig)
    token = writer.stage(0, 0, 0, b"a")
    decision = writer.decide(0, (0, 0, 0))
    rig.advance(2 * STAGE_TTL_MS)
    assert writer.give_up((0, token), expire=True) == []
    assert writer.reveal(decision) == 1
    rig.call(pipelines.Decided("q", "app", 0))
    assert writer.give_up((0, 77)) == [0]  # the rest of the batch has no owner


def test_an_empty_batch_counts(rig: Rig) -> None:
    writer = Writer(rig)
    assert rig.call(pipelines.LastPublished("q", "app")) == pipelines.LastBatch(None)
    assert writer.publish(5) == 0
    assert rig.call(pipelines.LastPublished("q", "app")) == pipelines.LastBatch(5)


def test_a_message_is_as_old_as_its_publish(rig: Rig) -> None:
    rig.create("o", ordered=True)
    writer = Writer(rig, "o")
    writer.stage(0, 0, 0, b"staged first", b"and second")
    rig.push("o", b"pushed between")
    rig.advance(1000)
    writer.publish(0, (0, 0, 0))
    assert rig.bodies("o", 10) == [b"pushed between", b"staged first", b"and second"]


def test_stages_count_as_messages_of_the_queue(rig: Rig) -> None:
    rig.create("m", max_messages=2)
    writer = Writer(rig, "m")
    writer.stage(0, 0, 0, b"a", b"b")
    with pytest.raises(errors.QueueFull):
        rig.push("m", b"c")
    with pytest.raises(errors.QueueFull):
        writer.stage(0, 1, 0, b"c")


def test_a_purge_and_a_delete_take_stages(rig: Rig) -> None:
    writer = Writer(rig)
    writer.stage(0, 0, 0, b"a")
    rig.purge("q")
    rig.settle()
    assert rig.stats("q").staged == 0
    writer.stage(0, 1, 0, b"b")
    writer.publish(0, (1, 0, 0))
    writer.stage(1, 0, 0, b"c")
    rig.delete("q")
    rig.settle()
    state = rig.engine.state
    assert not {*state.holds.by_key, *state.apps, *state.fences}


def test_a_queues_own_partition_may_come_and_go(rig: Rig) -> None:
    """Partitions that a node abandons and adopts again are unchanged."""
    writer, reader = Writer(rig), Reader(rig)
    rig.push("q", b"one", b"two")
    made = reader.reserve(1, most=1)
    token = writer.stage(0, 0, 0, b"a")
    state = rig.engine.state
    partitions = set(range(4))
    rig.engine.abandon(partitions)
    assert not {*state.holds.by_key, *state.ledgers, *state.apps, *state.owing}
    assert rig.engine.state.queues["q"].messages == 0
    rig.engine.adopt(partitions)
    rig.round()
    assert reader.read(made) == [b"one"]
    assert writer.publish(0, (0, 0, token)) == 1
    reader.ack(1)
    assert sorted(rig.bodies("q", 10)) == [b"a", b"two"]

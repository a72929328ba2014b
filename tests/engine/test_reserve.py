"""Reservations on one engine: reserve, read, ack and release, across power losses."""

from __future__ import annotations

import pytest

from tests.engine.pipeline import TTL_MS, Reader
from tests.engine.rig import Rig, payload_of
from weft import errors
from weft.proto import pipelines, wire


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.create("q")
    return rig


def fill(rig: Rig, batches: int, size: int = 3) -> list[bytes]:
    bodies = [[b"%d.%d" % (n, i) for i in range(size)] for n in range(batches)]
    for some in bodies:
        rig.push("q", *some)
    return [body for some in bodies for body in some]


def test_the_oldest_are_set_aside_and_nobody_pops_them(rig: Rig) -> None:
    bodies = fill(rig, 10)
    reader = Reader(rig)
    made = reader.reserve(1, most=14)
    assert made.messages == 14  # the last batch in part
    assert sorted(reader.read(made)) == sorted(bodies[:14])
    assert rig.counts("q") == (16, 0, 0)
    assert rig.stats("q").reserved == 14
    assert set(rig.bodies("q", 100)) == set(bodies[14:])


def test_the_same_number_gives_the_same_rows_after_a_power_loss(rig: Rig) -> None:
    fill(rig, 10)
    reader = Reader(rig)
    made = reader.reserve(1, most=14)
    first = reader.read(made)
    assert reader.read(made, step=1) == first
    rig.crash()
    assert reader.read(made, step=2) == first
    known = rig.call(pipelines.DescribeReservation("q", "sub", 1))
    assert known == pipelines.Reserved(made)
    assert reader.begin(1) == pipelines.Reserved(made)


def test_what_a_broken_attempt_has_marked_still_waits(rig: Rig) -> None:
    """The next attempt surveys without a token first, and must see the marked messages."""
    bodies = fill(rig, 4)
    reader = Reader(rig)
    broken = reader.token(1)
    reader.mark(1, broken)
    assert rig.counts("q") == (0, 0, 0)  # everything is marked, and nothing is sealed
    assert reader.begin(1, sure=False) == wire.Done(0)
    assert sum(each.messages for each in reader.survey(1, 0).bins) == len(bodies)
    assert rig.counts("q") == (0, 0, 0)  # a survey puts nothing back
    token = reader.token(1)
    assert sum(each.messages for each in reader.survey(1, token).bins) == len(bodies)
    made = reader.seal(1, token, reader.mark(1, token))
    assert sorted(reader.read(made)) == sorted(bodies)


def test_an_ack_takes_them_and_a_second_one_changes_nothing(rig: Rig) -> None:
    bodies = fill(rig, 4)
    reader = Reader(rig)
    reader.reserve(1, most=5)
    second = reader.reserve(2, most=100)
    reader.ack(1)
    reader.ack(1)
    assert rig.stats("q").acked == 5
    assert sorted(reader.read(second)) == sorted(bodies[5:])
    reader.ack(2)
    rig.crash()
    assert rig.stats("q").reserved == 0
    assert not rig.engine.state.holds.by_key
    assert not rig.peek("q")


def test_a_release_puts_them_back_where_they_stood(rig: Rig) -> None:
    bodies = fill(rig, 4)
    reader = Reader(rig)
    made = reader.reserve(1, most=5)
    assert reader.release() == 5
    assert [m.body for m in rig.pop("q", 100)] == bodies
    assert all(m.deliveries == 1 for m in rig.peek("q"))  # a reservation is not a delivery
    with pytest.raises(errors.ReservationLost):
        reader.begin(1)
    with pytest.raises(errors.ReservationLost):
        reader.ack(1)
    with pytest.raises(errors.ReservationLost):
        reader.read(made)
    reader.ack(1, skip_lost=True)
    rig.advance(60_000)  # the leases have expired
    assert reader.reserve(2).messages == 12


def test_what_was_delivered_before_is_said_to_be(rig: Rig) -> None:
    fill(rig, 1)
    rig.nack("q", *rig.pop("q", 3))
    reader = Reader(rig)
    made = reader.reserve(1)
    answered = reader.ask_read(made.slices[0])
    assert isinstance(answered.answer, wire.Peeked)
    assert [one.deliveries for one in answered.answer.lent] == [2]


def test_numbers_come_one_after_the_other(rig: Rig) -> None:
    fill(rig, 4)
    reader = Reader(rig)
    with pytest.raises(errors.InvalidArgument, match="the next reservation of sub is number 1"):
        reader.begin(2)
    reader.reserve(1, most=2)
    with pytest.raises(errors.InvalidArgument, match="reserved up to 1"):
        reader.ack(2)
    reader.ack(1)
    with pytest.raises(errors.InvalidArgument, match="is acked"):
        reader.begin(1)
    with pytest.raises(errors.InvalidArgument, match="no reservation 7 yet"):
        rig.call(pipelines.DescribeReservation("q", "sub", 7))


def test_a_new_holder_fences_the_one_before(rig: Rig) -> None:
    fill(rig, 4)
    old = Reader(rig, nonce=1)
    made = old.reserve(1, most=2)
    token = old.token(2)
    held = old.mark(2, token)
    new = Reader(rig, nonce=2)
    assert new.epoch == old.epoch + 1
    for call in (lambda: old.begin(2), lambda: old.ack(1)):
        with pytest.raises(errors.Fenced, match="stop one"):
            call()
    with pytest.raises(errors.Fenced):
        rig.call(pipelines.Heartbeat("q", "sub", old.epoch))
    with pytest.raises(errors.Busy):  # its pending reservation is over, too
        old.seal(2, token, held)
    assert old.read(made)  # reading needs no epoch
    assert Reader(rig, nonce=2).epoch == new.epoch  # the same call, sent again
    with pytest.raises(errors.Fenced):
        Reader(rig, nonce=1)


def test_marks_of_an_attempt_that_failed_are_seen_again_at_the_next(rig: Rig) -> None:
    bodies = fill(rig, 3)
    reader = Reader(rig)
    lost = reader.token(1)
    reader.mark(1, lost, most=4)
    assert rig.counts("q") == (5, 0, 0)
    token = reader.token(1)
    surveyed = reader.survey(1, token)
    assert sum(one.messages for one in surveyed.bins) == 9
    made = reader.seal(1, token, reader.mark(1, token))
    assert sorted(reader.read(made)) == sorted(bodies)
    # The first survey, arriving late, takes nothing away from the later attempt.
    reader.survey(1, lost)
    assert sorted(reader.read(made)) == sorted(bodies)


def test_a_mark_that_is_nobodys_is_judged_so(rig: Rig) -> None:
    fill(rig, 6)
    reader = Reader(rig)
    made = reader.reserve(1, most=3)
    late = reader.mark(1, 77, most=3)
    token = reader.token(2)
    open_ = reader.mark(2, token, most=3)
    marks = [(one.partition, hold, 1, 0) for one in made.slices for hold, _ in one.holds]
    sealed = len(marks)
    marks += [(each.partition, each.id, 1, 77) for each in late]
    dead = len(marks)
    marks += [(each.partition, each.id, 2, token) for each in open_]
    judged = rig.call(pipelines.JudgeMarks("q", "sub", marks))
    assert judged == pipelines.Judged(list(range(sealed, dead)), list(range(sealed)))
    unknown = rig.call(pipelines.JudgeMarks("q", "nobody", marks[:2]))
    assert unknown == pipelines.Judged([0, 1])


def test_a_subscription_that_is_silent_gives_back(rig: Rig) -> None:
    fill(rig, 2)
    reader = Reader(rig)
    reader.reserve(1)
    rig.advance(TTL_MS - 1000)
    rig.call(pipelines.Heartbeat("q", "sub", reader.epoch))
    rig.advance(TTL_MS - 1000)
    assert not rig.engine.state.owing
    rig.advance(2000)
    ((created, name),) = rig.engine.state.owing
    reader.pay(pipelines.Owed(rig.engine.state.ledgers[created, name].debts()))
    assert rig.counts("q") == (6, 0, 0)
    rig.crash()
    with pytest.raises(errors.ReservationLost):
        reader.begin(1)


def test_a_purge_takes_what_is_reserved_and_it_is_said(rig: Rig) -> None:
    fill(rig, 2)
    reader = Reader(rig)
    made = reader.reserve(1)
    rig.purge("q")
    rig.settle()
    with pytest.raises(errors.ReservationLost):
        reader.read(made)
    reader.ack(1)
    fill(rig, 1)
    assert reader.reserve(2).messages == 3


def test_a_deleted_queue_takes_its_subscriptions(rig: Rig) -> None:
    fill(rig, 2)
    reader = Reader(rig)
    reader.reserve(1)
    rig.delete("q")
    rig.settle()
    state = rig.engine.state
    assert not {*state.holds.by_key, *state.ledgers, *state.owing}
    rig.create("q")
    with pytest.raises(errors.SubscriptionNotFound):
        rig.call(pipelines.Heartbeat("q", "sub", reader.epoch))


def test_a_deleted_subscription_is_gone_when_it_owes_nothing(rig: Rig) -> None:
    fill(rig, 2)
    reader = Reader(rig)
    reader.reserve(1)
    owed = rig.call(pipelines.DeleteSubscription("q", "sub"))
    with pytest.raises(errors.SubscriptionNotFound):
        reader.begin(2)
    assert reader.pay(owed) == 6
    assert not rig.engine.state.ledgers
    assert rig.counts("q") == (6, 0, 0)
    assert Reader(rig).epoch > 1_000_000  # higher than any earlier holder can know


def test_an_ordered_queue_gives_one_lot_at_a_time(rig: Rig) -> None:
    rig.create("o", ordered=True)
    for number in range(4):
        rig.push("o", b"%d" % number)
    reader = Reader(rig, "o")
    made = reader.reserve(1, most=2)
    assert reader.read(made) == [b"0", b"1"]
    assert not rig.pop("o")  # the first lot is not done yet
    assert not reader.survey(2, reader.token(2)).bins
    reader.ack(1)
    lent = rig.pop("o", 1)
    assert [m.body for m in lent] == [b"2"]
    assert not reader.survey(2, reader.token(2)).bins
    rig.ack("o", *lent)
    assert reader.read(reader.reserve(2)) == [b"3"]


def test_retention_leaves_what_is_reserved(rig: Rig) -> None:
    rig.create("r", retention_ms=10_000)
    rig.push("r", b"kept")
    reader = Reader(rig, "r")
    made = reader.reserve(1)
    rig.push("r", b"dropped")
    rig.advance(20_000)
    assert rig.counts("r") == (0, 0, 0)
    assert reader.read(made) == [b"kept"]


def test_a_survey_has_bins_up_to_the_limit_and_says_how_far_it_sees(rig: Rig) -> None:
    fill(rig, 20, size=1)
    reader = Reader(rig)
    token = reader.token(1)
    assert len(reader.survey(1, token).bins) == 3  # of seven or eight messages each
    whole = reader.survey(1, token, most=20)
    assert (len(whole.bins), whole.covers) == (20, 0)
    assert [one.first for one in whole.bins] == sorted(one.first for one in whole.bins)
    part = reader.survey(1, token, most=7)
    assert (len(part.bins), part.covers) == (7, part.bins[-1].last)
    size = sum(one.bytes for one in whole.bins[:3])
    by_bytes = reader.survey(1, token, most_bytes=size)
    assert len(by_bytes.bins) == 3
    held = reader.mark(1, token, upto=whole.bins[4].last)
    assert sum(each.messages for each in held) == 5


def test_a_mark_by_bytes_takes_at_least_one_message(rig: Rig) -> None:
    rig.push("q", b"x" * 1000, b"y" * 1000)
    reader = Reader(rig)
    made = reader.reserve(1, most_bytes=1)
    assert reader.read(made) == [b"x" * 1000]


def test_a_mark_is_not_for_clients_ears_alone(rig: Rig) -> None:
    """A stage cannot be acked by naming its hold."""
    request = pipelines.StageBatch("q", "app", 0, 0, 0, 5, 1, 1, 1)
    rig.call(request, payload_of([b"staged"]))
    (hold,) = rig.engine.state.holds.by_key.values()
    with pytest.raises(errors.InvalidArgument):
        rig.call(pipelines.Finish("q", [(hold.partition, hold.id)], True))


def test_names_and_limits(rig: Rig) -> None:
    with pytest.raises(errors.InvalidArgument):
        Reader(rig, name="not a name")
    with pytest.raises(errors.QueueNotFound):
        Reader(rig, queue="nothing")
    with pytest.raises(errors.InvalidArgument, match="ttl_ms"):
        rig.call(pipelines.OpenSubscription("q", "s", 1, 1))
    with pytest.raises(errors.SubscriptionNotFound):
        rig.call(pipelines.DescribeSubscription("q", "s"))


def test_what_a_deleted_queue_leaves_on_a_node_that_was_away_is_found(rig: Rig) -> None:
    """The node learns of the deletion with the catalogue, and deletes nothing before."""
    fill(rig, 1)
    Reader(rig)
    state = rig.engine.state
    (queue,) = state.queues.values()
    others = set(range(4))
    rig.engine.abandon({*others, state.catalogue})
    del state.queues["q"], state.by_id[queue.id], state.by_created[queue.created]
    rig.engine.adopt(others)
    assert state.ownerless == {queue.created}
    assert state.ledgers
    rig.engine.delete_orphans()
    assert not {*state.ledgers, *state.ownerless}

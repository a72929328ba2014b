"""Dead letters: after max_deliveries, with the reason kept; and redrive, back to their queue."""

from __future__ import annotations

import pytest

from tests.engine.rig import Asked, Rig
from weft.dht import placement
from weft.errors import InvalidArgument
from weft.proto import wire
from weft.server.engine.cleanup import STEP

DEAD = "jobs.dead"


@pytest.fixture
def jobs(rig: Rig) -> Rig:
    rig.create("jobs", lease_ms=1000, max_deliveries=2, dead_letter=DEAD)
    return rig


def fail(rig: Rig, times: int = 2, limit: int = 100, reason: str = "") -> None:
    for _ in range(times):
        rig.nack("jobs", *rig.pop("jobs", limit), reason=reason)


def test_it_moves_after_the_last_delivery_allowed(jobs: Rig) -> None:
    jobs.push("jobs", b"a")
    fail(jobs, 1)
    assert jobs.counts(DEAD) == (0, 0, 0)
    fail(jobs, 1, reason="no funds")
    assert jobs.counts("jobs") == (0, 0, 0)
    assert jobs.stats("jobs").dead_lettered == 1
    dead = jobs.pop(DEAD)[0]
    assert (dead.body, dead.deliveries) == (b"a", 1)
    assert dead.lent.reason == "2 deliveries, the last one nacked: no funds"


def test_the_reason_survives_restarts_and_further_failures(jobs: Rig) -> None:
    jobs.push("jobs", b"a")
    fail(jobs, reason="why")
    jobs.crash()
    jobs.nack(DEAD, *jobs.pop(DEAD), reason="other")
    jobs.crash()
    dead = jobs.pop(DEAD)[0]
    assert dead.deliveries == 2
    assert dead.lent.reason == "2 deliveries, the last one nacked: why"
    assert jobs.peek(DEAD) == []


def test_an_expired_lease_counts_and_says_so(jobs: Rig) -> None:
    jobs.push("jobs", b"a")
    for _ in range(2):
        jobs.pop("jobs")
        jobs.advance(1000)
    assert jobs.peek(DEAD)[0].lent.reason == "2 deliveries, the last one lease expired"


def test_what_was_given_back_unseen_does_not_count(jobs: Rig) -> None:
    jobs.push("jobs", b"a")
    for _ in range(5):
        jobs.nack("jobs", *jobs.pop("jobs"), counted=False)
    assert jobs.counts("jobs") == (1, 0, 0)


def test_a_delay_is_not_waited_for_in_the_dead_letter_queue(jobs: Rig) -> None:
    jobs.push("jobs", b"a")
    jobs.nack("jobs", *jobs.pop("jobs"))
    jobs.nack("jobs", *jobs.pop("jobs"), delay_ms=60_000)
    assert jobs.counts(DEAD) == (1, 0, 0)


def test_only_the_failed_messages_of_a_batch_move(jobs: Rig) -> None:
    jobs.push("jobs", *(b"%d" % n for n in range(10)))
    fail(jobs, 1)
    taken = jobs.pop("jobs", 10)
    jobs.nack("jobs", *taken[1::3], reason="bad")
    jobs.ack("jobs", *taken[0::3])
    assert jobs.counts(DEAD) == (3, 0, 0)
    jobs.crash()
    assert [m.body for m in jobs.peek(DEAD)] == [b"1", b"4", b"7"]
    assert jobs.bodies("jobs", 10) == [b"2", b"5", b"8"]


def test_a_move_is_in_one_place_at_every_moment(jobs: Rig) -> None:
    """The rig checks this after every round; so does a power loss right before and after."""
    jobs.push("jobs", b"a", b"b")
    fail(jobs, 1)
    taken = jobs.pop("jobs", 2)
    jobs.round(Asked(wire.Nack("jobs", [taken[0].receipt]), (), 1))
    jobs.crash()
    assert (jobs.bodies("jobs", 5), jobs.bodies(DEAD, 5)) == ([b"b"], [b"a"])


def test_dead_letters_of_dead_letters(rig: Rig) -> None:
    rig.create("a", max_deliveries=1, dead_letter="b")
    rig.update("b", max_deliveries=1, dead_letter="c")
    rig.push("a", b"x")
    rig.nack("a", *rig.pop("a"))
    rig.nack("b", *rig.pop("b"))
    assert rig.redrive("c") == 1
    assert rig.counts("b") == (1, 0, 0), "it goes back one step"


# --- redrive ----------------------------------------------------------------------------------


def test_redriven_messages_begin_anew_in_their_place(jobs: Rig) -> None:
    jobs.push("jobs", b"a", b"b")
    fail(jobs)
    jobs.push("jobs", b"c")
    assert jobs.redrive(DEAD) == 2
    assert jobs.counts(DEAD) == (0, 0, 0)
    jobs.crash()
    taken = jobs.pop("jobs", 9)
    assert [m.body for m in taken] == [b"a", b"b", b"c"]
    assert {(m.deliveries, m.lent.reason) for m in taken} == {(1, "")}


def test_a_redrive_has_a_limit(jobs: Rig) -> None:
    jobs.push("jobs", *(b"%d" % n for n in range(10)))
    fail(jobs)
    assert jobs.redrive(DEAD, 3) == 3
    assert [m.body for m in jobs.peek("jobs")] == [b"0", b"1", b"2"]
    assert jobs.redrive(DEAD, 100) == 7
    assert jobs.redrive(DEAD) == 0
    for limit in (-1, (1 << 40) + 1):
        with pytest.raises(InvalidArgument, match="limit"):
            jobs.redrive(DEAD, limit)


def test_a_limit_looks_past_what_cannot_go_back(jobs: Rig) -> None:
    jobs.push(DEAD, *[b"pushed here"] * 9)
    jobs.push("jobs", b"a", b"b", b"c")
    fail(jobs)
    assert jobs.redrive(DEAD, 2) == 2
    assert jobs.counts(DEAD) == (10, 0, 0)
    assert jobs.bodies("jobs", 9) == [b"a", b"b"]


def test_without_their_origin_they_stay_as_they_are(jobs: Rig) -> None:
    jobs.push("jobs", b"a")
    fail(jobs, reason="why")
    jobs.delete("jobs")
    assert jobs.redrive(DEAD) == 0
    dead = jobs.peek(DEAD)[0]
    assert (dead.body, dead.lent.reason) == (b"a", "2 deliveries, the last one nacked: why")
    jobs.create("jobs")
    assert jobs.redrive(DEAD) == 1, "the name is what they came from"


@pytest.mark.parametrize("kind", ["grouped", "ordered"])
def test_they_stay_if_their_origin_was_created_again_with_an_order(jobs: Rig, kind: str) -> None:
    """Without a group, or on several partitions, they have no place in the order."""
    for number in range(12):
        jobs.push("jobs", b"%d" % number)
    fail(jobs)
    jobs.delete("jobs")
    jobs.create("jobs", **{kind: True})
    home = placement.of_text("jobs", 4)
    back = sum(each.lent.partition == home for each in jobs.peek(DEAD)) if kind == "ordered" else 0
    assert jobs.redrive(DEAD) == back
    assert jobs.counts(DEAD) == (12 - back, 0, 0)
    assert jobs.counts("jobs") == (back, 0, 0)


def test_lent_dead_letters_stay_with_who_has_them(jobs: Rig) -> None:
    jobs.push("jobs", b"a", b"b")
    fail(jobs)
    taken = jobs.pop(DEAD)[0]
    assert jobs.redrive(DEAD) == 1
    assert jobs.ack(DEAD, taken).done == 1
    assert jobs.bodies("jobs", 9) == [b"b"]


def test_a_redrive_of_an_ordinary_queue_moves_nothing(rig: Rig) -> None:
    rig.push("q", b"a", b"b")
    rig.push("q", b"c")
    assert rig.redrive("q") == 0
    assert rig.bodies("q", 9) == [b"a", b"b", b"c"]


def test_a_purge_in_the_same_round_wins(jobs: Rig) -> None:
    jobs.push("jobs", b"a", b"b")
    fail(jobs)
    answers = jobs.round(
        Asked(wire.Redrive(DEAD), (), "redrive"), Asked(wire.PurgeQueue(DEAD), (), "purge")
    )
    said = {each.to: each.answer for each in answers}
    assert said == {"purge": wire.Done(2), "redrive": wire.Done(0)}
    jobs.settle()
    assert jobs.counts("jobs") == jobs.counts(DEAD) == (0, 0, 0)


def test_a_long_redrive_goes_on_while_others_work(jobs: Rig) -> None:
    jobs.checking = False
    count = STEP + 50
    for number in range(count):
        jobs.push("jobs", b"%d" % number)
    fail(jobs, limit=count)
    jobs.push(DEAD, b"stays")
    jobs.mail.clear()
    token = jobs.ask(wire.Redrive(DEAD))
    assert jobs.answer(token) is None
    assert jobs.counts("jobs")[0] >= STEP
    jobs.settle()
    answered = jobs.answer(token)
    assert answered is not None
    assert answered.answer == wire.Done(count)
    jobs.check()
    assert [m.body for m in jobs.peek(DEAD)] == [b"stays"]


def test_a_queue_deleted_during_its_redrive_leaves_nothing(jobs: Rig) -> None:
    jobs.checking = False
    jobs.push(DEAD, b"stays")
    count = STEP + 50
    for number in range(count):
        jobs.push("jobs", b"%d" % number)
    fail(jobs, limit=count)
    token = jobs.ask(wire.Redrive(DEAD))
    jobs.update("jobs", max_deliveries=0, dead_letter="")
    jobs.delete(DEAD)
    jobs.settle()
    assert jobs.answer(token) is not None
    jobs.check()
    moved = jobs.counts("jobs")[0]
    jobs.crash()
    jobs.settle()
    assert jobs.counts("jobs") == (moved, 0, 0)

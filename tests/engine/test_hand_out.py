"""A delivery counts when the application gets the message; lost workers narrow the suspects down.

The scenarios drive the engine with the requests of a prefetching consumer, and of one that pops
large lots, while one message kills every worker that gets it.
"""

from __future__ import annotations

import pytest

from tests.engine.rig import Rig, Taken

DEAD = "jobs.dead"
POISON = b"poison"


@pytest.fixture
def jobs(rig: Rig) -> Rig:
    rig.create("jobs", lease_ms=1000, max_deliveries=5, dead_letter=DEAD)
    return rig


def bodies(messages: list[Taken]) -> list[bytes]:
    return [each.body for each in messages]


def test_what_was_prefetched_and_not_handed_out_returns_uncounted(jobs: Rig) -> None:
    jobs.push("jobs", *(b"%d" % number for number in range(10)))
    for lost in range(1, 4):
        lot = jobs.pop("jobs", 10, prefetch=True)
        assert jobs.extend("jobs", 1000, *lot[:2], handed=True).done == 2
        jobs.advance(1000)
        assert [each.deliveries for each in jobs.peek("jobs")] == [lost] * 2 + [0] * 8


def test_a_nack_counts_without_a_recorded_hand_out(jobs: Rig) -> None:
    jobs.push("jobs", b"a")
    jobs.nack("jobs", *jobs.pop("jobs", prefetch=True))
    assert jobs.peek("jobs")[0].deliveries == 1


def test_a_plain_pop_counts_as_before(jobs: Rig) -> None:
    jobs.push("jobs", b"a", b"b")
    jobs.pop("jobs", 2)
    jobs.advance(1000)
    assert [each.deliveries for each in jobs.peek("jobs")] == [1, 1]


def test_a_renewal_alone_is_no_hand_out(jobs: Rig) -> None:
    jobs.push("jobs", b"a")
    jobs.extend("jobs", 1000, *jobs.pop("jobs", prefetch=True))
    jobs.advance(1000)
    assert jobs.peek("jobs")[0].deliveries == 0


def test_a_batch_worker_that_dies_of_one_message_loses_that_one_only(jobs: Rig) -> None:
    """A plain loop: pop 500, work on all, ack all; the poison message kills the worker first."""
    for start in range(0, 900, 300):
        jobs.push("jobs", *(b"%d" % number for number in range(start, start + 150)))
        if not start:
            jobs.push("jobs", POISON)
        jobs.push("jobs", *(b"%d" % number for number in range(start + 150, start + 300)))
    done: list[bytes] = []
    crashes = 0
    while lot := jobs.pop("jobs", 500):
        if POISON in bodies(lot):
            crashes += 1
            jobs.advance(1000)
        else:
            jobs.ack("jobs", *lot)
            done += bodies(lot)
    assert crashes == 5
    assert bodies(jobs.peek(DEAD)) == [POISON]
    assert sorted(done) == sorted(b"%d" % number for number in range(900))


def test_only_the_last_delivery_after_a_crash_is_alone(jobs: Rig) -> None:
    jobs.push("jobs", *(b"%d" % number for number in range(100)))
    sizes: list[int] = []
    for _ in range(4):
        lot = jobs.pop("jobs", 100)
        sizes.append(len(lot))
        assert not lot[0].lent.alone
        jobs.advance(1000)
    assert sizes == [100, 100, 64, 8]
    (alone,) = jobs.pop("jobs", 100)
    assert alone.lent.alone


def test_failures_that_were_reported_do_not_shrink_lots(jobs: Rig) -> None:
    jobs.push("jobs", *(b"%d" % number for number in range(100)))
    for _ in range(4):
        lot = jobs.pop("jobs", 100)
        assert len(lot) == 100
        jobs.nack("jobs", *lot)
    last = jobs.pop("jobs", 100)
    assert len(last) == 100
    assert not last[0].lent.alone


def test_suspicion_survives_a_restart_and_ends_with_a_redrive(jobs: Rig) -> None:
    jobs.push("jobs", b"a", b"b")
    for _ in range(4):
        jobs.pop("jobs", 2)
        jobs.advance(1000)
    jobs.crash()
    for expected in (b"a", b"b"):
        (alone,) = jobs.pop("jobs", 2)
        assert alone.body == expected
        jobs.advance(1000)
    assert jobs.redrive(DEAD) == 2
    assert bodies(jobs.pop("jobs", 2)) == [b"a", b"b"]


def test_an_ordered_queue_keeps_what_was_handed_out_across_a_restart(rig: Rig) -> None:
    rig.create("line", lease_ms=1000, max_deliveries=5, dead_letter=DEAD, ordered=True)
    rig.push("line", b"a", b"b", b"c")
    lot = rig.pop("line", 3, prefetch=True)
    rig.extend("line", 1000, lot[0], handed=True)
    rig.crash()
    rig.advance(2000)
    assert [each.deliveries for each in rig.peek("line")] == [1, 0, 0]

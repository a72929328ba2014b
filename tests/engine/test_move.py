"""Moves: leased messages change their queue in one entry, with id, priority and deliveries."""

from __future__ import annotations

import pytest

from tests.engine.rig import Rig
from weft.errors import InvalidArgument, QueueFull, QueueNotFound


@pytest.fixture
def jobs(rig: Rig) -> Rig:
    rig.create("jobs", lease_ms=1000)
    rig.create("far")
    return rig


def test_a_moved_message_is_in_the_other_queue_with_its_id(jobs: Rig) -> None:
    pushed = jobs.push("jobs", b"a")
    taken = jobs.pop("jobs")
    assert jobs.move("jobs", "far", *taken).done == 1
    assert jobs.counts("jobs") == (0, 0, 0)
    (moved,) = jobs.pop("far")
    assert (moved.body, moved.lent.producer, moved.lent.batch) == (
        b"a", pushed.producer, pushed.batch,
    )  # fmt: skip


def test_a_move_counts_no_delivery_and_forgets_none(jobs: Rig) -> None:
    jobs.push("jobs", b"a")
    jobs.nack("jobs", *jobs.pop("jobs"))
    jobs.move("jobs", "far", *jobs.pop("jobs"))
    (moved,) = jobs.pop("far")
    assert moved.deliveries == 2
    jobs.move("far", "jobs", moved)
    assert jobs.pop("jobs")[0].deliveries == 2


def test_a_part_of_a_batch_moves_and_the_rest_stays(jobs: Rig) -> None:
    jobs.push("jobs", *(b"%d" % n for n in range(10)))
    taken = jobs.pop("jobs", 10)
    jobs.move("jobs", "far", *taken[1::3])
    jobs.ack("jobs", *taken[0::3])
    jobs.crash()
    assert [m.body for m in jobs.peek("far")] == [b"1", b"4", b"7"]
    assert [m.body for m in jobs.pop("jobs", 10)] == [b"2", b"5", b"8"]
    jobs.ack("far", *jobs.pop("far", 10))
    assert jobs.counts("far") == (0, 0, 0)


def test_a_move_sent_again_is_answered_already(jobs: Rig) -> None:
    jobs.push("jobs", b"a")
    taken = jobs.pop("jobs")
    jobs.move("jobs", "far", *taken)
    said = jobs.move("jobs", "far", *taken)
    assert (said.done, said.already, said.lost) == (0, 1, [])
    assert jobs.counts("far") == (1, 0, 0)


def test_a_lost_lease_moves_nothing(jobs: Rig) -> None:
    jobs.push("jobs", b"a")
    taken = jobs.pop("jobs")
    jobs.advance(1000)
    jobs.ack("jobs", *jobs.pop("jobs"))
    assert jobs.move("jobs", "far", *taken).lost == [0]
    assert jobs.counts("far") == (0, 0, 0)


def test_a_priority_stays(jobs: Rig) -> None:
    jobs.push("far", b"low")
    jobs.push("jobs", b"high", priority=9)
    jobs.move("jobs", "far", *jobs.pop("jobs"))
    assert jobs.bodies("far", 2) == [b"high", b"low"]


def test_a_refused_move_changes_nothing(jobs: Rig) -> None:
    jobs.create("line", ordered=True)
    jobs.create("full", max_messages=1)
    jobs.push("full", b"x")
    jobs.push("jobs", b"a")
    taken = jobs.pop("jobs")
    with pytest.raises(InvalidArgument, match="line is ordered"):
        jobs.move("jobs", "line", *taken)
    with pytest.raises(InvalidArgument, match="already"):
        jobs.move("jobs", "jobs", *taken)
    with pytest.raises(QueueNotFound):
        jobs.move("jobs", "none", *taken)
    with pytest.raises(QueueFull):
        jobs.move("jobs", "full", *taken)
    assert jobs.ack("jobs", *taken).done == 1

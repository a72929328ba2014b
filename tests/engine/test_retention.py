"""Retention: messages older than the queue's limit are dropped; all others are kept."""

from __future__ import annotations

import pytest

from tests.engine.rig import Rig
from weft.errors import InvalidArgument


@pytest.fixture
def short(rig: Rig) -> Rig:
    rig.create("short", retention_ms=5000, lease_ms=60_000)
    return rig


def test_old_messages_are_dropped_and_young_ones_stay(short: Rig) -> None:
    short.push("short", b"old", b"old too")
    short.push("q", b"no retention here")
    short.advance(3000)
    short.push("short", b"young")
    short.advance(2500)
    assert [m.body for m in short.peek("short")] == [b"young"]
    assert short.counts("q") == (1, 0, 0)
    short.crash()
    assert short.bodies("short", 5) == [b"young"]
    assert sum(key[:1] == b"h" for key in short.store._rows) == 2


def test_nothing_is_dropped_before_its_time(short: Rig) -> None:
    short.push("short", b"a")
    short.advance(4990)
    assert short.counts("short") == (1, 0, 0)


def test_what_is_lent_is_dropped_when_it_comes_back(short: Rig) -> None:
    short.push("short", b"a", b"b")
    message = short.pop("short")[0]
    short.advance(10_000)
    assert short.counts("short") == (0, 1, 0)
    short.nack("short", message)
    short.advance(1000)
    assert short.counts("short") == (0, 0, 0)


def test_what_is_lent_can_be_acked_after_its_time(short: Rig) -> None:
    short.push("short", b"a")
    message = short.pop("short")[0]
    short.advance(10_000)
    assert short.ack("short", message).done == 1


def test_every_priority_and_every_returned_part_is_looked_at(short: Rig) -> None:
    short.push("short", b"a", b"b", priority=9)
    short.push("short", b"c")
    taken = short.pop("short", 2)
    short.nack("short", taken[1])
    short.ack("short", taken[0])
    short.advance(6000)
    assert short.counts("short") == (0, 0, 0)


def test_a_delay_that_outlasts_the_retention_is_refused(short: Rig) -> None:
    """If accepted, the message would be dropped before any consumer could get it."""
    for delay_ms in (5000, 60_000):
        with pytest.raises(InvalidArgument, match="retention_ms 5000"):
            short.push("short", b"a", delay_ms=delay_ms)
    assert short.counts("short") == (0, 0, 0)
    short.push("short", b"b", delay_ms=4999, batch=1)
    short.update("short", retention_ms=1000)
    assert short.push("short", b"b", delay_ms=4999, batch=1).duplicate, "a retry is not a new push"


def test_what_waits_for_its_time_is_looked_at_when_that_has_come(short: Rig) -> None:
    short.push("short", b"a", b"b")
    short.nack("short", *short.pop("short", 2), delay_ms=8000)
    short.advance(7000)
    assert short.counts("short") == (0, 0, 2)
    short.advance(2000)
    assert short.counts("short") == (0, 0, 0)


def test_a_changed_retention_holds_for_what_waits(short: Rig) -> None:
    short.push("q", b"a")
    short.advance(20_000)
    short.update("q", retention_ms=10_000)
    short.advance(1000)
    assert short.counts("q") == (0, 0, 0)


def test_it_holds_over_a_restart(short: Rig) -> None:
    short.push("short", b"a")
    short.now += 10_000_000
    short.restart()
    short.advance(1000)
    assert short.pop("short") == []


def test_many_old_messages_take_more_than_one_round(short: Rig) -> None:
    short.checking = False
    for _ in range(1200):
        short.push("short", b"x")
    short.now += 10_000_000
    short.round()
    assert 0 < short.counts("short")[0] < 1200
    short.settle()
    assert short.counts("short") == (0, 0, 0)
    short.check()

"""Delayed messages: not before their due time, at their due time, and across restarts."""

from __future__ import annotations

from tests.engine.rig import Rig
from weft.server.engine import engine as engine_module
from weft.server.engine.partition_clock import advance


def test_a_delayed_message_comes_at_its_time(rig: Rig) -> None:
    rig.push("q", b"a", delay_ms=1000)
    assert rig.counts("q") == (0, 0, 1)
    assert rig.peek("q") == []
    rig.advance(999)
    assert rig.pop("q") == []
    rig.advance(1)
    message = rig.pop("q")[0]
    assert (message.body, message.deliveries) == (b"a", 1)


def test_a_delay_counts_from_the_wall_clock_though_stamps_are_ahead(rig: Rig) -> None:
    """A multicast has brought a number from a node whose clock is an hour ahead."""
    advance(rig.engine.state, 0, rig.now + 3_600_000_000)
    rig.push("q", b"a", delay_ms=1000)
    rig.advance(1000)
    assert rig.bodies("q") == [b"a"]


def test_it_survives_a_restart_and_a_power_loss(rig: Rig) -> None:
    rig.push("q", b"a", b"b", delay_ms=60_000)
    rig.restart()
    assert rig.counts("q") == (0, 0, 2)
    rig.advance(30_000)
    rig.crash()
    rig.advance(29_000)
    assert rig.pop("q") == []
    rig.advance(1000)
    assert rig.bodies("q", 2) == [b"a", b"b"]


def test_what_fell_due_while_the_node_was_down_is_ready(rig: Rig) -> None:
    rig.push("q", b"late", delay_ms=1000)
    rig.push("q", b"now")
    rig.now += 5_000_000
    rig.restart()
    assert rig.bodies("q", 2) == [b"late", b"now"], "it stands where it was pushed"


def test_a_due_message_stands_where_it_was_pushed(rig: Rig) -> None:
    rig.push("q", b"1", delay_ms=100)
    rig.push("q", b"2")
    rig.push("q", b"3", delay_ms=50)
    rig.push("q", b"4")
    rig.advance(60)
    assert [m.body for m in rig.peek("q")] == [b"2", b"3", b"4"]
    rig.advance(40)
    assert rig.bodies("q", 9) == [b"1", b"2", b"3", b"4"]


def test_a_shorter_delay_is_not_held_up_by_a_longer_one(rig: Rig) -> None:
    rig.push("q", b"long", delay_ms=90_000)
    rig.push("q", b"short", delay_ms=100)
    rig.advance(100)
    assert rig.bodies("q", 2) == [b"short"]
    rig.advance(90_000)
    assert b"long" in rig.bodies("q", 2)


def test_a_delayed_priority_is_kept(rig: Rig) -> None:
    rig.push("q", b"low")
    rig.push("q", b"high", delay_ms=100, priority=9)
    rig.restart()
    rig.advance(100)
    assert rig.bodies("q", 2) == [b"high", b"low"]


def test_parts_of_one_batch_may_wait_for_different_times(rig: Rig) -> None:
    rig.push("q", b"a", b"b", b"c", b"d")
    taken = rig.pop("q", 4)
    rig.nack("q", taken[0], delay_ms=3000)
    rig.nack("q", taken[1], delay_ms=1000)
    rig.nack("q", taken[2], delay_ms=1000)
    rig.ack("q", taken[3])
    rig.crash()
    assert rig.counts("q") == (0, 0, 3)
    rig.advance(1000)
    assert rig.bodies("q", 4) == [b"b", b"c"]
    rig.advance(2000)
    assert rig.bodies("q", 4) == [b"a"]


def test_more_fall_due_at_once_than_one_round_takes(rig: Rig) -> None:
    rig.checking = False
    most = engine_module._TIMERS_MAX
    for _ in range(most + 10):
        rig.push("q", b"x", delay_ms=600_000)
    rig.now += 600_000_000
    rig.round()
    queue = rig.engine.state.queues["q"]
    assert (queue.ready, queue.delayed) == (most, 10)
    assert rig.engine.next_due() <= rig.now, "the rest is due at once"
    rig.round()
    assert rig.counts("q") == (most + 10, 0, 0)
    rig.check()


def test_a_purged_delay_never_comes(rig: Rig) -> None:
    rig.push("q", b"a", delay_ms=1000)
    rig.purge("q")
    rig.push("q", b"b", delay_ms=2000)
    rig.advance(1000)
    assert rig.pop("q") == []
    rig.advance(1000)
    assert rig.bodies("q", 2) == [b"b"]

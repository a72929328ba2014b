"""pop and peek: leases, split batches, limits of an answer."""

from __future__ import annotations

import pytest

from tests.engine.rig import Rig
from weft import limits
from weft.errors import InvalidArgument, Overloaded, QueueNotFound
from weft.proto import wire
from weft.server.engine.pop import RANGES_MAX

# --- lending ----------------------------------------------------------------------------------


def test_a_pop_lends_and_nobody_else_gets_it(rig: Rig) -> None:
    rig.push("q", b"a")
    message = rig.pop("q")[0]
    assert (message.body, message.deliveries, message.lent.lease_ms) == (b"a", 1, 10_000)
    assert rig.pop("q") == []
    assert rig.counts("q") == (0, 1, 0)


def test_pushed_ms_is_when_it_was_pushed(rig: Rig) -> None:
    rig.push("q", b"a")
    pushed_ms = rig.now // 1000
    rig.advance(5000)
    assert rig.pop("q")[0].lent.pushed_ms == pushed_ms


def test_a_lease_lasts_as_long_as_the_pop_or_the_queue_says(rig: Rig) -> None:
    rig.push("q", b"short", b"long")
    assert rig.pop("q", lease_ms=1000)[0].lent.lease_ms == 1000
    rig.pop("q")
    rig.advance(1000)
    assert rig.bodies("q", 5, lease_ms=60_000) == [b"short"]
    rig.advance(9000)
    assert rig.bodies("q", 5) == [b"long"]


def test_a_lease_ends_at_its_time_and_not_before(rig: Rig) -> None:
    rig.push("q", b"a")
    message = rig.pop("q", lease_ms=1000)[0]
    lent_at = rig.now
    rig.now = lent_at + 1_000_000 - 2 * 50  # the next two rounds: just before, and just at the end
    rig.round()
    assert rig.counts("q")[1] == 1
    assert rig.now == lent_at + 1_000_000
    assert rig.ack("q", message).lost == [0]
    assert rig.stats("q").expired_leases == 1


def test_a_pop_goes_over_many_batches(rig: Rig) -> None:
    for number in range(10):
        rig.push("q", b"%d.0" % number, b"%d.1" % number)
    assert rig.bodies("q", 5) == [b"0.0", b"0.1", b"1.0", b"1.1", b"2.0"]
    assert rig.bodies("q", 2) == [b"2.1", b"3.0"]


def test_one_of_a_thousand_again_and_again(rig: Rig) -> None:
    rig.checking = False
    rig.push("q", *(b"%d" % n for n in range(1000)))
    taken = [rig.pop("q")[0] for _ in range(1000)]
    assert [message.body for message in taken] == [b"%d" % n for n in range(1000)]
    assert [message.index for message in taken] == list(range(1000))
    rig.check()
    for message in taken[1::2]:
        assert rig.ack("q", message) == wire.Settled(1, 0, [])
    rig.check()
    assert rig.counts("q") == (0, 500, 0)
    rig.restart()
    assert rig.bodies("q", 1000) == [b"%d" % n for n in range(0, 1000, 2)]
    rig.check()


def test_a_pop_stops_at_its_bytes(rig: Rig) -> None:
    third = b"x" * (limits.POP_BYTES_MAX // 3)
    for _ in range(4):
        rig.push("q", third)
    assert len(rig.pop("q", 100)) == 2, "three of them with their frames are just over"
    assert len(rig.pop("q", 100)) == 2


def test_a_pop_stops_at_its_bytes_within_a_split_and_keeps_the_order(rig: Rig) -> None:
    big = b"x" * (limits.POP_BYTES_MAX // 2 - 1)
    rig.push("q", big)
    rig.push("q", big + b"1", b"2", b"3")
    assert [len(body) for body in rig.bodies("q", 3)] == [len(big)]
    assert [len(body) for body in rig.bodies("q", 3)] == [len(big) + 1, 1, 1]


def test_the_bytes_of_an_answer_are_those_that_are_sent(rig: Rig) -> None:
    """A batch's bytes may all be in one message: an average per message would be wrong."""
    big = b"x" * (limits.BODY_BYTES_MAX - 100)
    for _ in range(3):
        rig.push("q", big, *[b""] * 99)
    taken = rig.pop("q", 100) + rig.pop("q", 100) + rig.pop("q", 100)
    heavy = [message for message in taken if message.body]
    rig.ack("q", *(message for message in taken if not message.body))
    rig.nack("q", *heavy)
    assert len(rig.peek("q", 3)) == 2
    assert len(rig.pop("q", 3)) == 2
    assert len(rig.pop("q", 3)) == 1


def test_a_pop_stops_at_its_ranges(rig: Rig) -> None:
    rig.checking = False
    for number in range(RANGES_MAX + 5):
        rig.push("q", b"%d" % number)
    assert len(rig.pop("q", 10_000)) == RANGES_MAX
    assert len(rig.pop("q", 10_000)) == 5
    rig.check()


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (wire.Pop("q", 0), "limit"),
        (wire.Pop("q", -1), "limit"),
        (wire.Pop("q", limits.POP_COUNT_MAX + 1), "limit"),
        (wire.Pop("q", 1, -1), "wait_ms"),
        (wire.Pop("q", 1, limits.WAIT_MS_MAX + 1), "wait_ms"),
        (wire.Pop("q", 1, 0, limits.LEASE_MS_MIN - 1), "lease_ms"),
        (wire.Pop("q", 1, 0, limits.LEASE_MS_MAX + 1), "lease_ms"),
        (wire.Pop("q", 1, 0, -1), "lease_ms"),
        (wire.Peek("q", 0), "limit"),
        (wire.Peek("q", limits.POP_COUNT_MAX + 1), "limit"),
    ],
)
def test_a_value_out_of_range_is_refused(rig: Rig, request_: wire.Pop, says: str) -> None:
    rig.push("q", b"a")
    with pytest.raises(InvalidArgument, match=says):
        rig.call(request_)
    assert rig.counts("q") == (1, 0, 0)


def test_values_at_their_bounds_are_taken(rig: Rig) -> None:
    rig.push("q", b"a", b"b")
    pop = wire.Pop("q", 1, limits.WAIT_MS_MAX, limits.LEASE_MS_MAX)
    assert isinstance(rig.call(pop), wire.Popped)
    assert isinstance(rig.call(wire.Pop("q", 1, 0, limits.LEASE_MS_MIN)), wire.Popped)
    assert rig.counts("q") == (0, 2, 0)


def test_an_unknown_queue_is_named(rig: Rig) -> None:
    for request in (wire.Pop("nope", 1), wire.Peek("nope", 1)):
        with pytest.raises(QueueNotFound, match="nope"):
            rig.call(request)


def test_leases_have_a_limit(rig: Rig) -> None:
    rig.engine.state.leases.most = 2
    rig.push("q", b"a", b"b", b"c")
    taken = [rig.pop("q")[0], rig.pop("q")[0]]
    with pytest.raises(Overloaded, match="2 leases"):
        rig.pop("q")
    rig.ack("q", taken[0])
    assert rig.bodies("q") == [b"c"]


# --- peek -------------------------------------------------------------------------------------


def test_a_peek_shows_and_lends_nothing(rig: Rig) -> None:
    rig.push("q", b"a", b"b", b"c")
    rig.push("q", b"d")
    for _ in range(3):
        shown = rig.peek("q", 2)
        assert [message.body for message in shown] == [b"a", b"b"]
        assert {(m.lent.nonce, m.deliveries, m.lent.lease_ms) for m in shown} == {(0, 0, 0)}
    assert rig.counts("q") == (4, 0, 0)
    assert rig.stats("q").delivered == 0
    assert rig.bodies("q", 4) == [b"a", b"b", b"c", b"d"]
    assert rig.peek("q") == [], "what is lent is not shown"


def test_a_peeked_receipt_settles_nothing(rig: Rig) -> None:
    rig.push("q", b"a")
    assert rig.ack("q", rig.peek("q")[0]) == wire.Settled(0, 0, [0])
    assert rig.counts("q") == (1, 0, 0)


def test_a_peek_shows_what_a_pop_would_give(rig: Rig) -> None:
    for number in range(12):
        rig.push("q", b"%d.0" % number, b"%d.1" % number, priority=number % 3)
    taken = rig.pop("q", 9)
    rig.nack("q", *taken[::2])
    shown = [message.body for message in rig.peek("q", 100)]
    assert shown == rig.bodies("q", 100)


def test_a_peek_stops_at_its_bytes(rig: Rig) -> None:
    for _ in range(3):
        rig.push("q", b"x" * (limits.POP_BYTES_MAX // 2 - 100))
    assert len(rig.peek("q", 10)) == 2

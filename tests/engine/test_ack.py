"""ack, nack, extend, expiry: how a delivery ends, and every receipt that must be refused."""

from __future__ import annotations

import pytest

from tests.engine.rig import Rig, Taken
from weft import limits
from weft.errors import InvalidArgument, QueueNotFound
from weft.proto import wire
from weft.server.engine import lease as lease_module

LOST = wire.Settled(0, 0, [0])
DONE = wire.Settled(1, 0, [])
ALREADY = wire.Settled(0, 1, [])


def whole(message: Taken, *ranges: tuple[int, int]) -> wire.Receipt:
    """The receipt of a message's lease: for all of the lease, or for some ranges."""
    lent = message.lent
    return wire.Receipt(lent.partition, lent.lsn, lent.nonce, list(ranges))


def settled(rig: Rig, request: wire.AnyRequest) -> wire.Settled:
    answer = rig.call(request)
    assert isinstance(answer, wire.Settled)
    return answer


@pytest.fixture
def message(rig: Rig) -> Taken:
    rig.push("q", b"a")
    return rig.pop("q")[0]


# --- ack --------------------------------------------------------------------------------------


def test_an_acked_message_is_gone_from_memory_and_disk(rig: Rig, message: Taken) -> None:
    assert rig.ack("q", message) == DONE
    assert rig.counts("q") == (0, 0, 0)
    assert rig.stats("q").acked == 1
    rig.restart()
    assert rig.pop("q") == []
    assert {key[:1] for key in rig.store._rows} == {b"p", b"q", b"d"}


def test_an_ack_sent_again_is_already_done(rig: Rig, message: Taken) -> None:
    rig.ack("q", message)
    assert rig.ack("q", message) == ALREADY
    rig.push("q", b"b", b"c")
    two = rig.pop("q", 2)
    assert rig.ack("q", two[0]) == DONE
    assert rig.ack("q", *two) == wire.Settled(1, 1, []), "one was acked before, one was not"
    assert rig.ack("q", two[0], two[0]) == wire.Settled(0, 2, [])
    assert rig.stats("q").acked == 3


def test_an_ack_twice_in_one_call_counts_once(rig: Rig, message: Taken) -> None:
    assert rig.ack("q", message, message) == wire.Settled(1, 1, [])


def test_an_ack_after_the_lease_ended_is_lost(rig: Rig, message: Taken) -> None:
    rig.advance(10_000)
    assert rig.ack("q", message) == LOST
    again = rig.pop("q")[0]
    assert again.deliveries == 2
    assert rig.ack("q", message) == LOST, "the old receipt does not settle the new lease"
    assert rig.ack("q", again) == DONE


def test_an_ack_after_a_nack_is_lost_and_a_nack_after_an_ack_too(rig: Rig, message: Taken) -> None:
    rig.nack("q", message)
    assert rig.ack("q", message) == LOST
    assert rig.nack("q", message) == ALREADY
    again = rig.pop("q")[0]
    rig.ack("q", again)
    assert rig.nack("q", again) == LOST
    assert rig.extend("q", 1000, again) == LOST
    assert rig.counts("q") == (0, 0, 0)


def test_an_ack_after_a_restart_is_lost(rig: Rig, message: Taken) -> None:
    rig.restart()
    assert rig.ack("q", message) == LOST
    assert rig.bodies("q") == [b"a"]


def test_a_forged_nonce_is_lost(rig: Rig, message: Taken) -> None:
    lent = message.lent
    for nonce in (0, 1, lent.nonce + 1, -1, (1 << 63) - 1):
        receipt = wire.Receipt(lent.partition, lent.lsn, nonce)
        assert settled(rig, wire.Ack("q", [receipt])) == LOST
    for partition, lsn in ((lent.partition + 1, lent.lsn), (lent.partition, lent.lsn + 1)):
        assert settled(rig, wire.Ack("q", [wire.Receipt(partition, lsn, lent.nonce)])) == LOST
    assert rig.counts("q") == (0, 1, 0)


def test_another_queues_receipt_is_lost(rig: Rig, message: Taken) -> None:
    rig.create("other")
    assert rig.ack("other", message) == LOST
    assert rig.nack("other", message) == LOST
    assert rig.extend("other", 1000, message) == LOST
    assert rig.ack("q", message) == DONE
    assert rig.ack("other", message) == LOST, "also when it is settled"


def test_a_receipt_of_a_queue_made_anew_is_lost(rig: Rig, message: Taken) -> None:
    rig.delete("q")
    with pytest.raises(QueueNotFound):
        rig.ack("q", message)
    rig.create("q")
    assert rig.ack("q", message) == LOST


def test_good_receipts_are_settled_beside_lost_ones(rig: Rig, message: Taken) -> None:
    rig.push("q", b"b", b"c")
    others = rig.pop("q", 2)
    rig.nack("q", others[0])
    assert rig.ack("q", others[0], message, others[0], others[1]) == wire.Settled(2, 0, [0, 2])


def test_no_receipts_settle_nothing(rig: Rig) -> None:
    assert rig.ack("q") == wire.Settled(0, 0, [])


# --- ranges -----------------------------------------------------------------------------------


def test_a_receipt_without_ranges_names_all_that_was_lent(rig: Rig) -> None:
    rig.push("q", *(b"%d" % n for n in range(10)))
    rig.pop("q", 3)
    second = rig.pop("q", 4)
    assert settled(rig, wire.Ack("q", [whole(second[0])])) == wire.Settled(4, 0, [])
    assert rig.counts("q") == (3, 3, 0)


def test_ranges_name_some_and_overlaps_count_once(rig: Rig) -> None:
    rig.push("q", *(b"%d" % n for n in range(10)))
    message = rig.pop("q", 10)[0]
    ack = wire.Ack("q", [whole(message, (0, 2), (1, 3), (8, 1))])
    assert settled(rig, ack) == wire.Settled(5, 0, [])
    assert settled(rig, ack) == wire.Settled(0, 5, [])
    assert settled(rig, wire.Ack("q", [whole(message)])) == wire.Settled(5, 5, [])


@pytest.mark.parametrize(
    "outside",
    [(2, 1), (3, 0), (3, -1), (3, 5), (7, 1), (-1, 2), (0, 10), (3, 1 << 62), (1 << 62, 1)],
)
def test_a_range_outside_the_lease_is_lost_as_a_whole(rig: Rig, outside: tuple[int, int]) -> None:
    rig.push("q", *(b"%d" % n for n in range(10)))
    rig.pop("q", 3)
    message = rig.pop("q", 4)[0]  # messages 3 to 6
    assert settled(rig, wire.Ack("q", [whole(message, (3, 1), outside)])) == LOST
    assert rig.counts("q") == (3, 7, 0)
    assert settled(rig, wire.Ack("q", [whole(message, (3, 4))])).done == 4


def test_a_receipt_that_is_partly_lost_settles_the_rest_and_says_so(rig: Rig) -> None:
    rig.push("q", b"a", b"b", b"c")
    taken = rig.pop("q", 3)
    rig.nack("q", taken[1])
    assert settled(rig, wire.Ack("q", [whole(taken[0])])) == wire.Settled(2, 0, [0])
    assert rig.bodies("q", 3) == [b"b"]


def test_odd_indexes_acked_the_even_ones_come_again_in_order(rig: Rig) -> None:
    rig.push("q", *(b"%d" % n for n in range(100)))
    message = rig.pop("q", 100)[0]
    ranges = [(n, 1) for n in range(1, 100, 2)]
    assert settled(rig, wire.Ack("q", [whole(message, *ranges)])).done == 50
    rig.advance(10_000)
    assert rig.bodies("q", 3) == [b"0", b"2", b"4"]
    rig.restart()
    assert rig.bodies("q", 100) == [b"%d" % n for n in range(0, 100, 2)]


# --- nack, expiry, giving back: order ------------------------------------------------------------


def test_a_nacked_message_stands_again_where_it_stood(rig: Rig) -> None:
    for number in range(5):
        rig.push("q", b"%d.0" % number, b"%d.1" % number)
    taken = rig.pop("q", 6)
    rig.nack("q", taken[5], taken[1], taken[3])
    order = [b"0.1", b"1.1", b"2.1", b"3.0", b"3.1", b"4.0", b"4.1"]
    assert [message.body for message in rig.peek("q")] == order
    rig.ack("q", taken[0], taken[2], taken[4])
    rig.restart()
    assert rig.bodies("q", 100) == order


def test_expired_messages_stand_again_where_they_stood(rig: Rig) -> None:
    for number in range(6):
        rig.push("q", b"%d" % number)
    rig.pop("q", 2, lease_ms=1000)
    rig.pop("q", 2, lease_ms=5000)
    rig.advance(1000)
    assert [m.body for m in rig.peek("q")] == [b"0", b"1", b"4", b"5"]
    rig.advance(4000)
    assert [m.body for m in rig.peek("q")] == [b"%d" % n for n in range(6)]


def test_deliveries_count_nacks_and_expiries_and_survive_a_restart(rig: Rig) -> None:
    rig.push("q", b"a")
    rig.nack("q", rig.pop("q")[0])
    rig.pop("q")
    rig.advance(10_000)
    rig.pop("q")
    rig.restart()  # a lease that a restart voids is not counted
    message = rig.pop("q")[0]
    assert message.deliveries == 3
    assert rig.nack("q", message, counted=False) == DONE
    assert rig.pop("q")[0].deliveries == 3


def test_a_nack_with_a_delay_comes_back_later(rig: Rig, message: Taken) -> None:
    rig.nack("q", message, delay_ms=2000)
    assert rig.counts("q") == (0, 0, 1)
    rig.restart()
    rig.advance(1999)
    assert rig.pop("q") == []
    rig.advance(1)
    assert rig.pop("q")[0].deliveries == 2


@pytest.mark.parametrize("delay_ms", [-1, limits.DELAY_MS_MAX + 1])
def test_a_delay_out_of_range_changes_nothing(rig: Rig, message: Taken, delay_ms: int) -> None:
    with pytest.raises(InvalidArgument, match="delay_ms"):
        rig.nack("q", message, delay_ms=delay_ms)
    assert rig.ack("q", message) == DONE


def test_a_reason_has_a_largest_size(rig: Rig, message: Taken) -> None:
    with pytest.raises(InvalidArgument, match="reason"):
        rig.nack("q", message, reason="é" * (limits.REASON_BYTES_MAX // 2 + 1))
    assert rig.nack("q", message, reason="r" * limits.REASON_BYTES_MAX) == DONE


def test_receipts_in_one_call_have_a_limit(rig: Rig, message: Taken) -> None:
    receipts = [message.receipt] * (limits.RECEIPTS_MAX + 1)
    for request in (
        wire.Ack("q", receipts),
        wire.Nack("q", receipts),
        wire.Extend("q", receipts, 1000),
    ):
        with pytest.raises(InvalidArgument, match=str(limits.RECEIPTS_MAX)):
            rig.call(request)
    assert rig.counts("q") == (0, 1, 0)
    answer = settled(rig, wire.Ack("q", receipts[1:]))
    assert answer == wire.Settled(1, limits.RECEIPTS_MAX - 1, [])


def test_unknown_queues_are_named(rig: Rig, message: Taken) -> None:
    for request in (
        wire.Ack("nope", [message.receipt]),
        wire.Nack("nope", [message.receipt]),
        wire.Extend("nope", [message.receipt], 1000),
    ):
        with pytest.raises(QueueNotFound, match="nope"):
            rig.call(request)


# --- extend -----------------------------------------------------------------------------------


def test_an_extension_counts_from_now(rig: Rig, message: Taken) -> None:
    rig.advance(9000)
    assert rig.extend("q", 10_000, message) == DONE
    rig.advance(9999)
    assert rig.ack("q", message) == DONE


def test_an_extension_may_shorten(rig: Rig, message: Taken) -> None:
    rig.extend("q", 500, message)
    rig.advance(500)
    assert rig.ack("q", message) == LOST
    assert rig.bodies("q") == [b"a"]


def test_an_extension_is_of_the_whole_lease(rig: Rig) -> None:
    rig.push("q", b"a", b"b")
    taken = rig.pop("q", 2)
    rig.extend("q", 20_000, taken[0])
    rig.advance(15_000)
    assert rig.ack("q", taken[1]) == DONE


def test_extended_again_and_again_it_never_ends(rig: Rig, message: Taken) -> None:
    for _ in range(50):
        rig.advance(9000)
        assert rig.extend("q", 10_000, message) == DONE
    assert rig.stats("q").expired_leases == 0


@pytest.mark.parametrize("lease_ms", [0, -1, limits.LEASE_MS_MIN - 1, limits.LEASE_MS_MAX + 1])
def test_an_extension_out_of_range_changes_nothing(rig: Rig, message: Taken, lease_ms: int) -> None:
    with pytest.raises(InvalidArgument, match="lease_ms"):
        rig.extend("q", lease_ms, message)
    rig.advance(9000)
    assert rig.ack("q", message) == DONE


def test_a_lost_extension_extends_nothing(rig: Rig, message: Taken) -> None:
    rig.advance(10_000)
    assert rig.extend("q", 10_000, message) == LOST
    assert rig.counts("q") == (1, 0, 0)


# --- memory -----------------------------------------------------------------------------------


def test_ended_leases_are_forgotten_in_the_order_they_ended(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "ENDED_MAX", 3)
    rig.push("q", *(b"%d" % n for n in range(5)))
    taken = [rig.pop("q")[0] for _ in range(5)]
    rig.ack("q", *taken)
    assert len(rig.engine.state.leases.ended) == 3
    assert rig.ack("q", *taken) == wire.Settled(0, 3, [0, 1])


def test_ended_leases_are_forgotten_after_a_while(rig: Rig) -> None:
    rig.push("q", b"a")
    first = rig.pop("q")[0]
    rig.ack("q", first)
    rig.advance(lease_module.ENDED_US // 1000 - 30_000)
    assert rig.ack("q", first) == wire.Settled(0, 1, [])
    rig.advance(2 * 30_000 + 1)  # the cleanup runs every half a minute
    assert not rig.engine.state.leases.ended
    assert rig.ack("q", first) == LOST


def test_giving_back_what_was_settled_or_expired_does_nothing(rig: Rig, message: Taken) -> None:
    rig.ack("q", message)
    rig.engine.give_back([message.lent])
    rig.round()
    assert rig.counts("q") == (0, 0, 0)

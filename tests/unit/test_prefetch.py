"""Message stealing: the size of a lot follows consumption, and unused messages are returned."""

from __future__ import annotations

from weft.proto import wire
from weft.server.core.prefetch import BYTES_MAX, KEEP_US, LOT_MAX, PrefetchedLots

MS = 1000
SECOND = 1_000_000


def piece(count: int, lease_ms: int = 30_000, size: int = 1) -> tuple[wire.Lent, bytes]:
    lent = wire.Lent(0, 1, 7, 0, count, 1, 1, 1, 0, lease_ms)
    return lent, wire.encode(wire.Payload([b"x" * size] * count))


def steady(
    prefetched: PrefetchedLots, every_us: int, count: int, now: int = SECOND, size: int = 1
) -> int:
    """A consumer pops `size` messages at an interval; returns the time of the last pop."""
    for number in range(count):
        prefetched.consumed("q", 0, size, now + number * every_us)
    return now + (count - 1) * every_us


def test_the_first_pop_takes_what_it_asks_for() -> None:
    assert PrefetchedLots().lot("q", 0, 1, 5) == 1
    assert PrefetchedLots().lot("q", 0, 100, 5) == 100


def test_a_lot_is_what_is_consumed_in_a_tenth_of_a_second() -> None:
    for per_second in (100, 1000, 4000):
        prefetched = PrefetchedLots()
        last = steady(prefetched, SECOND // per_second, per_second * 2)
        lot = prefetched.lot("q", 0, 1, last + SECOND // per_second)
        assert abs(lot - 1 - per_second // 10) <= 1 + per_second // 100, (per_second, lot)


def test_a_slow_consumer_is_lent_what_it_asks_for() -> None:
    prefetched = PrefetchedLots()
    last = steady(prefetched, SECOND // 5, 50)
    assert prefetched.lot("q", 0, 1, last + SECOND // 5) == 1


def test_a_lot_has_a_limit_and_never_takes_less_than_was_asked() -> None:
    prefetched = PrefetchedLots()
    last = steady(prefetched, 100, 20_000, size=10)
    assert prefetched.lot("q", 0, 1, last) == LOT_MAX
    assert prefetched.lot("q", 0, 2000, last) == 2000


def test_consumption_of_long_ago_does_not_count() -> None:
    prefetched = PrefetchedLots()
    last = steady(prefetched, MS, 2000)
    assert prefetched.lot("q", 0, 1, last + 3 * SECOND) == 1


def test_rates_are_apart_by_queue_and_lease() -> None:
    prefetched = PrefetchedLots()
    last = steady(prefetched, MS, 2000)
    assert prefetched.lot("q", 5_000, 1, last) == 1
    assert prefetched.lot("other", 0, 1, last) == 1


def test_what_is_not_used_in_time_is_returned_and_the_next_lot_is_small() -> None:
    prefetched = PrefetchedLots()
    last = steady(prefetched, MS, 2000)
    prefetched.keep("q", 0, "b", [piece(10)], last)
    ((lent, _),) = prefetched.take("q", 0, 4, last + 5 * MS)
    assert (lent.first, lent.count, lent.lease_ms) == (0, 4, 29_995)
    assert prefetched.next_due() == last + KEEP_US
    assert prefetched.overdue(last + KEEP_US - 1) == {}
    assert prefetched.take("q", 0, 1, last + KEEP_US) == [], "it is on its way back"
    assert prefetched.overdue(last + KEEP_US) == {("b", "q"): [wire.Receipt(0, 1, 7, [(4, 6)])]}
    assert (prefetched.stolen, prefetched.used, prefetched.returned, prefetched.bytes) == (
        10,
        4,
        6,
        0,
    )
    assert prefetched.lot("q", 0, 1, last + KEEP_US) == 1


def test_a_short_lease_is_kept_for_a_quarter_of_it() -> None:
    prefetched = PrefetchedLots()
    prefetched.keep("q", 400, "b", [piece(1, lease_ms=400)], 0)
    assert prefetched.next_due() == 100 * MS


def test_a_node_that_stops_returns_all_and_steals_no_more() -> None:
    prefetched = PrefetchedLots()
    last = steady(prefetched, MS, 2000)
    prefetched.keep("q", 0, "b", [piece(3)], last)
    prefetched.closed = True
    assert prefetched.next_due() == 0
    assert len(prefetched.overdue(last)) == 1
    assert prefetched.lot("q", 0, 1, last) == 1
    prefetched.keep("q", 0, "b", [piece(3)], last)  # an answer that was in flight
    assert len(prefetched.overdue(last)) == 1


def test_the_memory_for_stolen_messages_is_bounded() -> None:
    prefetched = PrefetchedLots()
    last = steady(prefetched, MS, 2000)
    prefetched.keep("q", 0, "b", [piece(1, size=BYTES_MAX)], last)
    assert prefetched.lot("q", 0, 1, last) == 1

"""A start: everything is rebuilt from the store; damage stops the start and names the file."""

from __future__ import annotations

import random

import pytest

from tests.engine.rig import Rig
from weft.errors import StoreDamaged
from weft.proto import wire


def test_queues_settings_and_messages_are_there(rig: Rig) -> None:
    rig.create("other", retention_ms=99_000, max_deliveries=4, dead_letter="dead")
    rig.push("q", b"a", b"b")
    rig.push("other", b"c")
    before = [rig.stats(name).settings for name in ("q", "other", "dead")]
    rig.restart()
    assert [rig.stats(name).settings for name in ("q", "other", "dead")] == before
    assert rig.bodies("q", 5) == [b"a", b"b"]
    assert rig.bodies("other", 5) == [b"c"]


def test_order_is_kept_over_partitions_and_restarts(rig: Rig) -> None:
    for number in range(60):
        rig.push("q", b"%d" % number)
        if number % 20 == 10:
            rig.crash()
    assert len({message.lent.partition for message in rig.peek("q")}) == 4
    assert rig.bodies("q", 100) == [b"%d" % n for n in range(60)]


def test_order_is_kept_where_the_clock_has_gone_back(rig: Rig) -> None:
    rig.push("q", b"first")
    rig.engine.close()
    rig.now -= 3_600_000_000
    rig.engine = rig._start()
    rig.push("q", b"second")
    rig.push("q", b"third")
    assert rig.bodies("q", 5) == [b"first", b"second", b"third"]


def test_a_number_is_never_given_twice(rig: Rig) -> None:
    """A deleted batch leaves its lsn behind: an old receipt never refers to a new batch."""
    seen: set[tuple[int, int]] = set()
    for _ in range(30):
        rig.push("q", b"a")
        message = rig.pop("q")[0]
        rig.ack("q", message)
        rig.crash()
        place = message.lent.partition, message.lent.lsn
        assert place not in seen
        seen.add(place)


def test_leases_are_void_and_the_messages_come_again(rig: Rig) -> None:
    rig.push("q", b"a", b"b", b"c")
    taken = rig.pop("q", 2)
    rig.ack("q", taken[0])
    rig.restart()
    assert rig.counts("q") == (2, 0, 0)
    assert rig.ack("q", taken[1]).lost == [0]
    again = rig.pop("q", 5)
    assert [(m.body, m.deliveries) for m in again] == [(b"b", 1), (b"c", 1)]


def test_bytes_are_counted_again(rig: Rig) -> None:
    rig.push("q", *(b"x" * n for n in range(1, 20)))
    rig.ack("q", *rig.pop("q", 7)[::2])
    before = rig.stats("q").bytes
    rig.restart()
    assert rig.stats("q").bytes == before > 0


def test_payloads_are_read_from_the_store_when_the_cache_is_small() -> None:
    rig = Rig(cache_bytes=0)
    rig.create("q")
    for number in range(10):
        rig.push("q", b"%d.0" % number, b"%d.1" % number)
    assert rig.bodies("q", 3) == [b"0.0", b"0.1", b"1.0"]
    rig.restart()
    assert len(rig.bodies("q", 100)) == 20


def test_a_start_reads_no_payload(rig: Rig) -> None:
    for number in range(5):
        rig.push("q", b"%d" % number)
    read: list[bytes] = []
    rig.engine.close()
    get, scan = rig.store.get, rig.store.scan
    rig.store.get = lambda key: (read.append(key), get(key))[1]  # type: ignore[method-assign, func-returns-value]
    rig.store.scan = lambda start, stop: (read.append(start), scan(start, stop))[1]  # type: ignore[method-assign, func-returns-value]
    rig.engine = rig._start()
    assert read
    assert not [key for key in read if key[:1] == b"b"]


def test_restarted_twice_it_is_the_same(rig: Rig) -> None:
    rig.push("q", b"a", b"b", b"c", dedup_key="k")
    rig.nack("q", *rig.pop("q", 2), delay_ms=9000)
    rig.restart()
    rows = dict(rig.store._rows)
    for _ in range(3):
        rig.crash()
        rig.round()
    assert rig.store._rows == rows


@pytest.mark.parametrize("kind", [b"h", b"q", b"p", b"e"])
def test_a_flipped_bit_stops_the_start_and_names_the_file(rig: Rig, kind: bytes) -> None:
    rig.push("q", b"a", dedup_key="k")
    rig.push("q", b"b")
    rig.ack("q", *rig.pop("q"))
    key = next(key for key in rig.store._rows if key[:1] == kind)
    rng = random.Random(1)
    for _ in range(20):
        store = rig.store.crash()
        store.corrupt(key, rng)
        damaged, rig.store = rig.store, store
        with pytest.raises(StoreDamaged, match=f"memory.*{key.hex()}"):
            rig._start()
        rig.store = damaged.crash()


def test_a_flipped_bit_in_a_payload_ends_the_node_at_the_pop(rig: Rig) -> None:
    rig.push("q", b"a")
    rig.restart()
    key = next(key for key in rig.store._rows if key[:1] == b"b")
    rig.store.corrupt(key, random.Random(2))
    with pytest.raises(StoreDamaged, match=key.hex()):
        rig.engine.handle(wire.Pop("q", 1), (), "someone")


def test_ten_thousand_acked_and_one_that_is_not(rig: Rig) -> None:
    """The store's size follows the live data."""
    rig.checking = False
    rig.push("q", b"the one")
    rig.pop("q", lease_ms=3_600_000)
    empty = rig.store.size_bytes()
    for _ in range(10):
        rig.push("q", *[b"x" * 100] * 1000)
        rig.ack("q", *rig.pop("q", 1000))
    rig.check()
    assert rig.store.size_bytes() < empty + 1000, "ten small dedup records"
    state = rig.engine.state
    assert len(state.touched) == 1
    assert len(state.payloads._whole) == 1, "memory follows too"
    assert len(state.payloads._columns) == len(state.recent) == 0
    rig.restart()
    assert rig.bodies("q", 10) == [b"the one"]

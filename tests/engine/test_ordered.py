"""Ordered queues: first in, first out, one lot at a time, and leases that survive."""

from __future__ import annotations

import pytest

from tests.engine.rig import Rig, Taken
from weft.errors import InvalidArgument
from weft.proto import wire

LEASE_MS = 2_000


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.create("q", lease_ms=LEASE_MS, ordered=True)
    return rig


def bodies(taken: list[Taken]) -> list[bytes]:
    return [each.body for each in taken]


def test_all_of_it_is_on_one_partition_in_the_order_of_its_pushes(rig: Rig) -> None:
    places = {rig.push("q", b"%d" % number).partition for number in range(20)}
    assert len(places) == 1
    taken = rig.pop("q", 50)
    assert bodies(taken) == [b"%d" % number for number in range(20)]


def test_nothing_more_is_lent_before_the_lot_is_settled(rig: Rig) -> None:
    rig.push("q", b"a", b"b", b"c", b"d")
    first = rig.pop("q", 2)
    assert bodies(first) == [b"a", b"b"]
    assert not rig.pop("q", 2)
    rig.ack("q", first[0])
    assert not rig.pop("q", 2), "one of the lot is still out"
    rig.ack("q", first[1])
    assert bodies(rig.pop("q", 2)) == [b"c", b"d"]


def test_what_comes_back_comes_first(rig: Rig) -> None:
    rig.push("q", b"a", b"b", b"c")
    first = rig.pop("q", 2)
    rig.nack("q", first[1])
    rig.ack("q", first[0])
    assert bodies(rig.pop("q", 3)) == [b"b", b"c"]
    rig.advance(LEASE_MS + 1)
    assert bodies(rig.pop("q", 3)) == [b"b", b"c"], "the lease has run out"


def test_a_waiting_pop_is_served_when_the_lot_is_settled(rig: Rig) -> None:
    rig.push("q", b"a", b"b")
    first = rig.pop("q", 1)
    token = rig.ask(wire.Pop("q", 1, 60_000))
    assert rig.answer(token) is None
    rig.ack("q", first[0])
    assert rig.answer(token) is not None


@pytest.mark.parametrize("crashes", [False, True])
def test_a_lease_survives_a_restart(rig: Rig, crashes: bool) -> None:
    rig.push("q", b"a", b"b", b"c")
    first = rig.pop("q", 2)
    rig.ack("q", first[0])
    (rig.crash if crashes else rig.restart)()
    assert not rig.pop("q", 3), "b is still lent"
    rig.ack("q", first[1])
    assert bodies(rig.pop("q", 3)) == [b"c"]


def test_the_time_of_a_lease_that_survived_begins_anew(rig: Rig) -> None:
    rig.push("q", b"a", b"b")
    rig.pop("q", 1)
    rig.advance(LEASE_MS - 1)
    rig.restart()
    assert not rig.pop("q", 1)
    rig.advance(LEASE_MS - 1)
    assert not rig.pop("q", 1), "its answer may have gone out just before"
    rig.advance(2)
    assert bodies(rig.pop("q", 2)) == [b"a", b"b"]


def test_a_lease_survives_on_a_node_that_hears_of_the_queue_later(rig: Rig) -> None:
    """The next primary may be new, and have the messages before the queue's record."""
    rig.push("q", b"a", b"b", b"c")
    rig.push("q", b"d")
    taken = rig.pop("q", 2)
    engine, state = rig.engine, rig.engine.state
    partitions = set(range(state.partitions))
    engine.abandon(partitions | {state.catalogue})
    engine.learn_queue(b"qq", None)
    engine.adopt(partitions)
    assert not state.leases.by_nonce
    engine.learn_queue(b"qq", rig.store.get(b"qq"))
    assert not rig.pop("q", 4), "two of it are out"
    rig.ack("q", *taken)
    assert bodies(rig.pop("q", 4)) == [b"c", b"d"]


def test_a_purge_leaves_no_lease(rig: Rig) -> None:
    rig.push("q", b"a", b"b")
    rig.pop("q", 1)
    rig.purge("q")
    rig.settle()
    rig.push("q", b"c")
    assert bodies(rig.pop("q", 5)) == [b"c"]
    assert sum(key[:1] == b"o" for key in rig.store._rows) == 1
    rig.restart()
    assert not rig.pop("q", 5)


def test_no_delays_and_no_priorities(rig: Rig) -> None:
    with pytest.raises(InvalidArgument, match="ordered"):
        rig.push("q", b"a", delay_ms=5)
    with pytest.raises(InvalidArgument, match="ordered"):
        rig.push("q", b"a", priority=1)
    rig.push("q", b"a")
    taken = rig.pop("q", 1)
    with pytest.raises(InvalidArgument, match="ordered"):
        rig.nack("q", taken[0], delay_ms=5)
    with pytest.raises(InvalidArgument, match="cannot be changed after creation"):
        rig.update("q", ordered=False)

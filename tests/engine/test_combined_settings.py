"""Settings together: limits with multicasts and kept leases, tenants in a stochastic queue."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.engine.test_multicast import Fan
from weft.errors import QueueFull
from weft.proto import wire

from .rig import Rig

SECOND_US = 1_000_000


# --- limits and multicasts --------------------------------------------------------------------


def test_copies_of_a_multicast_are_leased_within_the_limit_of_their_queue() -> None:
    rig = Fan()
    rig.create("limited", max_in_flight=2)
    rig.create("free")
    for number in range(3):
        rig.multicast(["limited", "free"], [b"%d-%d" % (number, each) for each in range(2)])
    assert len(rig.pop("free", 100)) == 6, "the limit is on one queue alone"
    first = rig.pop("limited", 100)
    assert len(first) == 2
    assert rig.pop("limited", 100) == []
    waiting = rig.ask(wire.Pop("limited", 100, 5_000))
    rig.ack("limited", first[0])
    answered = rig.answer(waiting)
    assert answered is not None
    assert isinstance(answered.answer, wire.Popped)
    assert sum(lent.count for lent in answered.answer.lent) == 1
    assert rig.stats("limited").leased == 2
    assert rig.stats("free").leased == 6


def test_copies_of_a_multicast_are_delivered_at_the_rate_of_their_queue() -> None:
    rig = Fan()
    rig.create("limited", rate_limit=10)
    rig.create("free")
    rig.multicast(["limited", "free"], [b"%d" % number for number in range(50)])
    assert len(rig.bodies("free", 100)) == 50
    got: list[bytes] = []
    for _ in range(20):
        got += rig.bodies("limited", 100)
        rig.now += SECOND_US // 10
    assert 19 <= len(got) <= 21, "10 a second for two seconds"
    assert got == [b"%d" % number for number in range(len(got))]


def test_a_full_destination_of_a_multicast_leaves_the_limited_one_unchanged() -> None:
    rig = Fan()
    rig.create("limited", max_in_flight=1)
    rig.create("full", max_messages=1)
    rig.push("full", b"x")
    with pytest.raises(QueueFull):
        rig.multicast(["limited", "full"], [b"a"])
    assert rig.pop("limited", 1) == []
    rig.multicast(["limited"], [b"b"])
    assert rig.bodies("limited") == [b"b"]


# --- limits and kept leases -------------------------------------------------------------------


def test_kept_leases_count_against_the_limit_after_a_crash() -> None:
    rig = Rig()
    rig.create("kept", keep_leases=True, max_in_flight=3, lease_ms=10_000)
    rig.push("kept", *[b"%d" % number for number in range(10)])
    held = rig.pop("kept", 3)
    assert len(held) == 3
    rig.crash()
    assert rig.pop("kept", 10) == [], "the three leases live on, and are the limit"
    rig.ack("kept", held[0])
    (more,) = rig.pop("kept", 10)
    assert more.deliveries == 1
    assert rig.stats("kept").leased == 3
    rig.advance(10_001)
    rig.crash()
    again = rig.pop("kept", 10)
    assert len(again) == 3, "ended leases make room, also over a restart"
    assert rig.counts("kept")[1] == 3


def test_redeliveries_of_kept_leases_are_in_the_rate() -> None:
    rig = Rig()
    rig.create("kept", keep_leases=True, rate_limit=10, lease_ms=1_000)
    rig.push("kept", b"a")
    assert rig.bodies("kept") == [b"a"]
    for deliveries in (2, 3):
        rig.crash()
        rig.advance(1_001)
        (message,) = rig.pop("kept", 10)
        assert message.deliveries == deliveries
        assert rig.pop("kept", 10) == []


# --- tenants in a stochastic queue ------------------------------------------------------------


def stochastic(buffers: int = 300) -> Rig:
    rig = Rig()
    rig.create("events", kind="stochastic", buffers=buffers, max_hops=3, access="rates")
    return rig


def test_tenants_of_a_stochastic_queue_take_turns() -> None:
    rig = stochastic()
    for start in range(0, 200, 50):
        rig.push("events", *[b"large-%d" % (start + each) for each in range(50)], tenant="large")
    for number in range(20):
        rig.push("events", b"small-%d" % number, tenant="small")
    first = Counter(body.split(b"-")[0] for _ in range(80) for body in rig.bodies("events"))
    assert first[b"small"] == 20, "the small tenant's messages come among the first 80"
    rest = [body for _ in range(140) for body in rig.bodies("events")]
    assert sum(first.values()) + len(rest) == 220
    assert rig.bodies("events") == []


def test_the_buffer_of_a_node_is_one_for_all_tenants() -> None:
    """A bounded buffer pushes back on producers, whichever tenant they push for."""
    rig = stochastic(buffers=4)
    rig.push("events", b"a", b"b", tenant="one")
    rig.push("events", b"c", b"d", tenant="two")
    for tenant in ("one", "two", "three"):
        with pytest.raises(QueueFull):
            rig.push("events", b"x", tenant=tenant)
    token = rig.ask(wire.Room("events", 0, 7, 99, 1, 5_000))
    assert rig.answer(token) is None
    (message,) = rig.pop("events", 1)
    answered = rig.answer(token)
    assert answered is not None
    assert answered.answer == wire.Done(1), "a pop makes room for the producer that waits"
    rig.nack("events", message)
    assert rig.stats("events").ready == 4
    rig.crash()
    with pytest.raises(QueueFull):
        rig.push("events", b"x", tenant="three")
    served = [body for _ in range(4) for body in rig.bodies("events")]
    assert sorted(served) == [b"a", b"b", b"c", b"d"]
    assert rig.bodies("events") == []


def test_each_answer_to_a_tenants_consumer_reports_to_the_probes() -> None:
    rig = stochastic()
    rig.push("events", b"a", tenant="one")
    for _ in range(2):
        answered = rig.send(wire.Pop("events", 1))
        assert isinstance(answered.answer, wire.Popped)
        assert answered.answer.probe is not None
    stats = rig.stats("events")
    assert (stats.probes, stats.empty_probes) == (2, 1)

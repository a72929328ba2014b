"""rate_limit and max_in_flight on one node, and the parts of several nodes."""

from __future__ import annotations

import pytest

from weft.errors import InvalidArgument
from weft.proto import wire
from weft.server.engine.queue_limits import TURN_US, ClusterPart

from .rig import Rig, Taken, messages_of

SECOND_US = 1_000_000


def taken(rig: Rig, token: object) -> list[Taken]:
    """The messages of a waiting pop that has been answered."""
    answered = rig.answer(token)
    assert answered is not None, "the pop still waits"
    return messages_of(answered.answer, answered.payload)


def test_pops_get_messages_at_the_rate(rig: Rig) -> None:
    rig.create("limited", rate_limit=100)
    rig.push("limited", *[b"x"] * 1000)
    got = []
    for _ in range(50):
        got.append(len(rig.pop("limited", 1000)))
        rig.now += SECOND_US // 10
    # 5 s at 100 a second; at most a tenth of a second is saved.
    assert 490 <= sum(got) <= 511
    assert max(got) <= 11


def test_a_pause_saves_a_tenth_of_a_second(rig: Rig) -> None:
    rig.create("limited", rate_limit=100)
    rig.push("limited", *[b"x"] * 1000)
    rig.now += 100 * SECOND_US
    assert len(rig.pop("limited", 1000)) == 10


def test_a_waiting_pop_is_served_when_the_rate_admits_it(rig: Rig) -> None:
    rig.create("limited", rate_limit=2)
    rig.push("limited", *[b"x"] * 3)
    assert len(rig.pop("limited", 10)) == 1
    assert rig.pop("limited", 10) == []
    waiting = rig.ask(wire.Pop("limited", 10, 5_000))
    assert rig.answer(waiting) is None
    rig.advance(500)
    assert len(taken(rig, waiting)) == 1
    again = rig.ask(wire.Pop("limited", 10, 5_000))
    rig.advance(1_000)
    assert len(taken(rig, again)) == 1


def test_a_redelivery_counts_for_the_rate(rig: Rig) -> None:
    rig.create("limited", rate_limit=1)
    rig.push("limited", b"x")
    (message,) = rig.pop("limited", 1)
    rig.nack("limited", message)
    assert rig.pop("limited", 1) == []
    rig.now += SECOND_US
    assert len(rig.pop("limited", 1)) == 1


def test_max_in_flight_bounds_the_leases(rig: Rig) -> None:
    rig.create("limited", max_in_flight=3)
    rig.push("limited", *[b"x"] * 10)
    first = rig.pop("limited", 2)
    second = rig.pop("limited", 10)
    assert (len(first), len(second)) == (2, 1)
    assert rig.pop("limited", 10) == []
    waiting = rig.ask(wire.Pop("limited", 10, 5_000))
    rig.ack("limited", first[0])
    assert len(taken(rig, waiting)) == 1
    assert rig.stats("limited").leased == 3


def test_an_expired_lease_makes_room(rig: Rig) -> None:
    rig.create("limited", max_in_flight=1, lease_ms=1_000)
    rig.push("limited", b"a", b"b")
    assert len(rig.pop("limited", 10)) == 1
    waiting = rig.ask(wire.Pop("limited", 10, 5_000))
    rig.advance(1_001)
    assert len(taken(rig, waiting)) == 1


@pytest.mark.parametrize("kind", ["ordered", "grouped"])
def test_ordered_and_grouped_queues_have_limits(rig: Rig, kind: str) -> None:
    rig.create("limited", max_in_flight=2, rate_limit=10, **{kind: True})
    rig.push("limited", *[b"x"] * 5, group="g" if kind == "grouped" else None)
    first = rig.pop("limited", 10)
    # The saved message of the rate, then nothing until the lot is settled and the rate admits more.
    assert len(first) == 1
    rig.now += SECOND_US
    assert rig.pop("limited", 10) == []
    rig.ack("limited", first[0])
    assert len(rig.pop("limited", 10)) == 1
    rig.now += SECOND_US
    assert rig.pop("limited", 10) == []


def test_an_update_takes_effect_at_once(rig: Rig) -> None:
    rig.create("limited", max_in_flight=1)
    rig.push("limited", *[b"x"] * 10)
    assert len(rig.pop("limited", 10)) == 1
    waiting = rig.ask(wire.Pop("limited", 4, 5_000))
    rig.update("limited", max_in_flight=0)
    assert len(taken(rig, waiting)) == 4
    rig.update("limited", max_in_flight=5)
    assert rig.pop("limited", 10) == []


@pytest.mark.parametrize("name", ["rate_limit", "max_in_flight", "share"])
@pytest.mark.parametrize("wrong", [-1, 1 << 50])
def test_bad_limits_change_nothing(rig: Rig, name: str, wrong: int) -> None:
    rig.create("limited")
    with pytest.raises(InvalidArgument, match=name):
        rig.update("limited", **{name: wrong})
    assert not rig.stats("limited").settings.has_limits


class Parts:
    """The parts of several nodes."""

    def __init__(self, leads: list[int]) -> None:
        self.nodes = []
        for place in range(len(leads)):
            state = Rig(partitions=sum(leads)).engine.state
            part = ClusterPart(state)
            part.divide(leads, place)
            self.nodes.append(part)

    def whole(self, limit: int, turn: int = 0) -> list[int]:
        return [part.whole(limit, turn) for part in self.nodes]


@pytest.mark.parametrize("leads", [[22, 21, 21], [64, 0, 0], [1, 63], [13] * 5, [30, 1, 3]])
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 10, 64, 1000, 12345])
def test_the_parts_add_up_to_the_limit(leads: list[int], limit: int) -> None:
    parts = Parts(leads)
    for turn in (0, 1, 7, 100):
        assert sum(parts.whole(limit, turn)) == limit
    exact = [limit * led / sum(leads) for led in leads]
    assert all(abs(found - part) < 1 for found, part in zip(parts.whole(limit), exact, strict=True))


def test_small_limits_go_round() -> None:
    parts = Parts([22, 21, 21])
    assert parts.nodes[0].takes_turns(1)
    assert not parts.nodes[0].takes_turns(3)
    turns = [parts.whole(1, turn) for turn in range(64)]
    assert all(sum(each) == 1 for each in turns)
    assert [sum(column) for column in zip(*turns, strict=True)] == [22, 21, 21]


def test_a_node_with_a_part_of_nothing_gets_its_turn(rig: Rig) -> None:
    """A limit of 1 on two nodes: this node lends in its turns, and only then."""
    rig.create("limited", max_in_flight=1, lease_ms=1_000)
    rig.engine.shares.divide([2, 2], 0)
    rig.push("limited", *[b"x"] * 4)
    got = []
    start = (rig.now // TURN_US + 1) * TURN_US
    for turn in range(8):
        rig.advance((start + turn * TURN_US - rig.now) // 1000 + 1)
        messages = rig.pop("limited", 10)
        got.append(len(messages))
        for message in messages:
            rig.nack("limited", message)
    assert sum(got) == 4
    assert max(got) == 1

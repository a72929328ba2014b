"""Stochastic queues on one node: bounded buffers, waits for room, reports to consumers."""

from __future__ import annotations

import pytest

from tests.engine.rig import Rig
from weft import limits
from weft.errors import InvalidArgument, Overloaded, QueueFull
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.engine.node_buffer import RATE_US, ROOM_KEPT_US

Changes = dict[str, int | str | bool]
KIND: Changes = {
    "kind": "stochastic",
    "buffers": 4,
    "max_hops": 3,
    "access": "rates",
}


@pytest.fixture
def events(rig: Rig) -> Rig:
    rig.create("events", lease_ms=10_000, **KIND)
    return rig


def room(
    rig: Rig, batch: int, count: int = 1, wait_ms: int = 5_000, queue: str = "events"
) -> object:
    return rig.ask(wire.Room(queue, 0, 7, batch, count, wait_ms))


def given(rig: Rig, token: object) -> int | None:
    """1: room is kept; 0: the wait is over; None: the producer still waits."""
    answered = rig.answer(token)
    if answered is None:
        return None
    assert isinstance(answered.answer, wire.Done), answered.answer
    return answered.answer.count


def fill(rig: Rig, count: int = 4) -> None:
    rig.push("events", *[b"x"] * count)


# --- settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kind": "fast"}, "kind must be"),
        ({"buffers": 0}, "buffers must be 1 to"),
        ({"max_hops": 0}, "max_hops must be 1 to"),
        ({"access": "far"}, "access must be one of even, rates, near"),
        ({"access": ""}, "access must be one of"),
        ({"ordered": True}, "neither ordered nor grouped"),
        ({"keep_leases": True}, "keeps no leases"),
        ({"kind": ""}, "is a setting of stochastic queues"),
    ],
)
def test_a_bad_setting_creates_nothing(rig: Rig, changes: Changes, says: str) -> None:
    before = dict(rig.store._rows)
    settings = Settings(**(KIND | changes))  # type: ignore[arg-type]
    create = wire.CreateStochasticQueue if settings.stochastic else wire.CreateQueue
    with pytest.raises(InvalidArgument, match=says):
        rig.call(create("new", settings))
    assert rig.store._rows == before


def test_the_plain_request_creates_no_stochastic_queue(rig: Rig) -> None:
    """An older node would understand the plain request, and ignore the kind."""
    with pytest.raises(InvalidArgument, match="create_stochastic_queue"):
        rig.call(wire.CreateQueue("new", Settings(**KIND)))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="create_stochastic_queue"):
        rig.call(wire.CreateStochasticQueue("new", Settings()))


def test_the_kind_stays_and_its_settings_change(events: Rig) -> None:
    with pytest.raises(InvalidArgument, match="kind of events cannot be changed"):
        events.update("events", kind="", buffers=0, max_hops=0, access="")
    with pytest.raises(InvalidArgument, match="kind of q cannot be changed"):
        events.update("q", **KIND)
    with pytest.raises(InvalidArgument, match="max_hops must be"):
        events.update("events", max_hops=0)
    events.update("events", buffers=9, max_hops=1, access="even")
    fill(events, 9)


# --- the buffer -------------------------------------------------------------------------------


def test_a_full_buffer_refuses_and_a_pop_makes_room(events: Rig) -> None:
    fill(events, 3)
    events.push("events", b"4")
    with pytest.raises(QueueFull, match="4 ready messages and keeps room for 0"):
        events.push("events", b"5")
    assert events.stats("events").full_buffers >= 1
    assert len(events.pop("events", 1)) == 1
    events.push("events", b"5")


def test_a_batch_is_admitted_as_a_whole(events: Rig) -> None:
    fill(events, 2)
    with pytest.raises(QueueFull):
        events.push("events", *[b"x"] * 3)
    events.pop("events", 2)
    events.push("events", *[b"x"] * 9)  # larger than the bound: into an empty buffer alone
    with pytest.raises(QueueFull):
        events.push("events", b"x")


def test_a_resent_push_of_a_stored_batch_is_no_new_message(events: Rig) -> None:
    first = events.push("events", *[b"x"] * 4, batch=5)
    assert events.push("events", *[b"x"] * 4, batch=5) == wire.Pushed(
        first.partition, first.producer, 5, 4, True, "disk", kind="stochastic"
    )


def test_messages_that_come_back_are_kept_over_the_bound(events: Rig) -> None:
    fill(events)
    taken = events.pop("events", 4)
    fill(events)
    events.nack("events", *taken)
    assert events.counts("events") == (8, 0, 0)
    with pytest.raises(QueueFull):
        events.push("events", b"x")


def test_a_restart_finds_the_buffer_full(events: Rig) -> None:
    fill(events)
    events.crash()
    with pytest.raises(QueueFull):
        events.push("events", b"x")


# --- waits for room ---------------------------------------------------------------------------


def test_room_is_given_in_order_when_messages_are_lent(events: Rig) -> None:
    fill(events)
    first, second, third = room(events, 1, 2), room(events, 2), room(events, 3)
    assert [given(events, each) for each in (first, second, third)] == [None, None, None]
    events.pop("events", 1)
    # One message fits, and the batch in front has two: nobody overtakes.
    assert [given(events, each) for each in (first, second, third)] == [None, None, None]
    events.pop("events", 2)
    assert given(events, first) == 1
    assert given(events, second) == 1
    assert given(events, third) is None


def test_kept_room_is_for_its_batch_alone(events: Rig) -> None:
    fill(events)
    waiting = room(events, 1)
    events.pop("events", 1)
    assert given(events, waiting) == 1
    with pytest.raises(QueueFull):
        events.push("events", b"other", batch=2)
    events.push("events", b"mine", batch=1)
    assert events.counts("events")[0] == 4


def test_kept_room_is_for_as_many_messages_as_were_named(events: Rig) -> None:
    fill(events)
    waiting = room(events, 1)
    events.pop("events", 1)
    assert given(events, waiting) == 1
    with pytest.raises(QueueFull):
        events.push("events", b"one", b"two", batch=1)
    assert given(events, room(events, 1, 2, wait_ms=0)) == 0, "nor is it for a larger batch"
    events.push("events", b"one", batch=1)
    assert events.counts("events")[0] == 4, "the refusal has left the room to its batch"


def test_a_push_does_not_overtake_waiting_producers(events: Rig) -> None:
    fill(events)
    waiting = room(events, 1, 3)
    events.pop("events", 2)
    with pytest.raises(QueueFull):
        events.push("events", b"small")
    events.pop("events", 1)
    assert given(events, waiting) == 1


def test_kept_room_that_is_not_used_goes_to_the_next(events: Rig) -> None:
    fill(events)
    first, second = room(events, 1), room(events, 2)
    events.pop("events", 1)
    assert given(events, first) == 1
    assert given(events, second) is None
    assert events.engine.next_due() <= events.now + ROOM_KEPT_US
    events.advance(ROOM_KEPT_US // 1000 + 1)
    assert given(events, second) == 1


def test_a_wait_ends_with_nothing(events: Rig) -> None:
    fill(events)
    waiting = room(events, 1, wait_ms=300)
    assert given(events, room(events, 2, wait_ms=0)) == 0
    assert events.engine.next_due() <= events.now + 300_000
    events.advance(301)
    assert given(events, waiting) == 0
    assert 300_000 <= events.stats("events").room_wait_us < 400_000


def test_room_is_given_at_once_when_there_is_some(events: Rig) -> None:
    assert given(events, room(events, 1, 4)) == 1
    with pytest.raises(QueueFull):
        events.push("events", b"x", batch=2)
    assert given(events, room(events, 1, 4)) == 1  # resent


def test_a_departed_producer_does_not_hold_up_the_line(events: Rig) -> None:
    fill(events)
    gone, other = room(events, 1, 4), room(events, 2)
    events.engine.cancel(gone)
    events.pop("events", 1)
    assert given(events, other) == 1
    assert given(events, gone) is None


def test_a_purge_makes_room_and_a_delete_fails_the_waits(events: Rig) -> None:
    fill(events)
    first = room(events, 1, 3)
    events.purge("events")
    assert given(events, first) == 1
    second = room(events, 2, 4)
    events.delete("events")
    answered = events.answer(second)
    assert answered is not None
    assert isinstance(answered.answer, wire.Failure)
    assert answered.answer.code == "QUEUE_NOT_FOUND"
    assert not events.engine.state.rooms


def test_a_stopping_node_ends_the_waits(events: Rig) -> None:
    fill(events)
    waiting = room(events, 1)
    events.restart()
    assert given(events, waiting) == 0


def test_bad_room_requests(events: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match="q is not stochastic"):
        events.call(wire.Room("q", 0, 7, 1))
    with pytest.raises(InvalidArgument, match="count must be"):
        events.call(wire.Room("events", 0, 7, 1, 0))
    with pytest.raises(InvalidArgument, match="wait_ms must be"):
        events.call(wire.Room("events", 0, 7, 1, 1, -1))
    fill(events)
    room(events, 1)
    monkeypatch.setattr(limits, "ROOM_WAITS_MAX", 1)
    with pytest.raises(Overloaded):
        events.call(wire.Room("events", 0, 7, 2, 1, 100))


# --- consumers --------------------------------------------------------------------------------


def test_each_answer_reports_rate_and_settings(events: Rig) -> None:
    answered = events.send(wire.Pop("events", 1))
    assert answered.answer == wire.Popped([], probe=wire.ProbeReport(0.0, 3, "rates"))
    for _ in range(40):  # 4 messages in 100 ms, for two time constants
        fill(events)
        events.pop("events", 4)
        events.advance(100)
    answered = events.send(wire.Pop("events", 1))
    assert isinstance(answered.answer, wire.Popped)
    report = answered.answer.probe
    assert report is not None
    assert report.rate == pytest.approx(40 * (1 - 2.718 ** -(4_000_000 / RATE_US)), rel=0.06)
    fill(events)
    assert events.send(wire.Pop("events", 1)).answer.probe is not None  # type: ignore[attr-defined]
    assert events.send(wire.Pop("q", 1)).answer.probe is None  # type: ignore[attr-defined]


def test_probes_are_counted(events: Rig) -> None:
    events.pop("events")
    waiting = events.ask(wire.Pop("events", 1, 700))
    events.advance(200)
    fill(events, 1)
    assert events.answer(waiting) is not None
    fill(events, 1)
    events.pop("events")
    stats = events.stats("events")
    assert (stats.probes, stats.empty_probes, stats.blocked_pops) == (3, 2, 1)
    assert 200_000 <= stats.blocked_us < 300_000
    assert events.stats("q").probes == 0


def test_a_stochastic_queue_has_no_metadata_list(events: Rig) -> None:
    fill(events)
    assert events.engine.ready.count("events") == 0
    assert "events" not in events.engine.ready.names()


def test_dead_letters_cancel_peek_and_delays_work_as_in_other_queues(rig: Rig) -> None:
    rig.create("events", max_deliveries=1, dead_letter="dead", **KIND)
    pushed = rig.push("events", b"a", b"b")
    assert [each.body for each in rig.peek("events")] == [b"a", b"b"]
    assert rig.cancel("events", pushed, 0) == 1
    (taken,) = rig.pop("events")
    rig.nack("events", taken)
    assert rig.bodies("dead") == [b"b"]
    rig.push("events", b"later", delay_ms=500)
    assert rig.counts("events") == (0, 0, 1)
    rig.advance(501)
    assert rig.bodies("events") == [b"later"]
    assert rig.push("events", b"k", dedup_key="k").kind == "stochastic"
    assert rig.push("events", b"k", dedup_key="k").duplicate

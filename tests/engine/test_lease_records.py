"""Lease records: written by a primary before a planned move, adopted by the next primary."""

from __future__ import annotations

import pytest

from tests.engine.rig import Rig, Taken
from weft.persistence import layout
from weft.proto import wire
from weft.server.engine import lease, lease_records

LEASE_MS = 10_000


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.create("dead")
    rig.create("q", lease_ms=LEASE_MS, max_deliveries=2, dead_letter="dead")
    return rig


def record(rig: Rig) -> None:
    """Record the leases of all partitions, as before a hand-over."""
    partitions = set(range(rig.engine.state.partitions))
    rig.engine.recorded_leases.begin(partitions)
    while not all(map(rig.engine.recorded_leases.complete, partitions)):
        rig.round()
    rig.round()


def move(rig: Rig) -> None:
    """Record the leases, and let the next primary adopt the store."""
    record(rig)
    rig.restart()


def rows(rig: Rig, kind: bytes) -> int:
    return sum(key[:1] == kind for key in rig.store._rows)


def settled(done: int = 0, already: int = 0, lost: int = 0) -> wire.Settled:
    return wire.Settled(done, already, list(range(lost)))


def test_nothing_is_written_for_a_pop_of_a_partition_that_is_not_recorded(rig: Rig) -> None:
    rig.push("q", b"a", b"b")
    before = dict(rig.store._rows)
    rig.pop("q", 1)
    assert rig.store._rows == before


def test_a_receipt_stays_valid_and_nothing_is_delivered_again(rig: Rig) -> None:
    rig.push("q", b"a", b"b", b"c")
    taken = rig.pop("q", 2)
    move(rig)
    assert rig.counts("q") == (1, 2, 0)
    assert rig.bodies("q", 5) == [b"c"]
    assert rig.ack("q", *taken) == settled(done=2)
    assert rows(rig, layout.LEASE) == 0, "the record went with the lease"


def test_without_a_record_the_messages_are_delivered_again(rig: Rig) -> None:
    """As after a crash."""
    rig.push("q", b"a")
    taken = rig.pop("q", 1)
    rig.restart()
    assert rig.ack("q", *taken) == settled(lost=1)
    assert rig.bodies("q", 5) == [b"a"]


def test_leases_granted_changed_and_ended_while_recorded_move_as_they_are(rig: Rig) -> None:
    rig.push("q", *[b"%d" % number for number in range(6)])
    old = rig.pop("q", 3)
    record(rig)
    new = rig.pop("q", 3)
    rig.ack("q", old[0], new[0])
    rig.nack("q", new[1], delay_ms=60_000)
    rig.restart()
    assert rig.counts("q") == (0, 3, 1)
    assert rig.ack("q", old[0], new[0]) == settled(already=2), "a retry of what was acked before"
    assert rig.nack("q", new[1]) == settled(already=1)
    assert rig.ack("q", new[1]) == settled(lost=1)
    assert rig.ack("q", old[1], old[2], new[2]) == settled(done=3)


@pytest.mark.parametrize("before", [True, False], ids=["before", "while recorded"])
def test_an_ack_that_is_retried_after_the_move_is_known(rig: Rig, before: bool) -> None:
    rig.push("q", b"a", b"b")
    taken = rig.pop("q", 2)
    if before:
        rig.ack("q", *taken)
    record(rig)
    if not before:
        rig.ack("q", *taken)
    rig.restart()
    assert rig.ack("q", *taken) == settled(already=2)
    rig.restart()
    assert rig.ack("q", *taken) == settled(already=2), "after the next move, too"


def test_of_an_ordered_queue_too(rig: Rig) -> None:
    rig.create("line", lease_ms=LEASE_MS, ordered=True)
    rig.push("line", b"a", b"b", b"c")
    part, whole = rig.pop("line", 2), None
    rig.ack("line", part[0])
    move(rig)
    assert rig.ack("line", part[0]) == settled(already=1)
    assert rig.ack("line", part[1]) == settled(done=1)
    whole = rig.pop("line", 1)
    rig.ack("line", *whole)
    move(rig)
    assert rig.ack("line", *whole) == settled(already=1)


def test_ended_leases_are_forgotten_in_time(rig: Rig) -> None:
    rig.push("q", b"a")
    rig.ack("q", *rig.pop("q", 1))
    move(rig)
    assert rows(rig, layout.ENDED) == 1
    rig.advance(lease.ENDED_US // 1000 + 60_000)
    rig.advance(60_000)
    assert rows(rig, layout.ENDED) == 0


def test_the_time_goes_on_where_it_was(rig: Rig) -> None:
    rig.push("q", b"a")
    rig.pop("q", 1)
    rig.advance(LEASE_MS - 1000)
    move(rig)
    assert not rig.bodies("q")
    rig.advance(900)
    assert not rig.bodies("q")
    rig.advance(200)
    (again,) = rig.pop("q", 1)
    assert again.deliveries == 2


def test_a_clock_that_is_ahead_does_not_end_a_lease(rig: Rig) -> None:
    rig.push("q", b"a")
    taken = rig.pop("q", 1)
    record(rig)
    rig.now += 3_600_000_000  # the next primary's clock
    rig.crash()
    assert not rig.bodies("q")
    assert rig.ack("q", *taken) == settled(done=1)


def test_a_lease_is_extended_after_the_move(rig: Rig) -> None:
    rig.push("q", b"a")
    taken = rig.pop("q", 1)
    move(rig)
    rig.advance(LEASE_MS - 1000)
    assert rig.extend("q", LEASE_MS, *taken) == settled(done=1)
    rig.advance(LEASE_MS - 1000)
    assert rig.ack("q", *taken) == settled(done=1)


def test_deliveries_are_counted_as_without_a_move(rig: Rig) -> None:
    rig.push("q", b"a")
    for deliveries in (1, 2):
        (taken,) = rig.pop("q", 1)
        assert taken.deliveries == deliveries
        move(rig)
        move(rig)
        assert not rig.bodies("dead")
        rig.nack("q", taken)
    assert rig.bodies("dead") == [b"a"]
    assert not rig.bodies("q")


def test_a_dead_letter_that_is_lent_moves_too(rig: Rig) -> None:
    rig.push("q", b"a")
    for _ in range(2):
        rig.nack("q", *rig.pop("q", 1))
    taken = rig.pop("dead", 1)
    move(rig)
    assert rig.counts("dead") == (0, 1, 0)
    assert rig.ack("dead", *taken) == settled(done=1)
    rig.settle()
    assert rows(rig, layout.HEAD) == 0


def test_a_lease_whose_answer_may_not_have_left_runs_out_uncounted(rig: Rig) -> None:
    """Granted while the partition was being recorded; the answer left after the record."""
    rig.push("q", b"a", b"b")
    record(rig)
    unused, used = rig.pop("q", 1), rig.pop("q", 1)
    rig.extend("q", LEASE_MS, *used)
    rig.restart()
    rig.advance(LEASE_MS + 1)
    deliveries = {each.body: each.deliveries for _ in range(2) for each in rig.pop("q", 1)}
    assert deliveries == {unused[0].body: 1, used[0].body: 2}


@pytest.mark.parametrize("plan", ["moved", "given up"])
def test_an_ordered_lot_whose_answer_was_held_back_runs_out_uncounted(rig: Rig, plan: str) -> None:
    """An ordered lot whose answer was held back expires uncounted.

    The lot's record is older than the move, and does not say whether the answer left. Without a
    move this is unknown, and the lot counts.
    """
    rig.create("line", lease_ms=LEASE_MS, ordered=True)
    rig.push("line", b"a")
    taken = rig.pop("line", 1)
    rig.engine.hold([each.lent for each in taken])
    rig.advance(10)
    record(rig)
    if plan == "given up":
        rig.engine.recorded_leases.end(set(range(rig.engine.state.partitions)))
        rig.round()
    rig.restart()
    rig.advance(LEASE_MS + 1)
    assert [each.deliveries for each in rig.pop("line", 1)] == [1 + (plan == "given up")]


def test_given_back_uncounted_after_the_move(rig: Rig) -> None:
    """The lease's answer was never sent."""
    rig.push("q", b"a")
    taken = rig.pop("q", 1)
    move(rig)
    assert rig.nack("q", *taken, counted=False) == settled(done=1)
    assert [each.deliveries for each in rig.pop("q", 1)] == [1]


@pytest.mark.parametrize("verb", ["purge", "delete"])
@pytest.mark.parametrize("moved", [True, False])
def test_a_queue_that_is_emptied_takes_its_records_with_it(
    rig: Rig, verb: str, moved: bool
) -> None:
    rig.push("q", b"a", b"b")
    taken = rig.pop("q", 1)
    move(rig) if moved else record(rig)
    getattr(rig, verb)("q")
    rig.settle()
    rig.round()
    assert rows(rig, layout.LEASE) == 0
    rig.restart()
    if verb == "delete":
        rig.create("q", lease_ms=LEASE_MS)
    rig.push("q", b"c")
    assert rig.ack("q", *taken) == settled(lost=1)
    assert rig.bodies("q", 5) == [b"c"]


def test_emptied_where_the_next_primary_finds_the_records(rig: Rig) -> None:
    """The sweep of the queue had no time to begin."""
    rig.push("q", b"a")
    rig.pop("q", 1)
    record(rig)
    rig.engine.begin(rig.now)
    rig.engine.handle(wire.PurgeQueue("q"), (), "x")
    changes = [each for each in rig.engine.end() if each[0][:1] == layout.QUEUE]
    rig.store.write(changes, sync=True)
    rig.crash()
    rig.settle()
    assert rows(rig, layout.LEASE) == rows(rig, layout.HEAD) == 0
    assert rig.counts("q") == (0, 0, 0)


def test_on_a_node_that_hears_of_the_queue_later(rig: Rig) -> None:
    rig.push("q", b"a", b"b")
    taken = rig.pop("q", 1)
    record(rig)
    engine, state = rig.engine, rig.engine.state
    partitions = set(range(state.partitions))
    engine.abandon(partitions | {state.catalogue})
    engine.learn_queue(b"qq", None)
    engine.adopt(partitions)
    assert not state.leases.by_nonce
    engine.learn_queue(b"qq", rig.store.get(b"qq"))
    assert rig.counts("q") == (1, 1, 0)
    assert rig.ack("q", *taken) == settled(done=1)


def test_a_move_that_is_given_up_changes_nothing(rig: Rig) -> None:
    rig.push("q", b"a", b"b", b"c")
    first, second, third = (rig.pop("q", 1) for _ in range(3))
    record(rig)
    rig.engine.recorded_leases.end(set(range(4)))
    assert rig.ack("q", *first) == settled(done=1)
    assert rig.nack("q", *second) == settled(done=1)
    rig.extend("q", LEASE_MS, *third)
    assert rows(rig, layout.LEASE) == 0, "each went with the change of its lease"
    (again,) = rig.pop("q", 1)
    rig.crash()
    assert rig.ack("q", again) == settled(lost=1), "volatile again"
    assert rig.counts("q") == (2, 0, 0)


def test_a_crash_after_a_move_keeps_what_did_not_change(rig: Rig) -> None:
    """A record is valid as long as it exists, whichever node leads."""
    rig.push("q", b"a", b"b")
    first, second = rig.pop("q", 1), rig.pop("q", 1)
    move(rig)
    rig.nack("q", *first)
    rig.pop("q", 1)
    rig.crash()
    assert rig.ack("q", *first) == settled(lost=1)
    assert rig.ack("q", *second) == settled(done=1)
    assert rig.bodies("q", 5) == [b"a"]


def test_many_leases_are_written_in_several_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_records, "RECORDS_PER_ROUND", 16)
    rig = Rig(partitions=2)
    rig.create("q", lease_ms=LEASE_MS)
    rig.push("q", *[b"%d" % number for number in range(100)])
    rig.push("q", *[b"%d" % number for number in range(100)])
    taken: list[Taken] = []
    for _ in range(200):
        taken += rig.pop("q", 1)
    rig.engine.recorded_leases.begin({0, 1})
    rounds = 0
    while not (rig.engine.recorded_leases.complete(0) and rig.engine.recorded_leases.complete(1)):
        written = rows(rig, layout.LEASE)
        rig.round()
        assert rows(rig, layout.LEASE) - written <= 16
        assert rig.engine.next_due() <= rig.now or not rig.engine.state.lease_records.backlog
        rounds += 1
    assert rounds == 13
    assert rig.ack("q", *taken[:50]) == settled(done=50)
    rig.restart()
    assert rig.ack("q", *taken) == settled(done=150, already=50)

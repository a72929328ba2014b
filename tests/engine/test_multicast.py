"""Multicast: one batch to several queues, stored once, all or none."""

from __future__ import annotations

import random

import pytest

from tests.engine.rig import Asked, Cut, Rig, payload_of
from weft import limits
from weft.errors import InvalidArgument, QueueFull, QueueNotFound, TooLarge
from weft.persistence import layout
from weft.proto import wire
from weft.server.engine.queue import QueueState

BODIES = [b"one", b"two"]
BACKUP = (1, 2)


class Fan(Rig):
    """A node, with the verbs of multicasts."""

    def multicast(
        self, queues: list[str], bodies: list[bytes], *, name: tuple[int, int] | None = None,
        delay_ms: int = 0, dedup_key: str | None = None, conflict_key: str | None = None,
    ) -> wire.Multicasted:  # fmt: skip
        self._batches += 1
        producer, batch = name or (7, self._batches)
        request = wire.Multicast(
            queues, producer, batch, len(bodies), delay_ms, 0, dedup_key, conflict_key
        )
        answer = self.call(request, payload_of(bodies))
        assert isinstance(answer, wire.Multicasted)
        return answer

    def queue(self, name: str) -> QueueState:
        return self.engine.state.queues[name]

    def snapshot(self, partition: int) -> list[wire.Kept]:
        answer = self.call(wire.Snapshot(partition))
        assert isinstance(answer, wire.Snapped)
        return answer.batches

    def restore(self, kept: wire.Kept, *, number: int = 0) -> None:
        """A negative number undoes a purge."""
        self.call(wire.Restore(kept.queue, BACKUP, number, kept, purged_only=number < 0))


def rig_with(*names: str, **settings: bool) -> Fan:
    rig = Fan()
    for name in names:
        rig.create(name, **settings)
    return rig


def bodies(rig: Fan, queue: str, *, ack: bool = False) -> list[bytes]:
    taken = rig.pop(queue, 100)
    if ack and taken:
        rig.ack(queue, *taken)
    return [each.body for each in taken]


def stored(rig: Fan, kind: bytes) -> int:
    return sum(1 for _ in rig.store.scan(*layout.kind_range(kind)))


def test_every_queue_gets_the_messages_and_the_payload_is_stored_once() -> None:
    names = [f"q{number}" for number in range(10)]
    rig = rig_with(*names)
    done = rig.multicast(names, BODIES)
    assert [copy.queue for copy in done.copies] == names
    assert (stored(rig, layout.HEAD), stored(rig, layout.BODY)) == (1, 1)
    for name in names:
        assert bodies(rig, name, ack=True) == BODIES
        assert rig.queue(name).bytes == 0
    assert (stored(rig, layout.HEAD), stored(rig, layout.BODY)) == (0, 0)


def test_every_message_has_an_id_of_its_own() -> None:
    rig = rig_with("a", "b")
    done = rig.multicast(["a", "b"], BODIES)
    ids = [
        (done.partition, copy.producer, copy.batch, copy.first + place)
        for copy in done.copies
        for place in range(2)
    ]
    assert [each.id for name in "ab" for each in rig.pop(name, 10)] == ids
    assert len(set(ids)) == 4


@pytest.mark.parametrize("cut", Cut)
def test_a_power_loss_leaves_the_messages_in_all_queues_or_in_none(cut: Cut) -> None:
    rig = rig_with("a", "b", "c")
    request = wire.Multicast(["a", "b", "c"], 7, 1, len(BODIES))
    rig.cut_round(cut, random.Random(1), Asked(request, (payload_of(BODIES),)))
    found = [bodies(rig, name) for name in "abc"]
    assert found in ([BODIES] * 3, [[]] * 3)
    if cut in (Cut.BEFORE_ANSWERS, Cut.BETWEEN_ANSWERS):
        assert found == [BODIES] * 3


def test_the_payload_lives_as_long_as_a_queue_refers_to_it() -> None:
    rig = rig_with("a", "b")
    rig.multicast(["a", "b"], BODIES)
    assert bodies(rig, "a", ack=True) == BODIES
    rig.restart()
    assert stored(rig, layout.BODY) == 1
    assert bodies(rig, "a") == []
    assert bodies(rig, "b", ack=True) == BODIES
    assert stored(rig, layout.BODY) == 0


def test_queues_are_counted_the_same_after_a_restart() -> None:
    rig = rig_with("a", "b")
    rig.multicast(["a", "b"], BODIES)
    before = [(each.ready, each.bytes) for each in map(rig.queue, "ab")]
    rig.restart()
    assert [(each.ready, each.bytes) for each in map(rig.queue, "ab")] == before
    assert not rig.engine.state.touched, "a waiting multicast costs entries alone"


def test_a_slow_queue_costs_no_object_per_multicast() -> None:
    rig = rig_with("fast", "slow")
    for _ in range(5):
        rig.multicast(["fast", "slow"], BODIES)
        assert bodies(rig, "fast", ack=True) == BODIES
    assert not rig.engine.state.touched
    assert bodies(rig, "slow", ack=True) == BODIES * 5


def test_a_part_of_a_copy_is_popped_and_acked_alone() -> None:
    rig = rig_with("a", "b")
    rig.multicast(["a", "b"], [b"1", b"2", b"3"])
    (first,) = rig.pop("b", 1)
    assert first.body == b"1"
    assert [each.body for each in rig.pop("b", 1)] == [b"2"]
    rig.ack("b", first)
    rig.restart()
    assert bodies(rig, "b") == [b"2", b"3"]
    assert bodies(rig, "a") == [b"1", b"2", b"3"]


def test_a_resend_stores_nothing_and_returns_the_same_ids() -> None:
    rig = rig_with("a", "b")
    first = rig.multicast(["a", "b"], BODIES, name=(7, 1))
    assert bodies(rig, "a", ack=True) == BODIES
    for _ in range(2):
        again = rig.multicast(["a", "b"], BODIES, name=(7, 1))
        assert [copy.duplicate for copy in again.copies] == [True, True]
        assert [copy.first for copy in again.copies] == [copy.first for copy in first.copies]
        rig.restart()
    assert bodies(rig, "a") == []
    assert bodies(rig, "b", ack=True) == BODIES
    rig.restart()
    again = rig.multicast(["a", "b"], BODIES, name=(7, 1))
    assert all(copy.duplicate for copy in again.copies)
    assert bodies(rig, "b") == []


def test_a_dedup_key_holds_in_each_queue() -> None:
    rig = rig_with("a", "b")
    pushed = rig.push("a", b"x", dedup_key="k")
    done = rig.multicast(["a", "b"], [b"x"], dedup_key="k")
    assert [copy.duplicate for copy in done.copies] == [True, False]
    assert done.copies[0].batch == pushed.batch
    assert (bodies(rig, "a", ack=True), bodies(rig, "b", ack=True)) == ([b"x"], [b"x"])
    rig.restart()
    again = rig.push("b", b"x", dedup_key="k")
    assert (again.duplicate, again.batch, again.first) == (True, done.copies[1].batch, 1)


def test_nothing_is_stored_if_one_destination_refuses() -> None:
    rig = rig_with("a", "b")
    rig.create("full", max_messages=1)
    with pytest.raises(QueueFull):
        rig.multicast(["a", "b", "full"], BODIES)
    with pytest.raises(QueueNotFound):
        rig.multicast(["a", "missing"], BODIES)
    assert (stored(rig, layout.HEAD), rig.queue("a").ready) == (0, 0)


def test_bad_requests_are_refused() -> None:
    rig = rig_with("a", "b")
    rig.create("one", ordered=True)
    rig.create("two", ordered=True)
    rig.create("groups", grouped=True)
    with pytest.raises(InvalidArgument, match="named twice"):
        rig.multicast(["a", "a"], BODIES)
    with pytest.raises(InvalidArgument, match="queues must be"):
        rig.multicast([], BODIES)
    with pytest.raises(InvalidArgument, match="queues must be"):
        rig.multicast([f"q{n}" for n in range(limits.MULTICAST_QUEUES_MAX + 1)], BODIES)
    with pytest.raises(InvalidArgument, match="different partitions"):
        rig.multicast(["one", "two"], BODIES, dedup_key="k")
    with pytest.raises(InvalidArgument, match="conflict_key"):
        rig.multicast(["a", "groups"], BODIES)
    with pytest.raises(InvalidArgument, match="not both"):
        rig.multicast(["a"], BODIES, conflict_key="g", dedup_key="k")
    with pytest.raises(InvalidArgument, match="neither delays nor priorities"):
        rig.multicast(["a", "one"], BODIES, delay_ms=1)
    with pytest.raises(TooLarge):
        rig.multicast(["a", "b"], [b""] * (limits.BATCH_COUNT_MAX // 2 + 1))
    assert stored(rig, layout.HEAD) == 0


def test_a_purge_or_a_delete_of_one_queue_leaves_the_others() -> None:
    rig = rig_with("a", "b", "c")
    rig.multicast(["a", "b", "c"], BODIES)
    rig.purge("a")
    rig.delete("b")
    rig.settle()
    rig.restart()
    assert bodies(rig, "a") == []
    assert bodies(rig, "c", ack=True) == BODIES
    assert (stored(rig, layout.HEAD), stored(rig, layout.BODY)) == (0, 0)


def test_copies_with_one_dead_letter_queue_stay_apart() -> None:
    rig = Fan()
    rig.create("dead")
    for name in "ab":
        rig.create(name, max_deliveries=1, dead_letter="dead")
    rig.multicast(["a", "b"], [b"x"])
    for name in "ab":
        rig.nack(name, *rig.pop(name, 10))
    rig.restart()
    taken = rig.pop("dead", 10)
    assert [each.body for each in taken] == [b"x", b"x"]
    assert [each.lent.origin for each in taken] == ["a", "b"]
    rig.nack("dead", *taken)
    rig.redrive("dead")
    assert (bodies(rig, "a"), bodies(rig, "b")) == ([b"x"], [b"x"])


def test_a_delayed_multicast_becomes_ready_in_every_queue() -> None:
    rig = rig_with("a", "b")
    rig.multicast(["a", "b"], BODIES, delay_ms=1000)
    assert rig.queue("b").delayed == 2
    rig.restart()
    assert bodies(rig, "a") == []
    rig.advance(1001)
    assert (bodies(rig, "a"), bodies(rig, "b")) == (BODIES, BODIES)


def test_a_grouped_queue_takes_the_conflict_key_as_its_group() -> None:
    rig = rig_with("a")
    rig.create("groups", grouped=True)
    rig.multicast(["a", "groups"], [b"1"], conflict_key="g")
    rig.push("groups", b"2", group="g")
    (first,) = rig.pop("groups", 1)
    assert (first.body, first.lent.group) == (b"1", "g")
    assert rig.pop("groups", 1) == [], "the group is leased"
    rig.ack("groups", first)
    assert bodies(rig, "groups") == [b"2"]
    assert bodies(rig, "a") == [b"1"]


def test_an_ordered_queue_keeps_its_order_beside_plain_queues() -> None:
    rig = rig_with("a")
    rig.create("line", ordered=True)
    rig.push("line", b"1")
    rig.multicast(["a", "line"], [b"2"])
    rig.push("line", b"3")
    for expected in (b"1", b"2", b"3"):
        (taken,) = rig.pop("line", 1)
        assert taken.body == expected
        rig.ack("line", taken)
    assert bodies(rig, "a") == [b"2"]


def test_one_copy_can_be_cancelled() -> None:
    rig = rig_with("a", "b")
    done = rig.multicast(["a", "b"], BODIES)
    copy = done.copies[1]
    name = done.partition, copy.producer, copy.batch, copy.first
    assert rig.call(wire.Cancel("b", *name)) == wire.Done(1)
    assert rig.call(wire.Cancel("a", *name)) == wire.Done(0), "the id is of the copy of b"
    assert (bodies(rig, "a"), bodies(rig, "b")) == (BODIES, BODIES[1:])


def test_a_lost_partition_leaves_nothing_behind() -> None:
    rig = rig_with("a", "b")
    rig.multicast(["a", "b"], BODIES)
    rig.multicast(["a", "b"], BODIES)
    assert len(rig.pop("a", 2)) == 2
    led = set(rig.engine.state.led)
    rig.engine.abandon(led)
    for name in "ab":
        queue = rig.queue(name)
        assert (queue.ready, queue.leased, queue.bytes) == (0, 0, 0)
    rig.engine.adopt(led)
    assert (bodies(rig, "a"), bodies(rig, "b")) == (BODIES * 2, BODIES * 2)


def test_a_backup_has_the_payload_once_and_restores_all_copies() -> None:
    rig = rig_with("a", "b")
    done = rig.multicast(["a", "b"], BODIES)
    (taken, *_) = rig.pop("a", 1)
    rig.ack("a", taken)
    (kept,) = rig.snapshot(done.partition)
    assert kept.queues == ["a", "b"]
    assert len(wire.decode_payload(kept.payload).bodies) == 2
    other = rig_with("a", "b")
    other.restore(kept)
    assert (bodies(other, "a"), bodies(other, "b")) == (BODIES[1:], BODIES)


def test_a_purge_of_one_queue_can_be_undone() -> None:
    rig = rig_with("a", "b")
    done = rig.multicast(["a", "b"], BODIES)
    (kept,) = rig.snapshot(done.partition)
    rig.purge("a")
    rig.settle()
    rig.restore(kept, number=-1)
    assert (bodies(rig, "a", ack=True), bodies(rig, "b", ack=True)) == (BODIES, BODIES)
    rig.restore(kept, number=-2)
    assert (bodies(rig, "a"), bodies(rig, "b")) == ([], [])

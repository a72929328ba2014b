"""snapshot and restore: every living message, unchanged, once."""

from __future__ import annotations

import msgspec
import pytest

from tests.engine.pipeline import Reader, Writer
from tests.engine.rig import Rig, Taken
from weft.dht.log import Changes
from weft.dht.uncommitted import UncommittedState
from weft.errors import InvalidArgument, QueueNotFound, Unavailable
from weft.persistence import layout
from weft.proto import wire
from weft.server.engine import backup, purged

BACKUP = (1, 2)


def snapshot(rig: Rig, queue: str | None = None) -> tuple[list[wire.Kept], dict[str, bytes]]:
    """All pages of all partitions."""
    batches: list[wire.Kept] = []
    rows: dict[str, bytes] = {}
    for partition in range(rig.engine.state.partitions):
        lsn, key, more = 0, None, True
        while more:
            page = rig.call(wire.Snapshot(partition, queue, lsn, key))
            assert isinstance(page, wire.Snapped)
            batches += page.batches
            rows |= dict(page.rows)
            lsn, key, more = page.lsn, page.key, page.more
    return batches, rows


def restore(rig: Rig, batches: list[wire.Kept], backup: tuple[int, int] = BACKUP) -> list[bool]:
    """For each batch: True if it was already present."""
    known = []
    for number, kept in enumerate(batches):
        answer = rig.call(wire.Restore(kept.queue, backup, number, kept))
        assert isinstance(answer, wire.Pushed)
        known.append(answer.duplicate)
    return known


def shape(messages: list[Taken]) -> list[tuple[object, ...]]:
    return sorted(
        (m.body, m.id, m.deliveries, m.lent.priority, m.lent.pushed_ms, m.lent.reason)
        for m in messages
    )


@pytest.fixture
def full(rig: Rig) -> Rig:
    """Messages and records of every kind."""
    rig.create("frail", max_deliveries=1, dead_letter="dead")
    rig.push("q", b"whole", b"batch")
    rig.push("q", b"first", b"gone", b"last", producer=3, batch=4)
    taken = {m.body: m for m in rig.pop("q", 100)}
    rig.ack("q", taken[b"gone"])
    rig.nack("q", taken[b"last"])
    rig.push("q", b"later", delay_ms=60_000)
    rig.push("q", b"urgent", priority=7)
    rig.push("q", b"keyed", dedup_key="once")
    rig.push("frail", b"bad")
    rig.nack("frail", *rig.pop("frail"), reason="no good")
    rig.call(wire.Insert("k", b"v"))
    rig.call(wire.Insert("k2", b""))
    return rig


def other(full: Rig) -> Rig:
    made = Rig()
    made.create("q")
    made.create("frail", max_deliveries=1, dead_letter="dead")
    made.advance((full.engine.state.now - made.engine.state.now) // 1000)
    return made


def test_all_that_lives_is_in_it_and_nothing_else(full: Rig) -> None:
    batches, rows = snapshot(full)
    bodies = {
        wire.decode_payload(kept.payload).bodies[index]
        for kept in batches
        for part in kept.parts
        for index in range(part.first, part.first + part.count)
    }
    assert bodies == {
        b"whole", b"batch", b"first", b"last", b"later", b"urgent", b"keyed", b"bad",
    }  # fmt: skip
    assert b"gone" not in b"".join(kept.payload for kept in batches)
    assert rows == {"k": b"v", "k2": b""}
    parts = {part.queue: part for kept in batches for part in kept.parts}
    assert (parts["dead"].origin, parts["dead"].reason) == (
        "frail", "1 deliveries, the last one nacked: no good",
    )  # fmt: skip


def test_small_pages_give_the_same(full: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = snapshot(full)
    monkeypatch.setattr(backup, "PAGE_RECORDS_MAX", 1)
    assert snapshot(full) == whole
    monkeypatch.setattr(backup, "PAGE_BYTES_MAX", 1)
    assert snapshot(full) == whole


def test_a_snapshot_changes_nothing(full: Rig) -> None:
    before = full.counts("q"), full.stats("q").delivered
    snapshot(full)
    assert (full.counts("q"), full.stats("q").delivered) == before


def test_a_batch_whose_deletion_is_not_in_the_store_yet_is_gone(rig: Rig) -> None:
    """A batch whose deletion is proposed and not in the store yet counts as gone.

    In a cluster an ack is proposed first and stored later. The scan still sees the head, but the
    payload is unreadable: the node took the payload for lost, and exited.
    """
    rig.push("q", b"there")
    rig.push("q", b"acked")
    lent = {message.body: message.lent for message in rig.pop("q", 2)}[b"acked"]
    state = rig.engine.state
    pending = UncommittedState(state.overlay._store, state.partitions)
    keys = [layout.head(lent.partition, lent.lsn), layout.body(lent.partition, lent.lsn)]
    pending.add(lent.partition, 1 << 40, Changes([], keys, []))
    state.overlay._store = pending
    batches, _ = snapshot(rig)
    assert [wire.decode_payload(kept.payload).bodies for kept in batches] == [[b"there"]]


def test_one_queue_alone(full: Rig) -> None:
    batches, rows = snapshot(full, "dead")
    assert [[part.queue for part in kept.parts] for kept in batches] == [["dead"]]
    assert rows == {}
    with pytest.raises(QueueNotFound):
        snapshot(full, "nobody")


def test_restored_it_is_as_it_was(full: Rig) -> None:
    batches, _ = snapshot(full)
    full.restart()  # leases are void
    copy = other(full)
    assert not any(restore(copy, batches))
    for queue in ("q", "dead"):
        assert shape(copy.peek(queue)) == shape(full.peek(queue))
        assert copy.counts(queue) == full.counts(queue)
    copy.restart()
    assert shape(copy.peek("q")) == shape(full.peek("q"))
    for each in (copy, full):
        each.advance(60_000)
    assert sorted(copy.bodies("q", 100)) == sorted(full.bodies("q", 100))
    assert copy.redrive("dead") == 1  # a dead letter remembers its queue
    assert copy.bodies("frail") == [b"bad"]


def test_restored_again_it_is_there_once(full: Rig) -> None:
    batches, _ = snapshot(full)
    copy = other(full)
    restore(copy, batches)
    before = copy.counts("dead")
    assert all(restore(copy, batches))
    copy.ack("q", *copy.pop("q", 100))
    copy.crash()
    copy.advance(3_600_000)  # past every dedup window
    assert all(restore(copy, batches))
    assert copy.bodies("q", 100) == [b"later"]
    assert copy.counts("dead") == before
    assert not any(restore(copy, batches, (1, 3)))  # another backup


def test_after_an_interruption_it_goes_on(full: Rig) -> None:
    batches, _ = snapshot(full)
    copy = other(full)
    restore(copy, batches[:3])
    assert restore(copy, batches) == [True] * 3 + [False] * (len(batches) - 3)


def test_what_a_partition_has_taken_is_not_in_a_snapshot(full: Rig) -> None:
    batches, _ = snapshot(full)
    copy = other(full)
    restore(copy, batches)
    assert snapshot(copy)[1] == {}


def test_older_messages_come_first(rig: Rig) -> None:
    rig.create("line", ordered=True)
    for body in (b"1", b"2", b"3"):
        rig.push("line", body)
    batches, _ = snapshot(rig, "line")
    copy = Rig()
    copy.create("line", ordered=True)
    copy.advance(60_000)
    copy.push("line", b"new")
    restore(copy, batches)
    assert copy.bodies("line", 100) == [b"1", b"2", b"3", b"new"]


def test_what_is_not_a_batch_is_refused(full: Rig) -> None:
    kept = snapshot(full)[0][0]
    part = kept.parts[0]
    for parts in (
        [],
        [wire.KeptPart(0, kept.count + 1, part.queue)],
        [wire.KeptPart(0, 1, part.queue), wire.KeptPart(0, 1, part.queue)],
        [wire.KeptPart(0, 1, part.queue, deliveries=-1)],
        [wire.KeptPart(0, 1, part.queue, due=-1)],
    ):
        bad = wire.Kept(
            kept.queue, kept.producer, kept.batch, kept.count, kept.stamp, kept.priority,
            kept.dedup_key, parts, kept.payload,
        )  # fmt: skip
        with pytest.raises(InvalidArgument):
            full.call(wire.Restore("q", BACKUP, 0, bad))
    for page in (wire.Snapshot(-1), wire.Snapshot(1 << 16), wire.Snapshot(0, None, -1)):
        with pytest.raises(InvalidArgument):
            full.call(page)


def test_reserved_is_waiting_and_staged_is_not_there_until_it_is_published(rig: Rig) -> None:
    rig.push("q", b"a", b"b", b"c")
    reader, writer = Reader(rig), Writer(rig)
    reader.reserve(1, most=2)
    token = writer.stage(0, 0, 0, b"staged")

    def bodies() -> list[bytes]:
        return sorted(
            wire.decode_payload(kept.payload).bodies[index]
            for kept in snapshot(rig)[0]
            for part in kept.parts
            for index in range(part.first, part.first + part.count)
        )

    assert bodies() == [b"a", b"b", b"c"]
    assert writer.publish(0, (0, 0, token)) == 1
    assert bodies() == [b"a", b"b", b"c", b"staged"]
    reader.ack(1)
    assert bodies() == [b"c", b"staged"]
    copy = Rig()
    copy.create("q")
    restore(copy, snapshot(rig)[0])
    assert sorted(copy.bodies("q", 10)) == [b"c", b"staged"]


# --- undoing a purge ---------------------------------------------------------------------------


def undo(rig: Rig, batches: list[wire.Kept], queue: str = "q") -> int:
    """Number of messages of a queue that are restored."""
    back = 0
    for number, kept in enumerate(batches):
        parts = [part for part in kept.parts if part.queue == queue]
        if parts:
            only = msgspec.structs.replace(kept, parts=parts)
            request = wire.Restore(kept.queue, BACKUP, -1 - number, only, purged_only=True)
            answer = rig.call(request)
            assert isinstance(answer, wire.Pushed)
            back += answer.count
    return back


def purge(rig: Rig, queue: str = "q") -> None:
    rig.call(wire.PurgeQueue(queue))
    rig.settle()


def test_an_undo_brings_back_what_the_purge_removed_and_nothing_else(rig: Rig) -> None:
    rig.create("safe")
    rig.push("safe", b"untouched")
    rig.push("q", b"one", b"acked later", b"leased", b"two")
    rig.push("q", b"all acked later")
    batches, _ = snapshot(rig)
    assert undo(rig, batches) == 0, "nothing was purged yet"
    taken = {m.body: m for m in rig.pop("q", 100)}
    rig.ack("q", taken[b"acked later"], taken[b"all acked later"])
    rig.nack("q", taken[b"one"], taken[b"two"])
    rig.push("q", b"after the backup")
    purge(rig)
    rig.push("q", b"after the purge")
    assert undo(rig, batches, "safe") == 0
    assert undo(rig, batches) == 3
    assert sorted(rig.bodies("q", 100)) == [b"after the purge", b"leased", b"one", b"two"]
    assert rig.counts("safe")[0] == 1


@pytest.mark.parametrize("end", ["restart", "crash"])
def test_an_undo_survives_a_restart_before_the_sweep(rig: Rig, end: str) -> None:
    """The purge is one write; rows removed later, after a restart, are recorded all the same."""
    rig.push("q", b"a", b"b")
    rig.push("q", b"c")
    batches, _ = snapshot(rig)
    (first,) = [m for m in rig.pop("q", 3) if m.body == b"a"]
    rig.ack("q", first)
    rig.call(wire.PurgeQueue("q"))
    getattr(rig, end)()
    rig.settle()
    assert undo(rig, batches) == 2
    assert sorted(rig.bodies("q", 100)) == [b"b", b"c"]


def test_an_undo_of_a_deleted_queue(rig: Rig) -> None:
    rig.push("q", b"a", b"acked")
    batches, _ = snapshot(rig)
    rig.ack("q", *[m for m in rig.pop("q", 2) if m.body == b"acked"])
    rig.call(wire.DeleteQueue("q"))
    rig.settle()
    rig.create("q")
    assert undo(rig, batches) == 1
    assert rig.bodies("q", 100) == [b"a"]


def test_an_undo_twice_changes_nothing_and_after_a_second_purge_it_works_again(rig: Rig) -> None:
    rig.push("q", b"a", b"b")
    batches, _ = snapshot(rig)
    purge(rig)
    assert [undo(rig, batches), undo(rig, batches)] == [2, 0]
    rig.ack("q", *[m for m in rig.pop("q", 2) if m.body == b"a"])
    assert undo(rig, batches) == 0, "what was acknowledged stays away"
    purge(rig)
    assert [undo(rig, batches), undo(rig, batches)] == [1, 0]
    assert rig.bodies("q", 100) == [b"b"]


def test_a_purge_of_the_dead_letters_leaves_the_queue_alone(rig: Rig) -> None:
    rig.create("frail", max_deliveries=1, dead_letter="dead")
    rig.push("frail", b"bad", b"good")
    rig.nack("frail", *[m for m in rig.pop("frail", 2) if m.body == b"bad"], reason="no")
    batches, _ = snapshot(rig)
    purge(rig, "dead")
    assert undo(rig, batches, "frail") == 0
    assert undo(rig, batches, "dead") == 1
    assert [m.body for m in rig.peek("dead")] == [b"bad"]
    assert rig.redrive("dead") == 1


def test_while_a_purge_is_under_way_an_undo_waits(rig: Rig) -> None:
    rig.push("q", b"a")
    batches, _ = snapshot(rig)
    rig.call(wire.PurgeQueue("q"))
    rig.engine.state.dying.append(rig.engine.state.queue("q"))
    with pytest.raises(Unavailable, match="retry"):
        undo(rig, batches)
    rig.engine.state.dying.pop()
    rig.settle()
    assert undo(rig, batches) == 1


def test_records_of_purged_messages_expire_and_are_not_in_a_backup(rig: Rig) -> None:
    rig.push("q", b"a")
    batches, _ = snapshot(rig)
    purge(rig)
    assert snapshot(rig)[1] == {}
    rig.advance(purged.SLICE_US // 1000 * (purged.SLICES_KEPT - 1))
    rig.settle()
    assert _records(rig) == 1
    rig.advance(purged.SLICE_US // 1000 * 2)
    rig.settle()
    assert _records(rig) == 0
    assert undo(rig, batches) == 0


def _records(rig: Rig) -> int:
    return sum(
        key[3:].startswith(purged.PREFIX.encode())
        for key, _ in rig.store.scan(*layout.kind_range(layout.TABLE))
    )


def test_what_a_subscription_has_reserved_comes_back_from_a_purge(rig: Rig) -> None:
    rig.push("q", b"a", b"b", b"c")
    Reader(rig).reserve(1, most=2)
    batches, _ = snapshot(rig)
    purge(rig)
    assert undo(rig, batches) == 3
    assert sorted(rig.bodies("q", 10)) == [b"a", b"b", b"c"]


def test_a_restore_under_either_of_two_names_is_known(full: Rig) -> None:
    """A restore of one queue, and one of the whole backup, recognise each other's batches."""
    kept = snapshot(full)[0][0]
    copy = other(full)
    whole, one = (1, 2), (3, 4)

    def put(name: tuple[int, int], number: int, also: tuple[int, int, int]) -> bool:
        answer = copy.call(wire.Restore(kept.queue, name, number, kept, also=also))
        assert isinstance(answer, wire.Pushed)
        return answer.duplicate

    assert not put(one, 0, (*whole, 7))
    assert put(whole, 7, (*one, 0))
    assert not put(whole, 8, (*one, 1))
    assert put(one, 1, (*whole, 8))


def test_an_older_node_refuses_an_undo_instead_of_restoring_everything(full: Rig) -> None:
    kept = snapshot(full)[0][0]
    with pytest.raises(InvalidArgument, match="number"):
        full.call(wire.Restore(kept.queue, BACKUP, -1, kept))
    with pytest.raises(InvalidArgument, match="number"):
        full.call(wire.Restore(kept.queue, BACKUP, 0, kept, purged_only=True))

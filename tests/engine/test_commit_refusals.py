"""commit: what is refused, with which error, and what becomes of effects that have no place."""

from __future__ import annotations

import pytest

from tests.engine.commits import (
    PARTITIONS,
    commit,
    deliver,
    key_of,
    names,
    new_rig,
    others,
    push_to,
    put,
    taken,
    value,
)  # fmt: skip
from tests.engine.rig import Rig, payload_of
from weft import limits
from weft.errors import (
    InvalidArgument,
    Overloaded,
    QueueFull,
    QueueNotFound,
    StorageFull,
    TooLarge,
)
from weft.proto import wire


@pytest.fixture
def rig() -> Rig:
    return new_rig()


def test_bad_commits_are_refused_with_an_explanation(rig: Rig) -> None:
    one, two = taken(rig), taken(rig)
    while two[0].lent.partition == one[0].lent.partition:
        two = taken(rig)
    home = one[0].lent.partition
    away = others(home)[0]
    with pytest.raises(InvalidArgument, match="one partition"):
        commit(rig, home, *one, *two)
    for write in (put(away, 0), wire.SwapKey(key_of(away), None, b"v", 0, 0)):
        with pytest.raises(InvalidArgument, match="a write with a condition"):
            commit(rig, home, *one, writes=[write])
    with pytest.raises(InvalidArgument, match="twice"):
        commit(rig, home, writes=[put(home), put(home)])
    with pytest.raises(InvalidArgument, match="does nothing"):
        commit(rig, home)
    with pytest.raises(InvalidArgument, match="partition must be"):
        commit(rig, PARTITIONS, writes=[put(0)])
    with pytest.raises(InvalidArgument, match="ttl_ms"):
        commit(rig, home, writes=[wire.Put(key_of(away), b"", 0, 0, -1)])
    with pytest.raises(InvalidArgument, match="own"):
        commit(rig, home, writes=[wire.Put("\0purged/1", b"", 0, 0)])
    with pytest.raises(QueueNotFound):
        commit(rig, home, *one, pushes=[push_to(home, "none")])
    wrong = wire.CommitPush(wire.Push("out", 9, 1, 2), payload_of([b"x"]))
    with pytest.raises(InvalidArgument, match="bodies"):
        commit(rig, home, pushes=[wrong])
    with pytest.raises(InvalidArgument, match="number"):
        rig.call(wire.Commit(home, 5, 0, [], [push_to(home)], []))
    keys = [key_of(home, 1000 * number) for number in range(1, limits.COMMIT_WRITES_MAX + 2)]
    with pytest.raises(TooLarge, match="writes"):
        commit(rig, home, writes=[wire.Put(key, b"", 0, 0) for key in keys])
    with pytest.raises(TooLarge, match="batches"):
        commit(rig, home, pushes=[push_to(home)] * (limits.COMMIT_PUSHES_MAX + 1))
    large: list[wire.AnyWrite] = [
        wire.Put(key, bytes(limits.TABLE_VALUE_BYTES_MAX), 0, 0) for key in keys[:3]
    ]
    with pytest.raises(TooLarge, match="bytes"):
        commit(rig, home, writes=large)
    assert rig.counts("in")[1] >= 2
    assert rig.counts("out") == (0, 0, 0)
    assert rig.engine.commits.owing == []


def test_limits_hold_for_the_commit_and_not_for_what_was_decided(rig: Rig) -> None:
    rig.create("small", max_messages=2)
    home = 0
    away = others(home)[0]
    commit(rig, home, pushes=[push_to(away, "small"), push_to(away, "small")])
    rig.push("small", b"1", b"2")
    with pytest.raises(QueueFull):
        commit(rig, home, pushes=[push_to(home, "small")])
    deliver(rig, home)  # decided before the queue was full
    assert rig.counts("small")[0] == 4
    rig.engine.set_full(True)
    with pytest.raises(StorageFull):
        commit(rig, home, writes=[put(home)])
    rig.engine.set_full(False)
    commit(rig, home, pushes=[push_to(away)])
    rig.engine.set_full(True)
    with pytest.raises(StorageFull):
        deliver(rig, home)
    (message,) = rig.pop("small")
    receipts = [wire.CommitAck("small", [message.receipt])]
    rig.call(wire.Commit(message.lent.partition, 5, next(names), receipts, [], []))
    rig.engine.set_full(False)
    deliver(rig, home)
    assert rig.counts("out")[0] == 1


def test_the_outbox_is_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OUTBOX_ENTRIES_MAX", 2)
    home = 0
    away = others(home)[0]
    for _ in range(2):
        commit(rig, home, pushes=[push_to(away)])
    (message,) = taken(rig)
    with pytest.raises(Overloaded, match="nothing was changed"):
        commit(rig, home, pushes=[push_to(away)])
    commit(rig, home, pushes=[push_to(home)])
    deliver(rig, home)
    commit(rig, home, pushes=[push_to(away)])
    monkeypatch.setattr(limits, "OUTBOX_BYTES_MAX", 10)
    with pytest.raises(Overloaded):
        commit(rig, home, writes=[wire.Put(key_of(away), bytes(100), 0, 0)])
    assert message.lent


def test_effects_for_a_deleted_or_purged_queue_are_dropped_and_counted(rig: Rig) -> None:
    home = 0
    away = others(home)[0]
    rig.create("gone")
    commit(rig, home, pushes=[push_to(away, "gone"), push_to(away, "out")])
    rig.delete("gone")
    rig.create("gone")
    rig.purge("out")
    deliver(rig, home)
    assert rig.engine.commits.dropped == 2
    assert rig.counts("gone") == rig.counts("out") == (0, 0, 0)
    commit(rig, home, pushes=[push_to(away, "out")])
    deliver(rig, home)
    assert rig.counts("out")[0] == 1


def test_an_append_that_would_be_too_long_elsewhere_is_dropped(rig: Rig) -> None:
    home = 0
    away = others(home)[0]
    key, full = key_of(away), bytes(limits.TABLE_VALUE_BYTES_MAX)
    rig.call(wire.Put(key, full, 1, 1))
    commit(rig, home, writes=[wire.AppendKey(key, b"x", 0, 0)])
    deliver(rig, home)
    assert value(rig, key) == full
    assert rig.engine.commits.dropped == 1


def test_a_destination_knows_whether_it_may_lack_changes_of_a_queue(rig: Rig) -> None:
    """Otherwise it would drop the effects for a queue that is new to it."""
    knows, queues = rig.engine.commits.knows, rig.engine.state.queues
    old = queues["out"].id
    rig.purge("out")
    assert knows([old, queues["out"].id, queues["in"].id])
    assert not knows([queues["out"].id + 1]), "purged elsewhere"
    assert not knows([queues["in"].id, 12345 << 16])
    rig.delete("out")
    assert not knows([old])

"""commit: all effects or none, once, on the home partition and through the outbox."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.engine.commits import (
    acks,
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
from tests.engine.rig import Asked, Cut, Rig, payload_of
from weft import limits
from weft.dht import placement
from weft.errors import InvalidArgument, LeaseLost, VersionMismatch
from weft.persistence.layout import NODE, OF_CATALOGUE
from weft.proto import wire
from weft.server.engine import outbox
from weft.server.engine.state import LSNS_AHEAD


@pytest.fixture
def rig() -> Rig:
    return new_rig()


def test_effects_on_the_home_are_in_the_commits_round(rig: Rig) -> None:
    (message,) = taken(rig)
    home = message.lent.partition
    key = key_of(home)
    done = commit(
        rig, home, message, pushes=[push_to(home)], writes=[wire.Put(key, b"v", 0, 0, 0, 0)]
    )
    assert done == wire.Committed(False, [home])
    assert rig.counts("in") == (0, 0, 0)
    assert (rig.bodies("out"), value(rig, key)) == ([b"x"], b"v")
    assert deliver(rig, home) is None


def test_effects_elsewhere_are_delivered_once_and_in_order(rig: Rig) -> None:
    home = 1
    one, two = others(home)
    key = key_of(one)
    for number in range(3):
        append = wire.AppendKey(key, b"%d" % number, 0, 0)
        pushes = [push_to(two, body=b"%d" % number)]
        assert commit(rig, home, pushes=pushes, writes=[append]).partitions == [two]
    assert value(rig, key) is None
    page = rig.call(wire.ReadOutbox(home))
    assert isinstance(page, wire.Outbox)
    assert page.partitions == sorted([one, two], key=page.partitions.index)
    first = deliver(rig, home)
    assert first is not None
    assert value(rig, key) == b"012"
    assert rig.bodies("out", 10) == [b"0", b"1", b"2"]
    # The same request again, from a primary that does not know of the answer.
    again = rig.call(
        wire.Deliver(home, page.channel, page.partitions, page.after, page.entries, [])
    )
    assert again == first
    assert value(rig, key) == b"012"
    assert rig.engine.commits.owing == []
    assert deliver(rig, home) is None


def test_marks_and_deliveries_survive_a_crash(rig: Rig) -> None:
    home = 2
    one, _ = others(home)
    key = key_of(one)
    commit(rig, home, writes=[wire.AppendKey(key, b"a", 0, 0)])
    rig.crash()
    assert rig.engine.commits.owing == [home]
    page = rig.call(wire.ReadOutbox(home))
    assert isinstance(page, wire.Outbox)
    request = wire.Deliver(home, page.channel, page.partitions, page.after, page.entries, [])
    rig.call(request)
    rig.crash()
    rig.call(request)
    assert value(rig, key) == b"a"
    assert deliver(rig, home) is not None
    rig.crash()
    assert rig.engine.commits.owing == []


@pytest.mark.parametrize("cut", [*Cut])
@pytest.mark.parametrize("seed", range(3))
def test_a_power_loss_leaves_all_of_a_commit_or_nothing(cut: Cut, seed: int) -> None:
    rig = new_rig(seed)
    (message,) = taken(rig)
    home = message.lent.partition
    one, two = others(home)
    keys = key_of(home), key_of(one)
    request = wire.Commit(
        home, 5, 1, acks(message), [push_to(home), push_to(two)],
        [wire.AppendKey(each, b"a", 0, 0) for each in keys],
    )  # fmt: skip
    rig.cut_round(cut, random.Random(seed), Asked(request))
    stored = value(rig, keys[0]) is not None
    assert rig.stats("in").ready == (0 if stored else 1)
    assert bool(rig.engine.commits.owing) is stored
    if stored:
        assert rig.call(request) == wire.Committed(True, [home, two])
    else:
        again = rig.pop("in")
        commit(rig, home, *again, pushes=request.pushes, writes=request.writes)
    deliver(rig, home)
    assert [value(rig, each) for each in keys] == [b"a", b"a"]
    assert len(rig.bodies("out", 10)) == 2


def test_a_retry_is_recognised_after_a_crash_and_for_the_whole_window(rig: Rig) -> None:
    (message,) = taken(rig)
    home = message.lent.partition
    one, _ = others(home)
    request = wire.Commit(
        home, 5, 77, acks(message), [push_to(home), push_to(one)],
        [wire.AppendKey(key_of(home), b"a", 0, 0)],
    )  # fmt: skip
    assert rig.call(request) == wire.Committed(False, [home, one])
    assert rig.call(request) == wire.Committed(True, [home, one])
    rig.crash()
    rig.advance(limits.TABLE_NAME_MS - 60_000)
    assert rig.call(request) == wire.Committed(True, [home, one])
    assert value(rig, key_of(home)) == b"a"


def test_a_lost_lease_changes_nothing(rig: Rig) -> None:
    one, two = taken(rig, 2)
    home = one.lent.partition
    rig.ack("in", one)
    with pytest.raises(LeaseLost, match="1 message"):
        commit(rig, home, one, two, pushes=[push_to(home)], writes=[put(home)])
    assert (rig.counts("in"), rig.counts("out")) == ((0, 1, 0), (0, 0, 0))
    assert value(rig, key_of(home)) is None
    rig.advance(31_000)  # the lease expires
    with pytest.raises(LeaseLost):
        commit(rig, home, two)
    (again,) = rig.pop("in")
    other = wire.CommitAck("out", [again.receipt])
    with pytest.raises(LeaseLost):
        rig.call(wire.Commit(home, 5, next(names), [other], [], []))
    twice = wire.CommitAck("in", [again.receipt, again.receipt])
    with pytest.raises(LeaseLost):
        rig.call(wire.Commit(home, 5, next(names), [twice], [], []))
    forged = wire.Receipt(home, again.lent.lsn, 12345)
    with pytest.raises(LeaseLost):
        rig.call(wire.Commit(home, 5, next(names), [wire.CommitAck("in", [forged])], [], []))
    commit(rig, home, again)
    assert rig.counts("in") == (0, 0, 0)


def test_a_condition_that_fails_changes_nothing_and_is_remembered(rig: Rig) -> None:
    (message,) = taken(rig)
    home = message.lent.partition
    key = key_of(home)
    rig.call(wire.Put(key, b"old", 1, 1))
    swap = wire.SwapKey(key, b"other", b"new", 0, 0)
    request = wire.Commit(home, 5, 88, acks(message), [push_to(home)], [swap])
    with pytest.raises(VersionMismatch, match=key):
        rig.call(request)
    assert (rig.counts("in"), rig.counts("out")) == ((0, 1, 0), (0, 0, 0))
    rig.call(wire.Put(key, b"other", 1, 2))  # now the condition would hold
    with pytest.raises(VersionMismatch):
        rig.call(request)
    commit(rig, home, message, writes=[swap])
    assert value(rig, key) == b"new"


def test_a_node_that_is_its_whole_cluster_needs_no_outbox(rig: Rig) -> None:
    rig.engine.commits.set_alone(True)
    (message,) = taken(rig)
    home = message.lent.partition
    away = others(home)[0]
    key = key_of(away)
    commit(rig, home, message, pushes=[push_to(away)], writes=[wire.Put(key, b"v", 0, 0, 5000)])
    assert rig.engine.commits.owing == []
    assert (rig.bodies("out"), value(rig, key)) == ([b"x"], b"v")
    with pytest.raises(InvalidArgument, match="a write with a condition"):
        commit(rig, home, writes=[put(home, 0), put(away, 0)])
    rig.advance(6000)
    assert value(rig, key) is None


def test_ordered_grouped_and_keyed_pushes_go_to_their_own_partition(rig: Rig) -> None:
    rig.create("line", ordered=True)
    rig.create("lines", grouped=True)
    group = wire.PushGroup("lines", 9, next(names), 1, group="g")
    pushes = [
        push_to(0, "line"),
        wire.CommitPush(group, payload_of([b"g"])),
        push_to(0, dedup_key="k"),
        push_to(0, dedup_key="k"),
    ]
    done = commit(rig, 0, pushes=pushes)
    wanted = [placement.of_text(name, 4) for name in ("line", "g", "k", "k")]
    assert done.partitions == wanted
    deliver(rig, 0)
    assert rig.bodies("line") == [b"x"]
    assert rig.bodies("lines") == [b"g"]
    assert rig.counts("out")[0] == 1, "the second push is a duplicate"
    with pytest.raises(InvalidArgument, match="ordered"):
        commit(rig, 0, pushes=[push_to(0, "line", delay_ms=5)])


def test_a_source_without_its_data_begins_another_channel(rig: Rig) -> None:
    home, away = 0, 1
    key = key_of(away)
    commit(rig, home, writes=[wire.AppendKey(key, b"a", 0, 0)])
    deliver(rig, home)
    effects = outbox._encode(outbox.Effects([], [wire.AppendKey(key, b"b", 0, 0)]))
    rig.call(wire.Deliver(home, 99, [away], [0], [[(1, effects)]], []))
    assert value(rig, key) == b"ab"


def test_the_home_of_a_commit_without_a_partition(rig: Rig) -> None:
    (message,) = taken(rig)
    assert commit(rig, -1, message, pushes=[push_to(0)]).partitions == [0]
    deliver(rig, message.lent.partition)
    commit(rig, -1, writes=[wire.Put(key_of(1), b"", 0, 0), put(3, 0)])
    assert rig.engine.commits.owing == [3], "the first key with a condition"
    commit(rig, -1, writes=[put(3)], pushes=[push_to(2)])
    assert sorted(rig.engine.commits.owing) == [2, 3], "else the first push"


def test_a_source_that_continues_from_an_older_copy_reuses_no_number(rig: Rig) -> None:
    """After the loss of disks (``weft cluster recover``) the primary may lack deliveries that were
    taken: a new one must not look like one of those."""
    home = 1
    one, _ = others(home)
    commit(rig, home, writes=[wire.AppendKey(key_of(one), b"a", 0, 0)])
    deliver(rig, home)
    keys = layout_of(home)
    copy = [(key, rig.store.get(key)) for key, _ in rig.store.scan(b"", b"\xff") if keys(key)]
    for _ in range(LSNS_AHEAD):
        rig.engine.state.next_lsn(home)
    commit(rig, home, writes=[wire.AppendKey(key_of(one), b"b", 0, 0)])
    deliver(rig, home)
    assert value(rig, key_of(one)) == b"ab"
    rig.engine.abandon({home})
    gone = [(key, None) for key, _ in rig.store.scan(b"", b"\xff") if keys(key)]
    rig.store.write([*gone, *copy], sync=True)
    rig.engine.adopt({home}, losses=1)
    commit(rig, home, writes=[wire.AppendKey(key_of(one), b"c", 0, 0)])
    deliver(rig, home)
    assert value(rig, key_of(one)) == b"abc"
    # A further change of the primary continues after the last number.
    before = rig.engine.state.lsns_aside[home]
    rig.engine.abandon({home})
    rig.engine.adopt({home}, losses=1)
    assert rig.engine.state.lsns[home] == before


def layout_of(partition: int) -> Callable[[bytes], bool]:
    """True for the keys of a partition."""
    number = partition.to_bytes(2, "big")
    return lambda key: key[1:3] == number and key[:1] not in OF_CATALOGUE and key[:1] != NODE


def test_a_name_stands_for_one_commit_or_one_write(rig: Rig) -> None:
    home = 1
    key = key_of(home)
    done = commit(rig, home, pushes=[push_to(home)], number=7)
    assert done.partitions == [home]
    with pytest.raises(InvalidArgument, match="an earlier commit with 1 batches"):
        commit(rig, home, pushes=[push_to(home), push_to(home)], number=7)
    append = wire.AppendKey(key, b"x", 5, 7)
    many = wire.InsertMany([home], [key], [b"x"], 5, 7)
    for write in (append, wire.SwapKey(key, None, b"x", 5, 7), many):
        with pytest.raises(InvalidArgument, match=r"\(5, 7\) is that of an earlier commit"):
            rig.call(write)
    assert value(rig, key) is None
    rig.call(wire.AppendKey(key, b"x", 5, 8))
    with pytest.raises(InvalidArgument, match="an earlier table write, so this commit was not"):
        commit(rig, home, pushes=[push_to(home)], number=8)
    assert rig.bodies("out", 10) == [b"x"]

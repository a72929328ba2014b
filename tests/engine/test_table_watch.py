"""Scans and watches of the hash table on one node."""

from __future__ import annotations

import pytest

from tests.engine.rig import Rig
from weft import limits
from weft.errors import InvalidArgument
from weft.proto import wire


def put(rig: Rig, key: str, value: bytes = b"v", ttl_ms: int = 0) -> int:
    answer = rig.call(wire.Put(key, value, 0, 0, ttl_ms))
    assert isinstance(answer, wire.KeyWritten)
    return answer.version


def scan(rig: Rig, prefix: str = "", after: str = "", limit: int = 100) -> wire.KeyPage:
    answer = rig.call(wire.ScanKeys([], prefix, after, limit))
    assert isinstance(answer, wire.KeyPage)
    return answer


def changes(
    rig: Rig, after: list[int], prefix: str = "", *, exact: bool = False
) -> wire.KeyChanges:
    answer = rig.call(wire.WatchKeys([], prefix, after, 0, exact))
    assert isinstance(answer, wire.KeyChanges)
    return answer


def now(rig: Rig) -> list[int]:
    return changes(rig, [-1] * 4).positions


def pairs(answer: wire.KeyChanges) -> list[tuple[str, bytes | None]]:
    return sorted(zip(answer.keys, answer.values, strict=True))


def test_a_scan_is_in_the_order_of_the_keys(rig: Rig) -> None:
    keys = [f"p/{number:03}" for number in range(50)] + ["o", "q", "p", "p/\N{SNOWMAN}"]
    rig.call(wire.InsertMany([], keys, [key.encode() for key in keys], 0, 0))
    rig.call(wire.Insert("p/010+", b"old form"))
    page = scan(rig, "p/")
    wanted = sorted([key for key in keys if key.startswith("p/")] + ["p/010+"])
    assert page.keys == wanted
    assert page.values[:2] == [b"p/000", b"p/001"]
    assert not page.more
    assert scan(rig).keys == sorted([*keys, "p/010+"])


def test_pages_follow_each_other(rig: Rig) -> None:
    keys = [f"{number:03}" for number in range(25)]
    rig.call(wire.InsertMany([], keys, [b""] * 25, 0, 0))
    found, after, more = list[str](), "", True
    while more:
        page = scan(rig, after=after, limit=10)
        assert len(page.keys) <= 10
        found += page.keys
        after, more = page.after, page.more
    assert found == keys
    rig.call(wire.RemoveMany([], keys[5:], 0, 0))
    assert scan(rig, after="002").keys == ["003", "004"]


def test_a_page_has_a_bound_in_bytes(rig: Rig) -> None:
    for number in range(5):
        put(rig, f"{number}", bytes(3 * limits.MIB))
    page = scan(rig)
    assert (page.keys, page.more, page.after) == (["0", "1"], True, "1")


def test_a_scan_leaves_out_what_has_expired(rig: Rig) -> None:
    put(rig, "a", ttl_ms=500)
    put(rig, "b")
    rig.now += 600_000
    assert scan(rig).keys == ["b"]
    rig.crash()
    assert scan(rig).keys == ["b"]


@pytest.mark.parametrize(
    "request_",
    [
        wire.ScanKeys([], "", "", 0),
        wire.ScanKeys([], "", "", limits.TABLE_SCAN_MAX + 1),
        wire.ScanKeys([], "p" * 1025, "", 1),
        wire.ScanKeys([], "", "p" * 1025, 1),
        wire.ScanKeys([4], "", "", 1),
        wire.WatchKeys([], "", [0]),
        wire.WatchKeys([-1], "", [0]),
        wire.WatchKeys([0], "p" * 1025, [0]),
        wire.WatchKeys([0], "", [0], -1),
        wire.WatchKeys([0], "", [0], limits.WAIT_MS_MAX + 1),
    ],
)
def test_what_is_refused(rig: Rig, request_: wire.AnyRequest) -> None:
    with pytest.raises(InvalidArgument):
        rig.call(request_)


def test_a_watch_has_all_changes_since_its_start(rig: Rig) -> None:
    put(rig, "p/before")
    start = now(rig)
    put(rig, "p/a", b"1")
    put(rig, "p/a", b"2")
    put(rig, "other")
    rig.call(wire.Insert("p/old", b"3"))
    rig.call(wire.RemoveMany([], ["p/before", "absent"], 0, 0))
    rig.call(wire.InsertMany([], ["p/b", "p/c"], [b"4", b"5"], 0, 0))
    found = changes(rig, start, "p/")
    assert pairs(found) == [
        ("p/a", b"1"), ("p/a", b"2"), ("p/b", b"4"), ("p/before", None), ("p/c", b"5"),
        ("p/old", b"3"),
    ]  # fmt: skip
    of_a = [value for key, value in zip(found.keys, found.values, strict=True) if key == "p/a"]
    assert of_a == [b"1", b"2"]
    assert changes(rig, found.positions, "p/").keys == []
    assert pairs(changes(rig, start, "p/b", exact=True)) == [("p/b", b"4")]


def test_a_waiting_watch_is_answered_by_the_change(rig: Rig) -> None:
    start = now(rig)
    token = rig.ask(wire.WatchKeys([], "k", start, 10_000))
    put(rig, "other")
    assert rig.answer(token) is None
    version = put(rig, "k", b"1")
    answered = rig.answer(token)
    assert answered is not None
    assert isinstance(answered.answer, wire.KeyChanges)
    assert (answered.answer.keys, answered.answer.versions) == (["k"], [version])
    assert answered.rests_on, "the answer waits for the commit of the change"
    assert not rig.engine.state.table.waiting_at


def test_a_watch_ends_with_its_wait_or_its_caller_or_the_node(rig: Rig) -> None:
    start = now(rig)
    token = rig.ask(wire.WatchKeys([], "k", start, 500))
    put(rig, "other")
    rig.advance(600)
    answered = rig.answer(token)
    assert answered is not None
    assert isinstance(answered.answer, wire.KeyChanges)
    assert answered.answer.positions > start
    token = rig.ask(wire.WatchKeys([], "k", start, 500))
    rig.engine.cancel(token)
    rig.ask(wire.WatchKeys([], "k", start, 500))
    rig.restart()
    assert not rig.engine.state.table.watchers


def test_expiry_is_a_change(rig: Rig) -> None:
    put(rig, "k", ttl_ms=1000)
    start = now(rig)
    token = rig.ask(wire.WatchKeys([], "k", start, 10_000))
    rig.advance(2500)
    answered = rig.answer(token)
    assert answered is not None
    assert isinstance(answered.answer, wire.KeyChanges)
    assert pairs(answered.answer) == [("k", None)]


def test_lost_history_is_reported(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    start = now(rig)
    put(rig, "k", b"1")
    rig.crash()
    found = changes(rig, start)
    assert len(found.lost) == 1, "three partitions had no write, so nothing of them is lost"
    assert found.keys == []
    assert changes(rig, found.positions).lost == []
    monkeypatch.setattr(limits, "TABLE_CHANGES_MAX", 3)
    start = now(rig)
    for number in range(4):
        put(rig, "k", b"%d" % number)
    assert len(changes(rig, start).lost) == 1


def test_changes_of_other_keys_do_not_make_a_waiting_watch_lose_history(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TABLE_CHANGES_MAX", 3)
    token = rig.ask(wire.WatchKeys([], "k", now(rig), 10_000))
    for number in range(20):
        put(rig, "other", b"%d" % number)
    put(rig, "k", b"1")
    answered = rig.answer(token)
    assert answered is not None
    assert isinstance(answered.answer, wire.KeyChanges)
    assert (pairs(answered.answer), answered.answer.lost) == ([("k", b"1")], [])


def test_an_unwatched_partition_keeps_no_history(rig: Rig) -> None:
    put(rig, "k")
    assert not rig.engine.state.table.histories
    now(rig)
    rig.advance(4 * limits.WAIT_MS_MAX)
    rig.advance(30_000)
    assert not rig.engine.state.table.histories


def test_a_position_of_another_cluster_is_told_as_lost(rig: Rig) -> None:
    positions = now(rig)
    answer = changes(rig, [position + 1_000_000 for position in positions])
    assert answer.lost == [0, 1, 2, 3]
    assert answer.positions == positions

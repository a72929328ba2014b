"""The table's versions, conditions, expiry and named writes, one key at a time."""

from __future__ import annotations

import pytest

from tests.engine.rig import Rig
from weft import limits
from weft.errors import InvalidArgument, StorageFull, TooLarge, VersionMismatch
from weft.proto import wire

SECOND_MS = 1_000


class Table:
    """Calls with fresh names, unless a test gives one."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._number = 0

    def name(self) -> tuple[int, int]:
        self._number += 1
        return 7, self._number

    def put(self, key: str, value: bytes, ttl_ms: int = 0, if_version: int = -1) -> wire.KeyWritten:
        answer = self._rig.call(wire.Put(key, value, *self.name(), ttl_ms, if_version))
        assert isinstance(answer, wire.KeyWritten)
        return answer

    def remove(self, key: str, if_version: int = -1) -> wire.KeyWritten:
        answer = self._rig.call(wire.RemoveKey(key, *self.name(), if_version))
        assert isinstance(answer, wire.KeyWritten)
        return answer

    def append(self, key: str, value: bytes) -> wire.KeyWritten:
        answer = self._rig.call(wire.AppendKey(key, value, *self.name()))
        assert isinstance(answer, wire.KeyWritten)
        return answer

    def swap(self, key: str, old: bytes | None, new: bytes | None) -> wire.Swapped:
        answer = self._rig.call(wire.SwapKey(key, old, new, *self.name()))
        assert isinstance(answer, wire.Swapped)
        return answer

    def row(self, key: str) -> tuple[bytes | None, int]:
        answer = self._rig.call(wire.LookupMany([], [key]))
        assert isinstance(answer, wire.FoundRows)
        return answer.values[0], answer.versions[0]

    def value(self, key: str) -> bytes | None:
        answer = self._rig.call(wire.Lookup(key))
        assert isinstance(answer, wire.Value)
        assert answer.value == self.row(key)[0]
        return answer.value


@pytest.fixture
def table(rig: Rig) -> Table:
    return Table(rig)


def test_versions_rise_with_every_write_and_across_a_restart(rig: Rig, table: Table) -> None:
    versions = [table.put("k", b"1").version, table.put("k", b"1").version]
    rig.crash()
    assert table.row("k") == (b"1", versions[-1])
    versions.append(table.append("k", b"2").version)
    removed = table.remove("k")
    assert removed.done
    versions += [removed.version, table.put("k", b"3").version]
    versions.append(table.swap("k", b"3", b"4").version)
    assert versions == sorted(set(versions))
    assert table.row("k") == (b"4", versions[-1])


def test_a_condition_on_the_version(rig: Rig, table: Table) -> None:
    first = table.put("k", b"1", if_version=0)
    assert first.done
    assert table.put("k", b"2", if_version=0) == wire.KeyWritten(False, first.version)
    assert table.put("k", b"2", if_version=first.version + 1) == wire.KeyWritten(
        False, first.version
    )
    second = table.put("k", b"2", if_version=first.version)
    assert second.done
    assert table.remove("k", if_version=first.version) == wire.KeyWritten(False, second.version)
    assert table.remove("k", if_version=second.version).done
    assert table.remove("k", if_version=second.version) == wire.KeyWritten(False, 0)
    assert table.put("k", b"3", if_version=second.version) == wire.KeyWritten(False, 0)


def test_a_row_of_an_old_verb_meets_no_condition_until_it_is_written_again(
    rig: Rig, table: Table
) -> None:
    rig.call(wire.Insert("k", b"old"))
    assert table.row("k") == (b"old", 0)
    assert not table.put("k", b"x", if_version=0).done
    assert not table.put("k", b"x", if_version=1).done
    version = table.put("k", b"new").version
    assert table.row("k") == (b"new", version)
    rig.call(wire.Insert("k", b"newer"))  # a key with a version keeps having one
    assert table.row("k")[1] > version
    rig.crash()
    assert table.value("k") == b"newer"
    rig.call(wire.Append("bare", b"1"))
    rig.crash()
    rig.call(wire.Append("bare", b"2"))
    assert table.row("bare") == (b"12", 0)
    assert table.remove("bare").done
    assert table.value("bare") is None


def test_a_key_expires_at_once_and_not_before(rig: Rig, table: Table) -> None:
    table.put("k", b"v", ttl_ms=1000)
    rig.advance(900)
    assert table.value("k") == b"v"
    rig.advance(200)
    assert table.row("k") == (None, 0)
    assert table.put("k", b"w", if_version=0).done
    rig.advance(5 * SECOND_MS)
    assert table.value("k") == b"w"


def test_what_a_write_does_to_the_expiry(rig: Rig, table: Table) -> None:
    for key in ("appended", "put", "swapped"):
        table.put(key, b"v", ttl_ms=1000)
    rig.call(wire.Insert("old", b"v"))
    table.append("appended", b"+")
    table.put("put", b"w")
    table.swap("swapped", b"v", b"w")
    table.put("old", b"w", ttl_ms=1000)
    rig.advance(2 * SECOND_MS)
    assert [table.value(key) for key in ("appended", "put", "swapped", "old")] == [
        None, b"w", b"w", None,
    ]  # fmt: skip


def test_expired_rows_are_removed_in_the_background(rig: Rig, table: Table) -> None:
    before = len(list(rig.store.scan(b"t", b"u")))
    keys = [f"key {number}" for number in range(1300)]
    rig.call(wire.InsertMany([], keys, [b"v"] * len(keys), 0, 0, 1000))
    assert len(list(rig.store.scan(b"t", b"u"))) >= before + 2 * len(keys)
    rig.advance(3 * SECOND_MS)
    left = len(list(rig.store.scan(b"t", b"u")))
    assert left <= before + 4, "the clocks of four partitions are left"


def test_a_replaced_expiry_does_not_remove_the_new_value(rig: Rig, table: Table) -> None:
    table.put("k", b"1", ttl_ms=1000)
    table.put("k", b"2", ttl_ms=60_000)
    rig.advance(3 * SECOND_MS)
    assert table.value("k") == b"2"


def test_time_without_a_primary_does_not_count(rig: Rig, table: Table) -> None:
    """The next primary's clock may be ahead: only time that a primary has seen passes."""
    table.put("k", b"v", ttl_ms=60_000)
    rig.advance(20 * SECOND_MS)
    rig.now += 3_600_000_000
    rig.crash()
    assert table.value("k") == b"v"
    rig.advance(35 * SECOND_MS)
    assert table.value("k") == b"v"
    rig.advance(30 * SECOND_MS)
    assert table.value("k") is None


def test_an_expiry_that_was_seen_stays_after_a_failover(rig: Rig, table: Table) -> None:
    table.put("k", b"v", ttl_ms=1000)
    rig.advance(1_500)
    assert table.value("k") is None  # the removal is in the log before the answer leaves
    rig.crash()
    assert table.value("k") is None


@pytest.mark.parametrize("crash", [False, True])
def test_a_resent_write_has_one_effect_and_the_first_result(
    rig: Rig, table: Table, crash: bool
) -> None:
    requests: list[wire.AnyRequest] = [
        wire.AppendKey("a", b"1", *table.name()),
        wire.SwapKey("b", None, b"1", *table.name()),
        wire.Put("c", b"1", *table.name(), if_version=0),
        wire.RemoveKey("c", *table.name()),
        wire.InsertMany([], ["d", "e", "f"], [b"1"] * 3, *table.name()),
        wire.RemoveMany([], ["d", "absent", "f"], *table.name()),
    ]
    first = [rig.call(request) for request in requests]
    table.append("a", b"2")
    table.swap("b", b"1", b"2")
    table.put("c", b"2")
    table.put("d", b"2")
    if crash:
        rig.crash()
    assert [rig.call(request) for request in requests] == first
    assert [table.value(key) for key in "abcdef"] == [b"12", b"2", b"2", b"2", b"1", None]
    assert first[5] == wire.KeysWritten([True, False, True])


@pytest.mark.parametrize("crash", [False, True])
def test_a_late_attempt_of_a_write_without_effect_has_none(
    rig: Rig, table: Table, crash: bool
) -> None:
    """The caller may have the answer of another attempt: that answer must stay true."""
    requests: list[wire.AnyRequest] = [
        wire.SwapKey("k", b"1", b"2", *table.name()),
        wire.RemoveKey("k", *table.name()),
        wire.Put("k", b"x", *table.name(), if_version=5),
        wire.RemoveMany([], ["k", "l"], *table.name()),
    ]
    first = [rig.call(request) for request in requests]
    assert first[0] == wire.Swapped(False, None, 0)
    table.put("k", b"1")
    if crash:
        rig.crash()
    assert [rig.call(request) for request in requests] == first
    assert table.value("k") == b"1"


def test_the_value_found_by_a_swap_is_kept_if_it_is_small(rig: Rig, table: Table) -> None:
    table.put("small", b"1")
    table.put("large", bytes(10_000))
    requests = [wire.SwapKey(key, b"2", b"3", *table.name()) for key in ("small", "large")]
    first = [rig.call(request) for request in requests]
    assert [rig.call(request) for request in requests] == first
    table.put("small", b"2")
    table.put("large", b"2")
    assert rig.call(requests[0]) == first[0]
    with pytest.raises(VersionMismatch, match="not done"):
        rig.call(requests[1])


def test_names_are_forgotten_after_their_window(rig: Rig, table: Table) -> None:
    request = wire.AppendKey("a", b"1", *table.name())
    rig.call(request)
    rig.advance(limits.TABLE_NAME_MS - 1000)
    assert rig.call(request) == wire.KeyWritten(True, 1, 1)
    rig.advance(62 * SECOND_MS)
    assert not any(rig.engine.state.table.names.values())
    names = [key for key, _ in rig.store.scan(b"t", b"u") if key[3:5] == b"\xffn"]
    assert names == []


def test_a_partition_remembers_a_bounded_number_of_names(
    rig: Rig, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TABLE_NAMES_MAX", 3)
    for number in range(5):
        table.append("a", b"%d" % number)
    assert len(next(iter(rig.engine.state.table.names.values()))) == 3
    names = [key for key, _ in rig.store.scan(b"t", b"u") if key[3:5] == b"\xffn"]
    assert len(names) == 3


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (wire.Put("", b"", 0, 0), InvalidArgument),
        (wire.Put("k" * (limits.TABLE_KEY_BYTES_MAX + 1), b"", 0, 0), InvalidArgument),
        (wire.Put("k", bytes(limits.TABLE_VALUE_BYTES_MAX + 1), 0, 0), TooLarge),
        (wire.Put("k", b"", 0, 0, -1), InvalidArgument),
        (wire.Put("k", b"", 0, 0, limits.TABLE_TTL_MS_MAX + 1), InvalidArgument),
        (wire.Put("k", b"", 0, 0, 0, -2), InvalidArgument),
        (wire.Put("k", b"", 1 << 56, 0), InvalidArgument),
        (wire.Put("k", b"", 0, 1 << 40), InvalidArgument),
        (wire.Put("\0purged/x", b"", 0, 0), InvalidArgument),
        (wire.RemoveKey("k", 0, -1), InvalidArgument),
        (wire.RemoveKey("k", 0, 0, -2), InvalidArgument),
        (wire.SwapKey("k", None, bytes(limits.TABLE_VALUE_BYTES_MAX + 1), 0, 0), TooLarge),
        (wire.InsertMany([], [], [], 0, 0), InvalidArgument),
        (wire.InsertMany([], ["a"], [], 0, 0), InvalidArgument),
        (wire.InsertMany([], ["a", "a"], [b"", b""], 0, 0), InvalidArgument),
        (wire.InsertMany([], ["a", ""], [b"", b""], 0, 0), InvalidArgument),
        (wire.InsertMany([], ["a", "\0restored/"], [b"", b""], 0, 0), InvalidArgument),
        (wire.InsertMany([], ["a"], [b""], 0, 0, -5), InvalidArgument),
        (wire.InsertMany([], ["a"], [bytes(limits.TABLE_VALUE_BYTES_MAX + 1)], 0, 0), TooLarge),
        (wire.InsertMany([99], ["a"], [b""], 0, 0), InvalidArgument),
        (wire.InsertMany([], ["a"], [b""], -1, 0), InvalidArgument),
        (wire.LookupMany([], []), InvalidArgument),
        (wire.LookupMany([], ["k"] * (limits.TABLE_BATCH_KEYS_MAX + 1)), InvalidArgument),
        (wire.RemoveMany([], ["a", "k" * 1025], 0, 0), InvalidArgument),
    ],
)
def test_what_is_refused(rig: Rig, request_: wire.AnyRequest, error: type[Exception]) -> None:
    before = list(rig.store.scan(b"t", b"u"))
    with pytest.raises(error):
        rig.call(request_)
    assert list(rig.store.scan(b"t", b"u")) == before


def test_a_full_disk_refuses_writes_and_takes_removals(rig: Rig, table: Table) -> None:
    rig.call(wire.InsertMany([], ["a", "b"], [b"1", b"2"], 0, 0))
    rig.engine.set_full(True)
    for request in (wire.Put("k", b"", 0, 0), wire.InsertMany([], ["k"], [b""], 0, 0)):
        with pytest.raises(StorageFull):
            rig.call(request)
    assert table.remove("a").done
    assert rig.call(wire.RemoveMany([], ["b"], 0, 0)) == wire.KeysWritten([True])

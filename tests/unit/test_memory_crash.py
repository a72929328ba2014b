"""The memory store's crash model: the state after a power loss, and faults on demand."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import StorageError, StoreDamaged
from weft.persistence import layout
from weft.persistence.memory import MemoryStore
from weft.persistence.store import Change

KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
CHANGES = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=3)), max_size=4)
WRITES = st.lists(st.tuples(CHANGES, st.booleans()), max_size=12)


def rows(store: MemoryStore) -> dict[bytes, bytes]:
    return dict(store.scan(b"", b"\xff"))


def replay(writes: list[list[Change]]) -> dict[bytes, bytes]:
    after: dict[bytes, bytes] = {}
    for changes in writes:
        for key, value in changes:
            after.pop(key, None)
            if value is not None:
                after[key] = value
    return after


def run(writes: list[tuple[list[Change], bool]]) -> MemoryStore:
    store = MemoryStore()
    for changes, sync in writes:
        store.write(changes, sync=sync)
    return store


def last_synced(writes: list[tuple[list[Change], bool]]) -> int:
    return max((place for place, (_, sync) in enumerate(writes, 1) if sync), default=0)


@given(WRITES)
def test_a_crash_keeps_all_up_to_the_last_synced_write(
    writes: list[tuple[list[Change], bool]],
) -> None:
    after = run(writes).crash()
    assert rows(after) == replay([changes for changes, _ in writes[: last_synced(writes)]])


@given(WRITES, st.integers())
def test_a_crash_with_a_seed_keeps_a_prefix(
    writes: list[tuple[list[Change], bool]], seed: int
) -> None:
    after = run(writes).crash(random.Random(seed))
    changes = [changes for changes, _ in writes]
    prefixes = [replay(changes[:n]) for n in range(last_synced(writes), len(writes) + 1)]
    assert rows(after) in prefixes


def test_every_prefix_comes_up_and_none_is_torn() -> None:
    kept = set()
    for seed in range(100):
        store = MemoryStore()
        for n in range(3):
            store.write([(b"x%d" % n, b"1"), (b"y%d" % n, b"1")], sync=False)
        after = rows(store.crash(random.Random(seed)))
        assert {key[1:] for key in after if key[:1] == b"x"} == {
            key[1:] for key in after if key[:1] == b"y"
        }
        kept.add(len(after) // 2)
    assert kept == {0, 1, 2, 3}


def test_the_same_seed_crashes_the_same_way() -> None:
    def crashed() -> dict[bytes, bytes]:
        store = MemoryStore()
        for n in range(20):
            store.write([(b"%d" % n, b"1")], sync=False)
        return rows(store.crash(random.Random(7)))

    assert crashed() == crashed()


def test_the_crashed_store_is_gone_and_the_new_one_goes_on() -> None:
    store = run([([(b"a", b"1")], True), ([(b"a", b"2")], False)])
    after = store.crash()
    with pytest.raises(StorageError):
        store.get(b"a")
    assert after.path == store.path
    after.write([(b"b", b"1")], sync=False)
    assert rows(after.crash()) == {b"a": b"1"}


def test_a_failed_write_may_or_may_not_be_there_after_a_crash() -> None:
    seen = set()
    for seed in range(20):
        store = run([([(b"a", b"1")], True)])
        store.fail_next_write(OSError("disk gone"))
        with pytest.raises(StorageError, match="disk gone"):
            store.write([(b"a", b"2")], sync=True)
        seen.add(store.crash(random.Random(seed)).get(b"a"))
    assert seen == {b"1", b"2"}


def test_a_corrupt_value_differs_by_one_bit_and_stays_so() -> None:
    key = layout.body(1, 1)
    record = layout.seal(key, b"data")
    for sync in (True, False):
        store = run([([(key, b"older")], True), ([(b"x", b""), (key, record)], sync)])
        store.corrupt(key, random.Random(3))
        value = store.get(key)
        assert value is not None
        changed = int.from_bytes(value, "big") ^ int.from_bytes(record, "big")
        assert changed.bit_count() == 1
        with pytest.raises(StoreDamaged):
            layout.unseal(key, value, store.path)
        kept = {store.crash(random.Random(seed)).get(key) for seed in range(20)}
        assert kept <= {value, b"older"}
        assert value in kept

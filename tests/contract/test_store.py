"""One suite for every Store: the guarantees that the layers above rely on."""

from __future__ import annotations

import random
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from weft.errors import StorageError
from weft.limits import BATCH_BYTES_MAX
from weft.persistence import layout
from weft.persistence.leveldb import LevelStore
from weft.persistence.leveldb_reader import SCAN_ROWS
from weft.persistence.memory import MemoryStore
from weft.persistence.store import Store


@pytest.fixture(params=["level", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store
    if request.param == "level":
        made = LevelStore(tmp_path / "store", create=True)
    else:
        made = MemoryStore()
    yield made
    made.close()


@contextmanager
def failing_disk(store: Store) -> Iterator[None]:
    """Writes fail: in memory by a switch, on disk because files may not grow any more."""
    if isinstance(store, MemoryStore):
        store.fail_next_write(OSError("File too large"))
        yield
        return
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_what_is_written_is_read(store: Store) -> None:
    store.write([(b"a", b"1"), (b"b", b"")], sync=True)
    assert store.get(b"a") == b"1"
    assert store.get(b"b") == b""
    assert store.get(b"c") is None


@pytest.mark.parametrize("size", [0, 5, 8, 9, 100_000])
def test_a_value_is_read_in_two(store: Store, size: int) -> None:
    key, value = layout.body(1, 2), random.Random(size).randbytes(size)
    store.write([(key, value)], sync=True)
    assert store.get_parted(key, 8) == (value[:8], value[8:])
    assert store.get_parted(key, 0) == (b"", value)
    assert store.get_parted(layout.body(1, 3), 8) is None


def test_overwrite_and_delete(store: Store) -> None:
    store.write([(b"a", b"1"), (b"b", b"2")], sync=False)
    store.write([(b"a", b"3"), (b"b", None), (b"absent", None)], sync=False)
    assert list(store.scan(b"a", b"z")) == [(b"a", b"3")]


def test_the_last_change_of_a_key_in_one_write_wins(store: Store) -> None:
    store.write([(b"a", b"1"), (b"a", None), (b"b", None), (b"b", b"2")], sync=False)
    assert list(store.scan(b"a", b"z")) == [(b"b", b"2")]


def test_an_empty_write_changes_nothing(store: Store) -> None:
    store.write([], sync=True)
    assert list(store.scan(b"", b"\xff")) == []


def test_a_scan_is_sorted_by_unsigned_bytes(store: Store) -> None:
    keys = [bytes([n]) * m for n in (0, 1, 0x61, 0x7F, 0x80, 0xFF) for m in (1, 2, 3)]
    shuffled = list(keys)
    random.Random(1).shuffle(shuffled)
    store.write([(key, key) for key in shuffled], sync=False)
    assert [key for key, _ in store.scan(b"", b"\xff" * 4)] == sorted(keys)


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (b"b", b"d", [b"b", b"c"]),
        (b"b\0", b"c\0", [b"c"]),
        (b"", b"b", [b"a"]),
        (b"d", b"\xff", [b"d"]),
        (b"b", b"b", []),
        (b"d", b"a", []),
        (b"x", b"z", []),
    ],
)
def test_scan_bounds(store: Store, start: bytes, stop: bytes, expected: list[bytes]) -> None:
    store.write([(key, b"v") for key in (b"a", b"b", b"c", b"d")], sync=False)
    assert [key for key, _ in store.scan(start, stop)] == expected


def test_a_scan_is_a_snapshot_of_when_it_was_asked_for(store: Store) -> None:
    rows = [(b"%06d" % n, b"old") for n in range(3 * SCAN_ROWS)]
    store.write(list(rows), sync=False)
    scan = store.scan(b"0", b"9")
    store.write([(b"000000", b"new"), (b"000001", None), (b"000000a", b"new")], sync=False)
    seen = [next(scan)]
    store.write([(key, None) for key, _ in rows], sync=False)
    seen += scan
    assert seen == rows
    assert list(store.scan(b"0", b"9")) == [(b"000000a", b"new")]


def test_a_scan_may_be_left_early(store: Store) -> None:
    store.write([(b"%06d" % n, b"v") for n in range(10)], sync=False)
    scan = store.scan(b"0", b"9")
    assert next(scan) == (b"000000", b"v")
    del scan
    store.scan(b"0", b"9")
    store.close()


def test_values_up_to_a_whole_batch(store: Store) -> None:
    large = random.Random(2).randbytes(BATCH_BYTES_MAX)
    store.write([(b"a", large), (b"b", large[:100]), (b"c", large)], sync=True)
    assert store.get(b"a") == large
    assert [len(value) for _, value in store.scan(b"a", b"z")] == [len(large), 100, len(large)]
    assert store.size_bytes() > 2 * len(large)


def test_deleted_space_comes_back(store: Store) -> None:
    value = random.Random(3).randbytes(100_000)
    for n in range(50):
        store.write([(b"%d" % n, value)], sync=False)
    store.compact(b"0", b"9")
    assert store.size_bytes() > 50 * len(value)
    for n in range(50):
        store.write([(b"%d" % n, None)], sync=False)
    store.compact(b"0", b"9")
    assert store.size_bytes() < len(value)


def test_space_comes_back_of_values_that_were_never_in_a_table(store: Store) -> None:
    """LevelDB puts a memtable that overlaps no table two levels down, where no merge reaches it."""
    rows = [(b"h%06d" % number, bytes(1000)) for number in range(5000)]
    store.write([*rows, (b"h", b"the range's first key is kept")], sync=True)
    store.write([(key, None) for key, _ in rows], sync=True)
    store.compact(b"h", b"i")
    assert store.size_bytes() < 500_000
    assert store.get(b"h") == b"the range's first key is kept"


@pytest.mark.parametrize("bad", [[(b"", b"v")], [(b"a", b"v"), (b"", None)]])
def test_no_key_is_empty(store: Store, bad: list[tuple[bytes, bytes | None]]) -> None:
    with pytest.raises(AssertionError, match="empty"):
        store.write(bad, sync=False)
    assert list(store.scan(b"", b"\xff")) == []


CALLS: list[Callable[[Store], object]] = [
    lambda store: store.get(b"a"),
    lambda store: store.scan(b"a", b"b"),
    lambda store: store.write([(b"a", b"v")], sync=True),
    lambda store: store.compact(b"a", b"b"),
    lambda store: store.size_bytes(),
]


def test_a_failed_store_refuses_everything(store: Store) -> None:
    store.write([(b"a", b"v"), (b"b", b"v")], sync=True)
    scan = store.scan(b"a", b"z")
    with failing_disk(store), pytest.raises(StorageError, match="File too large") as failure:
        store.write([(b"c", b"v" * 100_000)], sync=True)
    assert store.path in failure.value.message
    calls: list[Callable[[Store], object]] = [*CALLS, lambda _: next(scan)]
    for call in calls:
        with pytest.raises(StorageError, match="File too large"):
            call(store)
    store.close()


def test_a_closed_store_refuses_everything(store: Store) -> None:
    store.write([(b"a", b"v")], sync=True)
    scan = store.scan(b"a", b"z")
    store.close()
    store.close()
    calls: list[Callable[[Store], object]] = [*CALLS, lambda _: next(scan)]
    for call in calls:
        with pytest.raises(StorageError, match="closed"):
            call(store)


def test_readers_and_a_close_in_other_threads(store: Store) -> None:
    store.write([(b"%04d" % n, b"v" * 1000) for n in range(2000)], sync=False)
    refused: list[StorageError] = []

    def read() -> None:
        try:
            while True:
                assert store.get(b"0001") == b"v" * 1000
                assert sum(1 for _ in store.scan(b"0", b"9")) == 2000
        except StorageError as error:
            refused.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    threading.Event().wait(0.05)
    store.close()
    for reader in readers:
        reader.join(timeout=100)
    assert [error.message for error in refused] == [
        f"{store.path}: the store is closed; open it again to use it"
    ] * 3

"""Files of dead segments are reused: their old content is never taken for new content."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.limits import KIB
from weft.persistence import layout, segment_pointer, segments
from weft.persistence.leveldb import LevelStore
from weft.persistence.overlay import Overlay
from weft.persistence.store import Change
from weft.server.node.compaction import Compaction

LARGE = 4 * KIB
SEGMENT = 64 * KIB
SPARES = 3


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_pointer, "LARGE_BYTES", LARGE)
    monkeypatch.setattr(segments, "SEGMENT_BYTES", SEGMENT)
    monkeypatch.setattr(segments, "SPARES_MAX", SPARES)
    monkeypatch.setattr(segments, "SPARES_FREE_MIN", 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(path: Path) -> Iterator[LevelStore]:
    made = LevelStore(path, create=True)
    yield made
    made.close()


def body(number: int) -> bytes:
    return layout.body(number % 7, number)


def value(number: int, size: int = LARGE) -> bytes:
    return layout.seal(body(number), random.Random(number).randbytes(size))


def inodes(path: Path) -> dict[int, str]:
    return {each.stat().st_ino: each.name for each in path.glob("*.segment")}


def rows(store: LevelStore) -> dict[bytes, bytes]:
    return dict(store.scan(b"", b"\xff"))


def fill(store: LevelStore, first: int, stop: int) -> dict[bytes, bytes]:
    for number in range(first, stop):
        store.write([(body(number), value(number))], sync=True)
    return {body(number): value(number) for number in range(first, stop)}


def drain(store: LevelStore, first: int, stop: int, *, sync: bool = True) -> None:
    for number in range(first, stop):
        store.write([(body(number), None)], sync=sync)
    store._segments.settle()


def recycled_segments(store: LevelStore) -> int:
    return len(store._segments._recycled_segments)


def test_so_many_files_are_kept_and_written_again(store: LevelStore, path: Path) -> None:
    fill(store, 0, 100)
    before = inodes(path)
    drain(store, 0, 99)
    assert recycled_segments(store) == SPARES
    assert len(inodes(path)) == SPARES + 1
    kept = {body(99): value(99), **fill(store, 200, 260)}
    after = inodes(path)
    again = before.keys() & after.keys()
    assert len(again) >= SPARES
    assert any(before[each] != after[each] for each in again)
    assert rows(store) == kept
    assert all(Overlay(store).read_bytes(key) == each[8:] for key, each in kept.items())


def test_what_stands_behind_the_end_is_nothing(store: LevelStore, path: Path) -> None:
    """Neither for a compaction, nor after a crash, nor in a closed store."""
    fill(store, 0, 48)  # three full segments
    drain(store, 0, 48)
    assert recycled_segments(store)
    kept = fill(store, 100, 102)
    current = store._segments._current
    assert [key for key, _, _ in store._segments.records(current)] == [body(100), body(101)]
    crashed = path.with_name("crashed")
    shutil.copytree(path, crashed)
    (crashed / "LOCK").unlink()
    other = LevelStore(crashed, create=False)
    assert rows(other) == kept
    assert len(inodes(crashed)) == 1, "spares are garbage"
    more = kept | fill(other, 200, 240)
    assert rows(other) == more
    other.close()
    store.close()
    (size,) = (each.stat().st_size for each in path.glob("*.segment"))
    assert size < 3 * LARGE
    again = LevelStore(path, create=False)
    assert rows(again) == kept
    again.close()


def test_a_scan_keeps_what_it_reads(store: LevelStore) -> None:
    kept = fill(store, 0, 40)
    scan = store.scan(b"", b"\xff")
    drain(store, 0, 40)
    assert not recycled_segments(store)
    fill(store, 100, 140)
    assert dict(scan) == kept


def test_none_are_kept_without_a_sync_or_where_the_disk_is_small(
    store: LevelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 0, 40)
    drain(store, 0, 40, sync=False)
    assert not recycled_segments(store)
    monkeypatch.setattr(segments, "SPARES_FREE_MIN", 1 << 62)
    fill(store, 100, 140)
    drain(store, 100, 140)
    assert not recycled_segments(store)


def test_a_write_that_does_not_sync_leaves_nothing_old_behind_it(
    store: LevelStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power loss may keep the write's pointers and not its bytes.

    Then the file is too short, which a start detects; the file must not hold its old content there.
    """
    sizes: list[tuple[int, int]] = []
    real = os.pwritev

    def watched(fd: int, buffers: list[bytes], at: int) -> int:
        sizes.append((os.fstat(fd).st_size, at))
        return real(fd, buffers, at)

    fill(store, 0, 48)
    drain(store, 0, 48)
    assert recycled_segments(store) == SPARES - 1, "one is written to"
    fill(store, 100, 101)
    monkeypatch.setattr(os, "pwritev", watched)
    some: list[Change] = [(body(number), value(number)) for number in range(101, 140)]
    store.write(some, sync=False)
    assert len(sizes) >= 3, "more than one file"
    assert all(size == at for size, at in sizes)
    assert not store._segments.spare_bytes
    assert rows(store) == {body(100): value(100), **dict(some)}


def test_they_are_no_part_of_the_size_and_go_with_a_compaction(
    store: LevelStore, path: Path
) -> None:
    fill(store, 0, 100)
    drain(store, 0, 99)
    files = sum(each.stat().st_size for each in path.iterdir())
    assert store.size_bytes() <= files - SPARES * SEGMENT
    store.compact(*layout.kind_range(layout.BODY))
    assert not recycled_segments(store)
    assert len(inodes(path)) == 1
    assert rows(store) == {body(99): value(99)}


def test_a_disk_at_its_reserve_gets_them_back(store: LevelStore, path: Path) -> None:
    fill(store, 0, 100)
    drain(store, 0, 99)
    check = Compaction(store).check
    check(live_bytes=1 << 40, free_bytes=0, full=False)
    assert recycled_segments(store) == SPARES
    check(live_bytes=1 << 40, free_bytes=0, full=True)
    store._segments.settle()
    assert not recycled_segments(store)
    assert len(inodes(path)) == 1
    assert rows(store) == {body(99): value(99)}

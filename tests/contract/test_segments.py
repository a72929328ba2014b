"""Large payloads in segments behave as any value, and their files follow the live data."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from weft.errors import StoreDamaged
from weft.limits import KIB
from weft.persistence import layout, leveldb, segment_pointer, segments
from weft.persistence.leveldb import LevelStore
from weft.persistence.memory import MemoryStore
from weft.persistence.overlay import Overlay
from weft.persistence.store import Change

LARGE = 4 * KIB
SEGMENT = 64 * KIB


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_pointer, "LARGE_BYTES", LARGE)
    monkeypatch.setattr(segments, "SEGMENT_BYTES", SEGMENT)
    monkeypatch.setattr(segments, "SPARES_MAX", 0)  # see test_recycled_segments.py


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
    return random.Random(number).randbytes(size)


def files(path: Path) -> list[Path]:
    return sorted(path.glob("*.segment"))


def soon(true: Callable[[], bool]) -> bool:
    """True if the condition becomes true: a separate thread removes files."""
    until = time.monotonic() + 30
    while not true() and time.monotonic() < until:
        time.sleep(0.01)
    return true()


def rows(store: LevelStore) -> dict[bytes, bytes]:
    return dict(store.scan(b"", b"\xff"))


def test_a_large_payload_is_written_once_and_not_by_leveldb(store: LevelStore, path: Path) -> None:
    large = value(1, SEGMENT)
    store.write([(body(1), large), (layout.head(1, 1), large)], sync=True)
    (segment,) = files(path)
    assert segment.stat().st_size > SEGMENT
    assert store._db.get(body(1)) != large
    assert store._db.get(layout.head(1, 1)) == large, "heads stay where they are scanned"
    assert rows(store) == {body(1): large, layout.head(1, 1): large}


def test_a_segment_goes_with_its_last_value(store: LevelStore, path: Path) -> None:
    for number in range(100):
        store.write([(body(number), value(number))], sync=True)
    assert len(files(path)) >= 6
    for number in range(99):
        store.write([(body(number), None)], sync=True)
    assert rows(store) == {body(99): value(99)}
    assert soon(lambda: len(files(path)) == 1)


@pytest.mark.parametrize("sync", [True, False])
def test_what_lives_in_a_dead_segment_is_moved(path: Path, sync: bool) -> None:
    store = LevelStore(path, create=True)
    for number in range(100):
        store.write([(body(number), value(number))], sync=sync)
    kept = {body(number): value(number) for number in (0, 33, 66, 99)}
    for number in range(100):
        if body(number) not in kept:
            store.write([(body(number), None)], sync=sync)
    scan = store.scan(b"", b"\xff")
    before = len(files(path))
    store.compact(*layout.kind_range(layout.BODY))
    assert len(files(path)) < before
    assert dict(scan) == kept, "a scan reads on what was there when it began"
    assert rows(store) == kept
    store.close()
    store = LevelStore(path, create=False)
    assert rows(store) == kept
    store.close()


def test_one_key_many_times_in_one_write(store: LevelStore, path: Path) -> None:
    key = body(1)
    store.write([(key, value(1)), (key, None), (key, value(2)), (key, value(3))], sync=True)
    assert store.get(key) == value(3)
    store.write([(key, value(4)), (key, None)], sync=True)
    assert store.get(key) is None
    store.write([(body(2), value(5, SEGMENT))], sync=True)
    store.write([(body(3), value(6))], sync=True)  # in the next segment
    store.write([(body(2), None)], sync=True)
    assert soon(lambda: len(files(path)) == 1), "nothing of the first one was counted twice"


def test_what_looks_like_a_pointer_is_none(store: LevelStore) -> None:
    store.write([(body(1), value(1))], sync=True)
    pointer = store._db.get(body(1))
    store.write([(body(2), pointer), (body(3), pointer + b"more")], sync=True)
    assert store.get(body(2)) == pointer
    assert store.get(body(3)) == pointer + b"more"


def test_a_restart_removes_what_a_crash_left(path: Path) -> None:
    store = LevelStore(path, create=True)
    store.write([(body(1), value(1))], sync=True)
    store.close()
    (path / "000007.segment").write_bytes(b"appended, and the write never came")
    store = LevelStore(path, create=False)
    store.write([(body(2), value(2))], sync=True)
    assert rows(store) == {body(1): value(1), body(2): value(2)}
    assert len(files(path)) == 2
    store.write([(body(1), None), (body(2), None)], sync=True)
    store.close()
    store = LevelStore(path, create=False)
    assert files(path) == []
    assert rows(store) == {}
    store.write([], sync=True)
    store.close()
    LevelStore(path, create=False).close()


@pytest.mark.parametrize("what", ["remove", "cut", "flip"])
def test_damage_names_the_segment(path: Path, what: str) -> None:
    store = LevelStore(path, create=True)
    store.write([(body(1), value(1)), (body(2), value(2))], sync=True)
    store.close()
    (segment,) = files(path)
    if what == "remove":
        segment.unlink()
    elif what == "cut":
        os.truncate(segment, segment.stat().st_size - 1)
    else:
        data = bytearray(segment.read_bytes())
        data[-1] ^= 1
        segment.write_bytes(data)
    with pytest.raises(StoreDamaged, match=segment.name):
        _read_all(path)


def test_damage_shows_in_either_part(store: LevelStore, path: Path) -> None:
    """Before any reader gets one of its bytes; the error names the file."""
    sealed = layout.seal(body(1), value(1))
    store.write([(body(1), sealed)], sync=True)
    (segment,) = files(path)
    whole = segment.read_bytes()
    start = whole.index(sealed)
    for place in (start, start + 7, start + 8, len(whole) - 1):
        data = bytearray(whole)
        data[place] ^= 1
        segment.write_bytes(data)
        with pytest.raises(StoreDamaged, match=segment.name):
            Overlay(store).read_bytes(body(1))
        with pytest.raises(StoreDamaged, match=segment.name):
            store.get(body(1))
    segment.write_bytes(whole)
    assert Overlay(store).read_bytes(body(1)) == value(1)


def test_what_is_another_keys_shows(store: LevelStore) -> None:
    """An undamaged payload that was sealed for another key."""
    store.write([(body(1), layout.seal(body(2), value(1)))], sync=True)
    with pytest.raises(StoreDamaged, match=body(1).hex()):
        Overlay(store).read_bytes(body(1))


def test_a_payload_that_is_cut_short_shows_in_two_parts_too(store: LevelStore, path: Path) -> None:
    store.write([(body(1), value(1))], sync=True)
    (segment,) = files(path)
    os.truncate(segment, segment.stat().st_size - 1)
    with pytest.raises(StoreDamaged, match=segment.name):
        store.get_parted(body(1), 8)


def _read_all(path: Path) -> None:
    store = LevelStore(path, create=False)
    try:
        rows(store)
    finally:
        store.close()


def test_bytes_are_on_disk_before_what_points_to_them(
    store: LevelStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of syncs, as the system sees them."""
    seen: list[str] = []

    def watched(owner: object, name: str, word: str) -> None:
        real = getattr(owner, name)

        def call(*arguments: Any) -> Any:
            seen.append(word)
            return real(*arguments)

        monkeypatch.setattr(owner, name, call)

    watched(os, "fdatasync", "segment")
    watched(os, "unlink", "unlink")
    watched(leveldb, "sync_logs", "logs")
    watched(store._segments, "usages", "pointers")
    store.write([(body(1), value(1, SEGMENT))], sync=True)
    assert seen == ["segment", "pointers"]
    seen.clear()
    store.write([(body(2), value(2))], sync=False)
    assert seen == ["pointers"]
    store.write([(body(3), value(3))], sync=True)
    assert seen == ["pointers", "segment", "pointers", "logs"], "with all that came before"
    store.write([(body(4), value(4))], sync=False)
    seen.clear()
    store.write([(layout.head(1, 1), b"small")], sync=True)
    assert seen == ["segment", "logs"], "though it brings no bytes of its own"
    seen.clear()
    store.write([(body(1), None)], sync=False)
    assert soon(lambda: "unlink" in seen)
    assert seen == ["pointers", "logs", "unlink"], "pointers must not come back without the bytes"


def test_what_is_moved_is_on_disk_before_it_is_pointed_to(
    store: LevelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No client waits for a move, yet a power loss must not take data that was on disk."""
    for number in range(100):
        store.write([(body(number), value(number))], sync=True)
    for number in range(90):
        if number % 10:
            store.write([(body(number), None)], sync=True)
    states: list[set[int]] = []
    real = store._segments.usages

    def watched() -> list[tuple[int, bytes | None]]:
        states.append(set(store._segments.unsynced))
        return real()

    monkeypatch.setattr(store._segments, "usages", watched)
    monkeypatch.setattr(leveldb, "MOVED_AT_ONCE", 2)
    store.compact(*layout.kind_range(layout.BODY))
    assert len(states) > 5
    assert not any(states)


def test_a_file_that_cannot_be_removed_harms_nobody(
    store: LevelStore, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "no", path)

    store.write([(body(1), value(1, SEGMENT))], sync=True)
    store.write([(body(2), value(2))], sync=True)
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", refuse)
        store.write([(body(1), None)], sync=True)
        assert soon(lambda: "000001.segment cannot be removed" in caplog.text)
    store.write([(body(3), value(3))], sync=True)
    assert rows(store) == {body(2): value(2), body(3): value(3)}
    store.close()
    assert len(files(path)) == 2
    LevelStore(path, create=False).close()
    assert len(files(path)) == 1, "it goes when the store is opened"


def test_a_store_that_is_closed_has_removed_everything(path: Path) -> None:
    store = LevelStore(path, create=True)
    for number in range(200):
        store.write([(body(number), value(number))], sync=False)
    store.write([(body(number), None) for number in range(200)], sync=True)
    store.close()
    assert len(files(path)) <= 1, "the one that was appended to"


def test_the_same_as_in_memory(path: Path) -> None:
    """Random writes, compactions and restarts: always equal to a plain map."""
    rng = random.Random(11)
    store, model = LevelStore(path, create=True), MemoryStore()
    for turn in range(400):
        changes: list[Change] = []
        for _ in range(rng.randrange(1, 5)):
            key = body(rng.randrange(40))
            size = rng.choice([0, 10, LARGE - 1, LARGE, 3 * LARGE])
            changes.append((key, None if rng.random() < 0.4 else value(turn, size)))
        sync = rng.random() < 0.5
        store.write(changes, sync=sync)
        model.write(changes, sync=sync)
        if turn % 40 == 39:
            if rng.random() < 0.5:
                store.compact(*layout.kind_range(layout.BODY))
            else:
                store.close()
                store = LevelStore(path, create=False)
            assert rows(store) == dict(model.scan(b"", b"\xff"))
    for number in range(40):
        store.write([(body(number), None)], sync=True)
    store.compact(*layout.kind_range(layout.BODY))
    store.close()
    store = LevelStore(path, create=False)
    assert rows(store) == {}
    assert files(path) == []
    store.close()

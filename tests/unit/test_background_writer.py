"""Background writer: reads see pending writes, order holds, nothing is durable too early."""

from __future__ import annotations

import random
import select
import threading
from collections.abc import Iterator

import pytest

from weft.errors import StorageError
from weft.persistence.background_writer import BackgroundWriter
from weft.persistence.memory import MemoryStore
from weft.persistence.store import Change

WAIT_S = 10.0


class SlowStore(MemoryStore):
    """Writes wait until released."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()
        self.begun = threading.Event()
        self.writes: list[tuple[list[Change], bool]] = []

    def write(self, changes: list[Change], *, sync: bool) -> None:
        self.begun.set()
        assert self.free.wait(WAIT_S)
        self.writes.append((changes, sync))
        super().write(changes, sync=sync)


@pytest.fixture
def slow() -> SlowStore:
    return SlowStore()


@pytest.fixture
def background_writer(slow: SlowStore) -> Iterator[BackgroundWriter]:
    made = BackgroundWriter(slow)
    yield made
    slow.free.set()
    made.close()


def hand_over(background_writer: BackgroundWriter, *changes: Change, sync: bool = True) -> None:
    background_writer.gather(list(changes), sync=sync)
    background_writer.begin()


def is_ready(background_writer: BackgroundWriter) -> bool:
    return bool(select.select([background_writer.fd], [], [], 0)[0])


def test_reads_see_what_is_under_way_and_what_is_gathered(
    slow: SlowStore, background_writer: BackgroundWriter
) -> None:
    slow.free.set()
    slow.write([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")], sync=True)
    slow.free.clear()
    hand_over(background_writer, (b"a", b"2"), (b"b", None))
    assert [background_writer.get(key) for key in (b"a", b"b", b"c")] == [b"2", None, b"1"]
    background_writer.gather([(b"a", None), (b"b", b"3")], sync=True)
    assert [background_writer.get(key) for key in (b"a", b"b", b"c")] == [None, b"3", b"1"]
    parts = [background_writer.get_parted(key, 1) for key in (b"a", b"b", b"c", b"d")]
    assert parts == [None, (b"3", b""), (b"1", b""), None]
    slow.free.set()
    background_writer.settle()
    assert [background_writer.get(key) for key in (b"a", b"b", b"c")] == [None, b"3", b"1"]


def test_what_is_gathered_is_one_write_of_the_newest_values(
    slow: SlowStore, background_writer: BackgroundWriter
) -> None:
    hand_over(background_writer, (b"a", b"1"))
    background_writer.gather([(b"b", b"22"), (b"c", b"333")], sync=False)
    assert background_writer.gathered_bytes == 5
    background_writer.gather([(b"b", b"4444")], sync=True)
    slow.free.set()
    background_writer.settle()
    background_writer.begin()
    assert background_writer.busy
    assert not background_writer.gathered
    assert background_writer.gathered_bytes == 0
    background_writer.settle()
    assert [dict(changes) for changes, _ in slow.writes] == [
        {b"a": b"1"}, {b"b": b"4444", b"c": b"333"},
    ]  # fmt: skip
    assert [sync for _, sync in slow.writes] == [True, True], "one that is synced syncs all"


def test_the_descriptor_tells_of_the_end(
    slow: SlowStore, background_writer: BackgroundWriter
) -> None:
    hand_over(background_writer, (b"a", b"1"))
    assert slow.begun.wait(WAIT_S)
    assert not is_ready(background_writer)
    slow.free.set()
    assert select.select([background_writer.fd], [], [], WAIT_S)[0]
    assert background_writer.settle() >= 0.0
    assert not is_ready(background_writer)
    assert not background_writer.busy


def test_what_is_settled_is_on_disk_and_what_is_gathered_is_not(
    slow: SlowStore, background_writer: BackgroundWriter
) -> None:
    hand_over(background_writer, (b"a", b"1"))
    background_writer.gather([(b"b", b"2")], sync=True)
    slow.free.set()
    background_writer.settle()
    crashed = slow.crash(random.Random(1))
    assert (crashed.get(b"a"), crashed.get(b"b")) == (b"1", None)


def test_a_scan_waits_for_all_of_it(slow: SlowStore, background_writer: BackgroundWriter) -> None:
    hand_over(background_writer, (b"a", b"1"))
    background_writer.gather([(b"b", b"2")], sync=True)
    threading.Timer(0.05, slow.free.set).start()
    assert list(background_writer.scan(b"a", b"z")) == [(b"a", b"1"), (b"b", b"2")]
    assert background_writer.busy, "it is settled by who handed it over"
    assert not background_writer.gathered
    background_writer.settle()
    assert slow.crash(random.Random(1)).get(b"b") == b"2", "what is not gathered is on disk"


def test_reads_after_a_scan_see_the_gathered_value_that_it_wrote(
    slow: SlowStore, background_writer: BackgroundWriter
) -> None:
    slow.free.set()
    hand_over(background_writer, (b"a", b"1"))
    background_writer.gather([(b"a", b"2")], sync=True)
    assert list(background_writer.scan(b"a", b"b")) == [(b"a", b"2")]
    assert background_writer.get(b"a") == b"2"
    assert background_writer.get_parted(b"a", 1) == (b"2", b"")
    background_writer.settle()
    assert background_writer.get(b"a") == b"2"


def test_a_failed_write_is_raised_by_all_that_waits_for_it(
    slow: SlowStore, background_writer: BackgroundWriter
) -> None:
    slow.fail_next_write(OSError("no space left"))
    slow.free.set()
    hand_over(background_writer, (b"a", b"1"))
    for _ in range(2):
        with pytest.raises(StorageError):
            background_writer.settle()
    with pytest.raises(StorageError):
        background_writer.scan(b"a", b"z")


def test_one_write_at_a_time(slow: SlowStore, background_writer: BackgroundWriter) -> None:
    hand_over(background_writer, (b"a", b"1"))
    background_writer.gather([(b"b", b"2")], sync=True)
    with pytest.raises(AssertionError):
        background_writer.begin()
    slow.free.set()


def test_it_closes_after_the_write_under_way(
    slow: SlowStore, background_writer: BackgroundWriter
) -> None:
    hand_over(background_writer, (b"a", b"1"))
    assert slow.begun.wait(WAIT_S)
    threading.Timer(0.05, slow.free.set).start()
    background_writer.close()
    assert len(slow.writes) == 1
    background_writer.close()

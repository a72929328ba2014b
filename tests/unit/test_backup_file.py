"""A backup file: read as written, or refused with the place of the damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.client.backup import restore
from weft.client.backup.file import (
    RECORD_BYTES_MAX,
    VERSION_PLAIN,
    Batches,
    End,
    QueueKept,
    Record,
    Rows,
    Start,
    TopicKept,
    Writer,
    read,
)
from weft.errors import BackupDamaged, StoreVersion
from weft.proto import wire

PART = wire.KeptPart(0, 1, "q", 2, 0, "why", "from")
KEPT = wire.Kept("q", 1, 2, 1, 3, 0, None, [PART], wire.encode(wire.Payload([b"body"])))
WHOLE: list[Record] = [
    Start(b"i" * 16, "0", "cluster", 256, "now", None),
    QueueKept("q", {"lease_ms": 1000, "ordered": False, "dead_letter": ""}),
    TopicKept("t", [wire.Binding("q", {"a": "b"}, {"c": "d"})]),
    Batches([KEPT, KEPT]),
    Rows([("k", b"v")]),
    End(1, 2, 2, 1, "then", 1),
]


def write(path: Path, records: list[Record]) -> Path:
    with Writer(path) as file:
        for record in records:
            file.write(record)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "b", WHOLE)


def test_it_is_read_as_it_was_written(file: Path) -> None:
    assert list(read(file)) == WHOLE
    assert file.stat().st_mode & 0o777 == 0o600
    assert not list(file.parent.glob("*.partial"))
    assert restore.check_file(file).queues["q"].lease_ms == 1000


def test_every_cut_is_seen(file: Path) -> None:
    data = file.read_bytes()
    for length in range(len(data)):
        file.write_bytes(data[:length])
        with pytest.raises(BackupDamaged):
            list(read(file))


def test_every_flipped_bit_is_seen(file: Path) -> None:
    data = file.read_bytes()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        file.write_bytes(changed)
        with pytest.raises((BackupDamaged, StoreVersion)):
            list(read(file))


def test_a_record_that_is_missing_moved_or_left_over_is_seen(tmp_path: Path, file: Path) -> None:
    start, queue, topic, batches, rows, end = WHOLE
    cut = [start, queue, topic, batches, rows]
    for records in (cut, [queue, *WHOLE], [*WHOLE, end], [start, start]):
        with pytest.raises(BackupDamaged):
            list(read(write(tmp_path / "c", records)))
    with pytest.raises(BackupDamaged, match="does not have what its end says"):
        restore.check_file(write(tmp_path / "c", [start, queue, topic, rows, end]))
    with pytest.raises(BackupDamaged, match="does not have what its end says"):
        restore.check_file(write(tmp_path / "c", [start, queue, batches, rows, end]))
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(BackupDamaged):
        list(read(file))


def test_a_backup_without_topics_is_a_file_that_an_older_weft_reads(tmp_path: Path) -> None:
    with Writer(tmp_path / "v1", VERSION_PLAIN) as made:
        made.write(WHOLE[0])
        made.write(End(0, 0, 0, 0, "then"))
    assert (tmp_path / "v1").read_bytes().startswith(b"weft backup 1\n")
    assert restore.check_file(tmp_path / "v1").topics == []


def test_a_newer_version_and_another_file_are_told_apart(tmp_path: Path, file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"weft backup 2", b"weft backup 3", 1))
    with pytest.raises(StoreVersion, match="version 3"):
        list(read(file))
    (tmp_path / "d").write_bytes(b"GIF89a" * 100)
    with pytest.raises(BackupDamaged, match="not a backup"):
        list(read(tmp_path / "d"))


def test_a_backup_that_fails_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(AssertionError), Writer(tmp_path / "e") as file:
        file.write(Rows([("k", bytes(RECORD_BYTES_MAX))]))
    assert not list(tmp_path.iterdir())


def test_dead_letter_queues_are_made_first() -> None:
    from weft.proto.settings import Settings

    wanted = {
        "a": Settings(max_deliveries=1, dead_letter="b"),
        "b": Settings(max_deliveries=1, dead_letter="c"),
        "c": Settings(lease_ms=500),
        "x": Settings(max_deliveries=1, dead_letter="y"),
        "y": Settings(max_deliveries=1, dead_letter="x"),
    }
    order = restore._in_order(wanted)
    assert order.index("c") < order.index("b") < order.index("a")
    assert sorted(order) == sorted(wanted)

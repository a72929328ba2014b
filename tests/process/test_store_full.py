"""A full disk: the write fails, the store closes, and acknowledged writes are there afterwards.

The disk is a small tmpfs with a ballast file; removing the file makes room.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from weft.errors import StorageError, StoreDamaged
from weft.limits import KIB, MIB
from weft.persistence import layout, leveldb_database
from weft.persistence.leveldb import LevelStore

DISK_BYTES: Final = 64 * MIB
BALLAST_BYTES: Final = 40 * MIB
VALUE_BYTES: Final = 150 * KIB


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    where = tmp_path / "disk"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "weft-test", str(where)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"a small tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    (where / "ballast").write_bytes(bytes(BALLAST_BYTES))
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)


def record(number: int) -> tuple[bytes, bytes]:
    key = layout.body(0, number)
    return key, layout.seal(key, random.Random(number).randbytes(VALUE_BYTES))


def fill(path: Path) -> int:
    """Write until the disk is full; return the number of acknowledged writes."""
    store = LevelStore(path, create=True)
    acknowledged = 0
    try:
        for number in range(DISK_BYTES // VALUE_BYTES):
            store.write([record(number)], sync=True)
            acknowledged = number + 1
        raise AssertionError("the disk did not fill up")
    except StorageError as error:
        failure = error
    assert not isinstance(failure, StoreDamaged)
    assert str(path) in failure.message
    assert "No space left on device" in failure.message
    assert "free disk space" in failure.message
    with pytest.raises(StorageError, match="No space left on device"):
        store.write([(b"a", b"small")], sync=True)
    with pytest.raises(StorageError, match="No space left on device"):
        store.get(record(0)[0])
    store.close()
    return acknowledged


# With a large buffer the log meets the full disk, with a small one a table in the background does.
@pytest.mark.parametrize("buffer_bytes", [32 * MIB, 1 * MIB])
def test_a_full_disk_loses_nothing_acknowledged(
    disk: Path, buffer_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leveldb_database, "WRITE_BUFFER_BYTES", buffer_bytes)
    acknowledged = fill(disk / "store")
    assert acknowledged > 10
    try:
        # A restart before there is room must not make it worse.
        LevelStore(disk / "store", create=False).close()
    except StorageError as error:
        assert not isinstance(error, StoreDamaged), error.message  # noqa: PT017
    (disk / "ballast").unlink()
    store = LevelStore(disk / "store", create=False)
    found = dict(store.scan(*layout.kind_range(layout.BODY)))
    for number in range(acknowledged):
        key, value = record(number)
        assert found[key] == value
    # The failed write was not acknowledged: it may be there or not.
    assert len(found) <= acknowledged + 1
    store.write([record(acknowledged)], sync=True)
    store.close()

"""The data directory: created once, opened by one process, never recreated to fill a gap."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.errors import StorageError, StoreDamaged, StoreLocked, StoreVersion
from weft.persistence import directory as directory_module
from weft.persistence.directory import DataDirectory
from weft.persistence.leveldb import LevelStore


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A closed data directory that holds one row."""
    return make(tmp_path / "data")


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, in the first format."""
    with monkeypatch.context() as then:
        then.setattr(directory_module, "FORMAT", 1)
        return make(tmp_path / "data")


def make(path: Path) -> Path:
    directory = DataDirectory.open(path)
    store = directory.open_store()
    store.write([(b"a", b"1")], sync=True)
    store.close()
    directory.close()
    return path


def contents(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and file.name != "lock"
    }


def edit(path: Path, **fields: object) -> None:
    file = path / "node.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def refused(path: Path, error: type[StorageError]) -> str:
    """Opening fails and changes nothing; returns the message."""
    before = contents(path)
    with pytest.raises(error) as failure:
        DataDirectory.open(path)
    assert type(failure.value) is error
    assert contents(path) == before
    return failure.value.message


def test_a_new_directory_says_who_it_is(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path / "deep" / "data")
    node = json.loads((tmp_path / "deep" / "data" / "node.json").read_text())
    assert node["format"] == directory_module.FORMAT
    assert node["node"] == directory.node
    assert node["cluster"] == directory.cluster
    assert node["partitions"] == directory.partitions == 256
    assert (len(directory.node), len(directory.cluster)) == (16, 32)
    assert bytes.fromhex(directory.node + directory.cluster)
    assert (tmp_path / "deep" / "data" / "lock").read_text() == f"{os.getpid()}\n"
    directory.close()


def test_every_directory_is_another_node(tmp_path: Path) -> None:
    nodes = set()
    for n in range(3):
        directory = DataDirectory.open(tmp_path / str(n))
        nodes |= {directory.node, directory.cluster}
        directory.close()
    assert len(nodes) == 6


def test_it_comes_back_the_same(made: Path) -> None:
    first = DataDirectory.open(made)
    node, cluster = first.node, first.cluster
    first.close()
    first.close()
    second = DataDirectory.open(made)
    assert (second.node, second.cluster) == (node, cluster)
    store = second.open_store()
    assert store.get(b"a") == b"1"
    store.close()
    second.close()


def test_a_second_open_names_the_process_that_has_it(made: Path) -> None:
    directory = DataDirectory.open(made)
    said = rf"in use by process {os.getpid()}\. Stop that process.*--data"
    with pytest.raises(StoreLocked, match=said):
        DataDirectory.open(made)
    code = "import sys; from weft.persistence.directory import *; DataDirectory.open(sys.argv[1])"
    other = subprocess.run(
        [sys.executable, "-c", code, str(made)], capture_output=True, text=True, check=False
    )
    assert f"StoreLocked: {made} is in use by process {os.getpid()}" in other.stderr
    directory.close()
    DataDirectory.open(made).close()


def test_a_dead_process_leaves_no_lock(made: Path) -> None:
    code = (
        "import os, sys; from weft.persistence.directory import *;"
        "d = DataDirectory.open(sys.argv[1]); os.kill(os.getpid(), 9)"
    )
    dead = subprocess.run([sys.executable, "-c", code, str(made)], check=False)
    assert dead.returncode == -9
    DataDirectory.open(made).close()


def test_a_newer_format_says_who_wrote_it(made: Path) -> None:
    edit(
        made,
        format=directory_module.FORMAT + 1,
        weft="3.1.4",
        partitions="many",
        something_new=True,
    )
    message = refused(made, StoreVersion)
    assert f"format {directory_module.FORMAT + 1}, written by Weft 3.1.4" in message
    assert "Upgrade" in message


def test_a_flipped_bit_in_any_byte_of_node_json_is_found(made: Path) -> None:
    file = made / "node.json"
    good = file.read_bytes()
    messages, equal = [], 0
    for place in range(len(good)):
        flipped = bytearray(good)
        flipped[place] ^= 1 << place % 7
        file.write_bytes(flipped)
        try:
            DataDirectory.open(made).close()
        except (StoreDamaged, StoreVersion) as error:
            messages.append(error.message)
        else:
            # White space between the fields may change into other white space.
            assert json.loads(flipped) == json.loads(good)
            equal += 1
    assert all(str(file) in message for message in messages)
    assert len(messages) > 10 * equal


@pytest.mark.parametrize("bad", [b"", b"{}", b"[1]", b'{"format": "one"}', b"\xff\xfe"])
def test_an_unreadable_node_json_is_named(made: Path, bad: bytes) -> None:
    (made / "node.json").write_bytes(bad)
    assert str(made / "node.json") in refused(made, StoreDamaged)


def test_a_store_without_node_json_is_not_touched(made: Path) -> None:
    (made / "node.json").unlink()
    message = refused(made, StoreDamaged)
    assert f"{made / 'node.json'} is missing" in message


def test_node_json_without_a_store_is_not_made_up(made: Path) -> None:
    shutil.rmtree(made / "store")
    message = refused(made, StoreDamaged)
    assert f"{made / 'store'} is missing" in message


def test_an_emptied_store_is_not_made_up(made: Path) -> None:
    shutil.rmtree(made / "store")
    (made / "store").mkdir()
    directory = DataDirectory.open(made)
    with pytest.raises(StoreDamaged, match="SYNCED is missing"):
        directory.open_store()
    directory.close()


def test_making_it_survives_a_crash_before_node_json(made: Path) -> None:
    (made / "store").rename(made / "store.new")
    (made / "node.json").rename(made / "node.tmp")
    directory = DataDirectory.open(made)
    store = directory.open_store()
    assert store.get(b"a") is None
    store.close()
    directory.close()


def test_making_it_survives_a_crash_after_node_json(made: Path) -> None:
    node = json.loads((made / "node.json").read_text())["node"]
    (made / "store").rename(made / "store.new")
    directory = DataDirectory.open(made)
    assert directory.node == node
    store = directory.open_store()
    assert store.get(b"a") == b"1"
    store.close()
    directory.close()


def test_a_file_is_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "data"):
        with pytest.raises(StorageError, match=r"cannot be used as a data directory.*--data"):
            DataDirectory.open(path)


def test_a_directory_that_may_not_be_written(tmp_path: Path) -> None:
    # Not even root can create directories in /proc.
    with pytest.raises(StorageError, match=r"cannot be used as a data directory.*--data"):
        DataDirectory.open("/proc/self/data")
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        with pytest.raises(StorageError, match=r"cannot be used as a data directory.*--data"):
            DataDirectory.open(tmp_path / "data")
        tmp_path.chmod(0o700)


def test_a_failed_open_gives_the_lock_back(made: Path) -> None:
    good = (made / "node.json").read_bytes()
    (made / "node.json").write_bytes(b"")
    refused(made, StoreDamaged)
    (made / "node.json").write_bytes(good)
    DataDirectory.open(made).close()


def test_free_bytes(made: Path) -> None:
    directory = DataDirectory.open(made)
    assert abs(directory.free_bytes() - shutil.disk_usage(made).free) < 1 << 30
    directory.close()


# --- an older format --------------------------------------------------------------------------


def rows(path: Path) -> dict[bytes, bytes]:
    directory = DataDirectory.open(path)
    try:
        store = directory.open_store()
        try:
            return dict(store.scan(b"a", b"z"))
        finally:
            store.close()
    finally:
        directory.close()


def add(key: bytes) -> Callable[[Path], None]:
    def step(path: Path) -> None:
        store = LevelStore(str(path / "store"), create=False)
        store.write([(key, b"new")], sync=True)
        store.close()

    return step


def test_a_directory_of_the_first_format_is_todays_after_it_was_opened(first: Path) -> None:
    assert json.loads((first / "node.json").read_text())["format"] == 1
    assert rows(first) == {b"a": b"1"}
    assert json.loads((first / "node.json").read_text())["format"] == directory_module.FORMAT


def test_an_older_format_is_brought_up_to_date_step_by_step(
    first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = json.loads((first / "node.json").read_text())
    monkeypatch.setattr(directory_module, "FORMAT", 3)
    monkeypatch.setattr(directory_module, "UPGRADES", {1: add(b"b"), 2: add(b"c")})
    assert rows(first) == {b"a": b"1", b"b": b"new", b"c": b"new"}
    after = json.loads((first / "node.json").read_text())
    assert (after["format"], after["node"], after["weft"]) == (3, node["node"], node["weft"])
    monkeypatch.setattr(directory_module, "UPGRADES", {})
    assert len(rows(first)) == 3  # and no more than once
    monkeypatch.setattr(directory_module, "FORMAT", 1)
    assert "format 3" in refused(first, StoreVersion)


def test_an_upgrade_that_was_cut_off_is_made_again(
    first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Path) -> None:
        add(b"half")(path)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(directory_module, "FORMAT", 3)
    monkeypatch.setattr(directory_module, "UPGRADES", {1: add(b"b"), 2: fails})
    with pytest.raises(StorageError, match="No space left"):
        rows(first)
    assert json.loads((first / "node.json").read_text())["format"] == 2
    monkeypatch.setitem(directory_module.UPGRADES, 2, add(b"c"))
    monkeypatch.setitem(directory_module.UPGRADES, 1, fails)  # done before: not repeated
    assert set(rows(first)) == {b"a", b"b", b"c", b"half"}


def test_a_format_that_is_not_known_any_more_is_refused(
    first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_module, "FORMAT", 3)
    monkeypatch.setattr(directory_module, "UPGRADES", {2: add(b"c")})
    assert "Back up with that version" in refused(first, StoreVersion)


def test_every_older_format_has_a_step() -> None:
    assert sorted(directory_module.UPGRADES) == list(range(1, directory_module.FORMAT))

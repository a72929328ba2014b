"""A node's keys: generated once, kept, readable by their owner alone, never silently replaced."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
import zmq

from weft.errors import StorageError, StoreDamaged
from weft.persistence.directory import DataDirectory


def keys_of(path: Path) -> tuple[str, str]:
    directory = DataDirectory.open(path)
    directory.close()
    return directory.keys


def test_a_directory_has_keys_that_stay(tmp_path: Path) -> None:
    public, secret = keys_of(tmp_path)
    assert zmq.curve_public(secret.encode()).decode() == public
    assert keys_of(tmp_path) == (public, secret)
    assert keys_of(tmp_path / "other")[0] != public


@pytest.mark.parametrize("mask", [0, 0o022, 0o077, 0o777])
def test_only_the_owner_reads_them(tmp_path: Path, mask: int) -> None:
    keys_of(tmp_path)
    (tmp_path / "curve.json").unlink()
    before = os.umask(mask)
    try:
        keys_of(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "curve.json").stat().st_mode) == 0o600


def test_an_older_directory_gets_keys_and_stays_the_same_node(tmp_path: Path) -> None:
    keys_of(tmp_path)
    (tmp_path / "curve.json").unlink()
    node = json.loads((tmp_path / "node.json").read_text())["node"]
    made = keys_of(tmp_path)
    assert made == keys_of(tmp_path)
    assert json.loads((tmp_path / "node.json").read_text())["node"] == node


def test_a_crash_while_they_are_made_leaves_nothing_to_mend(tmp_path: Path) -> None:
    keys_of(tmp_path)
    (tmp_path / "curve.json").rename(tmp_path / "curve.tmp")
    (tmp_path / "curve.tmp").write_text('{"secret": "half')
    made = keys_of(tmp_path)
    assert made == keys_of(tmp_path)
    assert not (tmp_path / "curve.tmp").exists()


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    keys_of(tmp_path)
    file = tmp_path / "curve.json"
    good = file.read_bytes()
    for place in range(len(good) - 1):  # except the newline
        flipped = bytearray(good)
        flipped[place] ^= 1 << place % 7
        file.write_bytes(flipped)
        with pytest.raises(StoreDamaged, match=r"curve\.json .*Restore the file"):
            DataDirectory.open(tmp_path)
    file.write_bytes(good)
    DataDirectory.open(tmp_path).close()


def test_a_directory_for_a_cluster(tmp_path: Path) -> None:
    cluster = "ab" * 16
    made = DataDirectory.open(tmp_path, cluster, 16)
    made.close()
    assert (made.cluster, made.partitions) == (cluster, 16)
    for again in ((cluster, 16), (None, None)):
        opened = DataDirectory.open(tmp_path, *again)
        opened.close()
        assert (opened.node, opened.cluster, opened.partitions) == (made.node, cluster, 16)


@pytest.mark.parametrize(("cluster", "partitions"), [("cd" * 16, 16), ("ab" * 16, 32)])
def test_a_directory_of_another_cluster_is_refused(
    tmp_path: Path, cluster: str, partitions: int
) -> None:
    DataDirectory.open(tmp_path, "ab" * 16, 16).close()
    with pytest.raises(StorageError, match=f"belongs to cluster {'ab' * 16}.*empty --data"):
        DataDirectory.open(tmp_path, cluster, partitions)
    DataDirectory.open(tmp_path).close()


def test_making_it_for_a_cluster_survives_a_crash_before_node_json(tmp_path: Path) -> None:
    (tmp_path / "store.new").mkdir()
    (tmp_path / "store.new" / "junk").write_text("half")
    assert not DataDirectory.is_made(tmp_path)
    made = DataDirectory.open(tmp_path, "ab" * 16, 16)
    made.close()
    assert made.cluster == "ab" * 16
    assert DataDirectory.is_made(tmp_path)

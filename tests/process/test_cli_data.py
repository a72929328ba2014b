"""`weft doctor --data` on intact directories, and with a damaged record or a damaged file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from weft import testing
from weft.client.cli.main import cli
from weft.persistence import layout
from weft.persistence.directory import DataDirectory

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a node that held some messages and was stopped."""
    with testing.cluster(data=tmp_path_factory.mktemp("data")) as cluster:
        client = cluster.client()
        client.create_queue("orders")
        for number in range(20):
            client.queue("orders").push_many([b"%d" % number * 100] * 50)
        client.kv.insert("k", b"v")
        assert cluster.stop() == 0
        yield cluster.node().data


@pytest.fixture
def data(stopped: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(stopped, tmp_path / "data"))


def diagnose(data: Path) -> tuple[int, list[Any]]:
    """The exit code, and the findings about the directory."""
    told = CliRunner().invoke(cli, ["doctor", "--data", str(data), "--json"])
    assert told.stdout, told.exception
    return told.exit_code, [
        one for one in json.loads(told.stdout) if one["check"] == f"{data} data"
    ]


def _all(data: Path) -> str:
    return CliRunner().invoke(cli, ["doctor", "--data", str(data)]).stdout


def test_a_whole_directory(data: Path) -> None:
    code, (found,) = diagnose(data)
    assert (code, found["level"]) == (0, "OK"), _all(data)
    directory = DataDirectory.open(data)
    store = directory.open_store()
    records = sum(1 for _ in store.scan(b"", b"\xff"))
    store.close()
    directory.close()
    assert found["found"].startswith(f"{records:,} records"), "every record, of every kind"
    assert diagnose(data) == (0, [found]), "a look must not change what is there"


def test_a_changed_record_is_named_by_its_key(data: Path) -> None:
    directory = DataDirectory.open(data)
    store = directory.open_store()
    bodies = list(store.scan(*layout.kind_range(layout.BODY)))
    keys = [key for key, _ in bodies[:2]]
    store.write([(key, record[:-1] + b"?") for key, record in bodies[:2]], sync=True)
    store.close()
    directory.close()
    code, found = diagnose(data)
    assert code == 1
    assert [one["level"] for one in found] == ["FAIL", "FAIL"]
    for key, one in zip(keys, found, strict=True):
        assert key.hex() in one["found"]
        assert "backup" in one["advice"]


def test_a_changed_file_is_named(data: Path) -> None:
    # A stopped node's records are in its log or in a table, whichever is larger here.
    file = max((data / "store").iterdir(), key=lambda path: path.stat().st_size)
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)
    code, found = diagnose(data)
    assert code == 1
    assert found[0]["level"] == "FAIL"
    assert file.name in found[0]["found"]


def test_a_missing_file_is_named(data: Path) -> None:
    (data / "store" / "CURRENT").unlink()
    code, found = diagnose(data)
    assert code == 1
    assert "CURRENT" in found[0]["found"]


def test_no_directory_is_not_made(tmp_path: Path) -> None:
    code, found = diagnose(tmp_path / "nothing")
    assert code == 1
    assert "not a data directory of a node" in found[0]["found"]
    assert not (tmp_path / "nothing").exists()

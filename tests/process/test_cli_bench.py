"""A small `weft bench`, with its own node and with a running one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from weft import testing
from weft.client.cli.main import cli

pytestmark = pytest.mark.process

SMALL = ["bench", "--messages", "20000", "--repeat", "1", "--samples", "50"]


def bench(*words: str) -> Any:
    told = CliRunner().invoke(cli, [*SMALL, "--json", *words])
    assert told.exit_code == 0, told.stderr
    return json.loads(told.stdout)


def test_with_a_node_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WEFT_SERVERS", raising=False)
    found = bench("--own", "--durability", "disk", "--memory", "30000")
    assert found["node"]["own"] is True
    assert found["node"]["durability"] == "disk"
    assert found["plan"]["messages"] == found["throughput"]["messages"] == 20_000
    assert found["throughput"]["messages_per_s"] > 0
    assert found["throughput"]["server_cpu_us"] > 0
    floors = found["floors"]
    assert min(floors.values()) > 0
    assert found["push_floor_us"] == pytest.approx(
        2 * floors["zmq_round_trip_us"] + floors["leveldb_put_us"]
    )
    times = found["latency"]["push_us"]
    # A push is a round trip and a synced write: a shorter time would be wrong.
    assert times["p99_9"] >= times["p99"] >= times["p90"] >= times["p50"]
    assert times["p50"] > floors["zmq_round_trip_us"] / 4
    assert found["memory"]["ready"] == 30_000
    assert found["memory"]["restart_s"] > 0
    assert len(found["rounds"]) == 1
    assert list(tmp_path.iterdir()) == [], "the node's directory is left behind"


def test_with_a_running_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with testing.cluster(data=tmp_path / "node", durability="os") as cluster:
        found = bench("-s", cluster.servers[0], "--size", "0", "--batch", "7")
        assert found["node"]["own"] is False
        assert found["node"]["durability"] == "os"
        assert found["memory"] is None
        assert cluster.client().list_queues() == [], "the run's queues are left behind"
        told = CliRunner().invoke(cli, [*SMALL, "-s", cluster.servers[0], "--durability", "disk"])
        assert told.exit_code == 2
        assert "--own" in told.stderr
    assert list((tmp_path / "here").iterdir()) == []


def test_the_hash_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with testing.cluster(data=tmp_path / "node", durability="disk") as cluster:
        words = ["--kv", "-s", cluster.servers[0], "--batch", "300", "--plot", "table.png"]
        found = bench(*words)
        assert cluster.client().kv.scan().entries == [], "the run's keys are left behind"
        assert [one.name for one in (tmp_path / "here").iterdir()] == ["table.png"]
        told = CliRunner().invoke(cli, [*SMALL, *words, "--memory"])
        assert told.exit_code == 2
        assert "--memory" in told.stderr
        told = CliRunner().invoke(cli, [*SMALL, "--kv", "-s", cluster.servers[0]])
        assert told.exit_code == 0, told.stderr
        assert "insert_many, 4 in flight per client" in told.stdout
    assert set(found["rates"]) == {"insert_many", "lookup_many", "insert", "lookup"}
    for rate in found["rates"].values():
        assert rate["keys_per_s"] > 0
        assert rate["server_cpu_us"] > 0
    # A batch costs less per key than single calls, and an insert waits for a synced write.
    rates = found["rates"]
    assert rates["insert_many"]["server_cpu_us"] < rates["insert"]["server_cpu_us"]
    assert found["latency_us"]["insert"]["p50"] > found["floors"]["fdatasync_append_us"] / 4


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_a_run_that_is_ended_leaves_nothing(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    words = ["bench", "--own", "--messages", "100000000", "--samples", "10"]
    command = [sys.executable, "-m", "weft.client.cli.main", *words]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) as process:
        end = time.monotonic() + 100
        while not (address := list(tmp_path.glob(".weft-bench-*/data/address.json"))):
            assert time.monotonic() < end, "its node does not come up"
            time.sleep(0.02)
        pid = json.loads(address[0].read_text())["pid"]
        process.send_signal(number)
        _, told = process.communicate(timeout=100)
    # Python ends itself by SIGINT, which a shell also reports as 130, when the interrupt came
    # inside an `exec` of text, as in the import of a dataclass, even if it was caught further out.
    assert process.returncode in ((code, -number) if number == signal.SIGINT else (code,))
    assert told.strip() == b""
    assert list(tmp_path.iterdir()) == []
    assert not Path(f"/proc/{pid}").exists()

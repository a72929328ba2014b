"""The benchmark as a program: a small run leaves its record, an interrupted one no process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "bench.peers", "--no-fetch", "--quick"]

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(900)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_a_small_run_leaves_tables_json_and_no_data(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    small = ["--seconds", "0.2", "--samples", "20", "--deep", "2000", "--queues", "5"]
    flags = ["--systems", "weft-os,weft-disk", "--only", "W1,W3,W7,W8,P1"]
    done = subprocess.run(
        [*COMMAND, *small, *flags, "--data", str(data), "--out", str(out)],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "W8 thousand queues against W1" in done.stdout
    assert list(data.iterdir()) == []
    record = json.loads((out / "peers.json").read_text())
    assert record["failures"] == []
    measured = {(each["workload"], each["system"]) for each in record["measurements"]}
    assert measured >= {
        (workload, system)
        for workload in ("W1", "W3", "W7", "W8", "P1")
        for system in ("weft-os", "weft-disk")
    }
    assert "fsynced, acks too" in (out / "peers.md").read_text()


def test_an_interrupted_run_stops_its_servers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    process = subprocess.Popen(
        [*COMMAND, "--systems", "weft-os", "--only", "W1", "--seconds", "30",
         "--data", str(data), "--out", str(tmp_path / "out")],
        env=environment(),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert "starting WeftOs" in process.stdout.readline()
        while not servers_in(data):
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(1.0)  # in the middle of a trial
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=200)
    assert process.returncode == 1
    assert servers_in(data) == []
    assert list(data.iterdir()) == []


def test_an_unknown_system_is_refused_with_the_known_ones() -> None:
    done = subprocess.run(
        [*COMMAND, "--systems", "sqs"],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "redis-streams" in done.stderr


def servers_in(data: Path) -> list[int]:
    """Processes that were started with this folder on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if str(data).encode() in line and b"child_node" in line:
                found.append(int(entry.name))
    return found

"""Ranks into a durable queue: a real node, real MPI processes, and a real kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft.testing
from tests.mpsc.mpi_job import HERE, MEMORIES, ROOT, RUN_SECONDS_MAX, environment, mpiexec

RANKS, ITEMS = 3, 1500


@pytest.fixture(scope="module")
def cluster() -> Iterator[weft.testing.Cluster]:
    with weft.testing.cluster(nodes=1) as cluster:
        yield cluster


def start(server: str, queue: str, folder: Path, memory: str = "shared") -> subprocess.Popen[str]:
    program = [sys.executable, str(HERE / "gateway_program.py"), server, queue, str(ITEMS)]
    return subprocess.Popen(
        [mpiexec(), "-n", str(RANKS), *program, str(folder)],
        cwd=ROOT,
        env=environment(memory),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def everything(cluster: weft.testing.Cluster, queue: str) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    with cluster.client() as client:
        while messages := client.queue(queue).pop_many(4096, wait_ms=0):
            found.update(message.body for message in messages)
    return found


def expected() -> Counter[bytes]:
    return Counter(f"{rank}:{serial}".encode() for rank in (0, 2) for serial in range(ITEMS))


@pytest.mark.process
@pytest.mark.parametrize("memory", MEMORIES)
def test_what_ranks_send_is_in_the_queue_once(
    cluster: weft.testing.Cluster, tmp_path: Path, memory: str
) -> None:
    queue = f"sent-{memory}"
    with cluster.client() as client:
        client.create_queue(queue)
    process = start(cluster.servers[0], queue, tmp_path, memory)
    output, _ = process.communicate(timeout=RUN_SECONDS_MAX)
    assert process.returncode == 0, output[-3000:]
    assert int((tmp_path / "pushed").read_text()) == 2 * ITEMS
    assert everything(cluster, queue) == expected()


@pytest.mark.process
def test_what_was_flushed_survives_the_gateways_death(
    cluster: weft.testing.Cluster, tmp_path: Path
) -> None:
    with cluster.client() as client:
        client.create_queue("killed")
    (tmp_path / "hold").touch()
    process = start(cluster.servers[0], "killed", tmp_path)
    marks = [tmp_path / f"flushed-{rank}" for rank in (0, 2)]
    deadline = time.monotonic() + RUN_SECONDS_MAX
    while not all(mark.exists() for mark in marks):
        assert process.poll() is None, "the job ended before its watermarks"
        assert time.monotonic() < deadline, "no watermark was reached"
        time.sleep(0.01)
    os.kill(int((tmp_path / "gateway.pid").read_text()), signal.SIGKILL)
    process.communicate(timeout=RUN_SECONDS_MAX)
    assert process.returncode != 0
    found = everything(cluster, "killed")
    assert all(found[item] == 1 for item in expected())

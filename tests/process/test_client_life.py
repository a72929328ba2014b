"""The life of a client: connect, close, and what is left afterwards."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import weft
from tests.contract.served import eventually
from weft.client.async_client import CONNECT_MS
from weft.testing import Cluster

pytestmark = pytest.mark.process


def test_nothing_is_left_after_close(node: Cluster) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    def session() -> None:
        with weft.connect(node.servers) as client:
            client.create_queue("left")
            queue = client.queue("left")
            with queue.producer() as producer:
                producer.send(b"x")
            for message in queue.consume(stop_when_empty=True):
                message.ack()
            thread = threading.Thread(target=queue.stats)
            thread.start()
            thread.join()

    session()
    gc.collect()
    files, threads = open_files(), threading.active_count()
    for _ in range(3):
        session()
    gc.collect()
    # gRPC's own threads and descriptors come and go.
    eventually(lambda: threading.active_count() <= threads)
    eventually(lambda: open_files() <= files + 1)


def test_pushing_and_popping_starts_no_thread(node: Cluster) -> None:
    before = threading.active_count()
    with weft.connect(node.servers) as client:
        client.create_queue("quiet")
        client.queue("quiet").push(b"x")
        assert client.queue("quiet").pop() is not None
        assert threading.active_count() <= before  # a thread of an earlier test may just have ended


def test_a_closed_client_says_so(node: Cluster) -> None:
    client = weft.connect(node.servers)
    queue = client.queue("closed")
    client.close()
    client.close()
    for call in (queue.stats, queue.producer, queue.consume):
        with pytest.raises(weft.UsageError, match="closed"):
            call()


def test_connect_without_a_node_fails_soon_and_says_what_to_do() -> None:
    began = time.monotonic()
    with pytest.raises(weft.ConnectionLost, match="weft serve"):
        weft.connect("127.0.0.1:1", connect_timeout_ms=300)
    assert time.monotonic() - began < CONNECT_MS / 1000


def test_the_second_seed_is_asked_when_the_first_is_away(node: Cluster) -> None:
    with weft.connect(["127.0.0.1:1", *node.servers]) as client:
        assert client.status().version


def test_servers_come_from_the_environment(node: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_SERVERS", node.servers[0])
    with weft.connect() as client:
        assert client.view().nodes[0].grpc == node.servers[0]


def test_a_program_that_never_closes_loses_nothing(node: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "careless.py"
    script.write_text(
        "import sys, weft\n"
        "client = weft.connect(sys.argv[1])\n"
        "client.create_queue('careless')\n"
        "client.queue('careless').producer(linger_ms=10_000).send(b'kept')\n"
    )
    subprocess.run(
        [sys.executable, "-W", "error", str(script), node.servers[0]], check=True, timeout=200
    )
    with weft.connect(node.servers) as client:
        message = client.queue("careless").pop()
    assert message is not None
    assert message.body == b"kept"


async def test_another_event_loop_is_refused(node: Cluster) -> None:
    async with weft.aio.connect(node.servers) as client:
        with pytest.raises(weft.UsageError, match="another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(client.status()))

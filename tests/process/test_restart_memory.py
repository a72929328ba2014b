"""A million waiting messages: what they cost in memory, and how soon a restarted node serves."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.process.live_node import LiveNode
from tests.process.wire_client import WireClient
from weft.dht import placement
from weft.limits import MIB
from weft.persistence import layout
from weft.persistence.directory import DataDirectory
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.engine.head import Head, Part
from weft.server.engine.head import encode as encode_head
from weft.server.engine.queue import Queue, QueueRecord
from weft.server.engine.queue import encode as encode_queue

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]

MESSAGES: Final = 1_000_000
BODY_BYTES: Final = 128
RSS_BYTES_MAX: Final = 200_000_000
#: Generous, for a shared machine.
RESTART_SECONDS_MAX: Final = 5.0
WINDOW: Final = 32


def _restart(node: LiveNode, what: str) -> None:
    """Starts the node and holds it to the bounds; the last message must be there."""
    started = time.monotonic()
    with WireClient(node.start().zmq) as client:
        info = client.describe("ready")
        seconds = time.monotonic() - started
        rss = node.rss_bytes()
        print(
            f"\n{what}: serves after {seconds:.2f} s with {rss / MIB:.0f} MiB "
            f"({node.own_bytes() / MIB:.0f} without mapped files)"
        )
        assert info.ready == MESSAGES
        (loan,) = client.pop("ready", 1)
        assert len(loan.bodies[0]) == BODY_BYTES
    assert rss < RSS_BYTES_MAX
    assert seconds < RESTART_SECONDS_MAX


def test_a_million_messages_in_batches_of_a_thousand(tmp_path: Path) -> None:
    payload = wire.encode(wire.Payload([os.urandom(BODY_BYTES) for _ in range(1000)]))
    with LiveNode(tmp_path / "node") as node:
        with WireClient(node.start().zmq) as client:
            client.create("ready")
            for first in range(0, MESSAGES // 1000, WINDOW):
                batches = range(first, min(first + WINDOW, MESSAGES // 1000))
                for batch in batches:
                    client.send(wire.Push("ready", 1, batch, 1000), payload)
                for _ in batches:
                    assert isinstance(client.receive()[1], wire.Pushed)
            rss = node.rss_bytes()
            print(
                f"\n{MESSAGES:,} pushed in batches of 1000: {rss / MIB:.0f} MiB "
                f"({node.own_bytes() / MIB:.0f} without mapped files)"
            )
            assert client.describe("ready").ready == MESSAGES
            assert rss < RSS_BYTES_MAX
        node.kill()
        _restart(node, "batches of 1000, after kill -9")
        assert node.stop() == 0
        _restart(node, "batches of 1000, after a stop")


def test_a_million_messages_in_batches_of_one(tmp_path: Path) -> None:
    _fill_one_by_one(tmp_path / "node")
    with LiveNode(tmp_path / "node") as node:
        _restart(node, "batches of one")


def _fill_one_by_one(data: Path) -> None:
    """The records that a million pushes of one message leave, written straight to the store."""
    directory = DataDirectory.open(data)
    store = directory.open_store()
    queue = Queue("ready", QueueRecord(1, 0, Settings()))
    payload = wire.encode(wire.Payload([os.urandom(BODY_BYTES)]))
    lsns: Counter[int] = Counter()
    rows = [(layout.queue("ready"), encode_queue(queue.record()))]
    stamp = time.time_ns() // 1000 - MESSAGES
    for batch in range(MESSAGES):
        partition = placement.of_batch(1, batch, directory.partitions)
        lsns[partition] += 1
        part = Part(0, 1, queue.id)
        head = Head(queue.id, 1, batch, 1, len(payload), stamp + batch, 0, None, [part])
        rows.append((layout.head(partition, lsns[partition]), encode_head(head)))
        rows.append((layout.body(partition, lsns[partition]), payload))
        if len(rows) >= 10_000:
            store.write([(key, layout.seal(key, value)) for key, value in rows], sync=False)
            rows = []
    rows += [(layout.partition(p), msgspec.msgpack.encode((1, lsn))) for p, lsn in lsns.items()]
    store.write([(key, layout.seal(key, value)) for key, value in rows], sync=True)
    store.close()
    directory.close()

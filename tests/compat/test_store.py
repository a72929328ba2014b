"""A data directory of an earlier version opens, and its content is complete."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import weft
from tests.process.live_node import LiveNode

from .record import FOLDER


@pytest.mark.parametrize("version", sorted(path.name for path in FOLDER.iterdir()))
def test_a_recorded_store_is_read(version: str, tmp_path: Path) -> None:
    with tarfile.open(FOLDER / version / "store.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    with LiveNode(tmp_path / "data").start() as node, weft.connect(node.grpc) as client:
        plain, taken = client.queue("plain"), []
        while batch := plain.pop_many(1000, wait_ms=1000):
            taken += batch
        dead = client.queue("dead").pop(wait_ms=10_000)
        assert dead is not None
        assert dead.dead_reason.endswith("a recorded failure")
        stats = plain.stats()
        # The recorded delay of a day has passed by now, or not: both are right.
        bodies = [dead.body, *(message.body for message in taken if message.body != b"later")]
        assert len(taken) + stats.delayed == 63 - 1
        assert len(bodies) == len(set(bodies)) == 62
        assert b"L" * 100_000 in bodies
        (headed,) = [message for message in (dead, *taken) if message.body == b"headed"]
        assert headed.headers == {"k": "v"}
        in_order = client.queue("in-order").stats()
        assert in_order.leased + in_order.ready == 3
        assert client.kv.lookup("row") == b"value+more"
        assert plain.push(b"new")

"""A disk that fills up: pushes are refused in time, and on a full disk the node exits.

The disk is a small tmpfs, so that only the test is affected. Mounting a tmpfs takes root.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.process.live_node import LiveNode
from tests.process.wire_client import Refused, Silence, WireClient
from weft.client.cli.doctor.node import check_space
from weft.limits import MIB
from weft.persistence.leveldb_database import WRITE_BUFFER_BYTES
from weft.proto import wire
from weft.proto.settings import Settings

pytestmark = pytest.mark.process

DISK_BYTES: Final = 192 * MIB
RESERVE_BYTES: Final = 64 * MIB
#: One batch: large enough to fill the disk soon.
BODIES: Final = 64
BODY_BYTES: Final = 8 * 1024
BATCHES_MAX: Final = 2 * DISK_BYTES // (BODIES * BODY_BYTES)
RECOVER_SECONDS_MAX: Final = 100.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with _mounted(tmp_path / "disk", DISK_BYTES) as where:
        yield where


@contextmanager
def _mounted(where: Path, size_bytes: int) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs takes root")
    where.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "weft-test", str(where)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)


def _bodies(batch: int, size: int = BODY_BYTES) -> list[bytes]:
    return [(b"%d-%d " % (batch, index)).ljust(size, b".") for index in range(BODIES)]


def _fill(client: WireClient, queue: str, body_bytes: int = BODY_BYTES) -> tuple[int, Exception]:
    """Push until refused; return the number of acknowledged batches, and the refusal."""
    most = BATCHES_MAX * BODY_BYTES // body_bytes
    for batch in range(most):
        try:
            client.push(queue, 1, batch, _bodies(batch, body_bytes))
        except (Refused, Silence) as error:
            return batch, error
    raise AssertionError(f"{most} batches were taken by a disk of {DISK_BYTES} bytes")


def test_at_the_reserve_pushes_stop_and_the_rest_works(disk: Path, tmp_path: Path) -> None:
    with LiveNode(disk / "node", log=tmp_path / "node.log", reserve_bytes=RESERVE_BYTES) as node:
        with WireClient(node.start().zmq) as client:
            client.create("bulk")
            client.create("other")
            client.push("other", 2, 0, [b"small"])
            filled, refusal = _fill(client, "bulk")
            assert isinstance(refusal, Refused)
            assert refusal.code == "STORAGE_FULL"
            status = client.status()
            print(f"\n{filled} batches, {status.free_bytes / MIB:.0f} MiB left")
            # Data that LevelDB still has in memory counts as written.
            most = RESERVE_BYTES + WRITE_BUFFER_BYTES + 8 * MIB
            assert RESERVE_BYTES // 2 < status.free_bytes < most
            for request in (
                wire.CreateQueue("new", Settings()),
                wire.Insert("key", b"value"),
            ):
                with pytest.raises(Refused, match="STORAGE_FULL"):
                    client.ask(request)
            # Calls that free space or read still work. A push that was accepted before is a
            # duplicate.
            assert client.push("bulk", 1, 0, _bodies(0)).duplicate
            assert client.drain("other") == [b"small"]
            (loan,) = client.pop("bulk", BODIES)
            assert loan.bodies == _bodies(0)
            assert client.nack("bulk", [loan.receipt()]).done == BODIES
            (loan,) = client.pop("bulk", BODIES)
            assert client.ack("bulk", [loan.receipt()]).done == BODIES
            assert client.purge("bulk") == (filled - 1) * BODIES
            _wait_for_room(client)
            assert client.drain("other") == [b"room again"]
        assert "disk at its reserve: pushes are refused" in node.log
        assert "disk has room again" in node.log
        assert node.stop() == 0


@pytest.mark.parametrize("body_bytes", [90, 8 * 1024], ids=["in LevelDB", "in segments"])
def test_a_small_disk_takes_pushes_again_after_it_was_drained(
    tmp_path: Path, body_bytes: int
) -> None:
    """300 MiB with the default reserve: 12 MiB are left for messages."""
    with (
        _mounted(tmp_path / "disk", 300 * MIB) as disk,
        LiveNode(disk / "node", log=tmp_path / "node.log") as node,
        WireClient(node.start().zmq) as client,
    ):
        client.create("bulk")
        client.create("other")
        filled, refusal = _fill(client, "bulk", body_bytes=body_bytes)
        assert isinstance(refusal, Refused)
        status = client.status()
        assert status.full
        assert status.free_bytes < status.limit_bytes
        assert check_space("node", status).level == "FAIL"
        assert len(client.drain("bulk")) == BODIES * filled
        _wait_for_room(client)
        assert not client.status().full


def _wait_for_room(client: WireClient) -> None:
    """LevelDB frees space when it next merges tables, which a purge triggers."""
    deadline = time.monotonic() + RECOVER_SECONDS_MAX
    while True:
        try:
            client.push("other", 2, 1, [b"room again"])
            return
        except Refused as refused:
            if refused.code != "STORAGE_FULL":
                raise
            assert time.monotonic() < deadline, f"no room after the purge: {client.status()}"
            time.sleep(0.2)


def test_a_full_disk_ends_the_node_and_loses_nothing(disk: Path, tmp_path: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(DISK_BYTES // 2))
    with LiveNode(disk / "node", log=tmp_path / "node.log", reserve_bytes=0) as node:
        with WireClient(node.start().zmq, lives=lambda: node.process.poll() is None) as client:
            client.create("bulk")
            filled, refusal = _fill(client, "bulk")
            assert isinstance(refusal, Silence), refusal
        assert node.wait(100) == 3, node.log
        print(f"\n{filled} batches, then:\n{node.log[-600:]}")
        assert filled > 0
        assert str(node.data) in node.log
        assert "No space left on device" in node.log
        assert "All acknowledged messages are kept" in node.log

        ballast.unlink()
        with WireClient(node.start().zmq) as client:
            acknowledged = [body for batch in range(filled) for body in _bodies(batch)]
            found = client.drain("bulk")
            # The unanswered push may be there, complete.
            assert found in (acknowledged, acknowledged + _bodies(filled))
            client.push("bulk", 1, filled + 1, [b"goes on"])
            assert client.drain("bulk") == [b"goes on"]
        assert node.stop() == 0

"""The disk follows the live data: millions of acked messages leave only one un-acked message.

WEFT_TEST_LIVE_MESSAGES sets how many; the figures are printed (pytest -s).
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import pytest

from tests.process.live_node import LiveNode
from tests.process.wire_client import WireClient
from weft.limits import MIB
from weft.proto import wire

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(1200)]

MESSAGES: Final = int(os.environ.get("WEFT_TEST_LIVE_MESSAGES", 10_000_000))
BATCH: Final = 4000
BODY_BYTES: Final = 128
#: Batches pushed, then popped, then acked: 4 MB of live data at a time.
WINDOW: Final = 8
#: LevelDB delays writers at twelve unmerged tables of 32 MiB; plus two logs, and a merge's output.
#: Where the merging keeps up the size is under 100 MiB.
PEAK_BYTES_MAX: Final = 512 * MIB
#: Size once the merging has caught up: a log, and tables too few to be merged.
END_BYTES_MAX: Final = 128 * MIB
SETTLE_SECONDS_MAX: Final = 100.0
#: After a restart the logs are tables, and there is little else.
RESTARTED_BYTES_MAX: Final = 128 * MIB


def _cycle(client: WireClient, payload: bytes, first: int) -> None:
    for batch in range(first, first + WINDOW):
        client.send(wire.Push("live", 1, batch, BATCH), payload)
    for _ in range(WINDOW):
        _, answer, _ = client.receive()
        assert isinstance(answer, wire.Pushed), answer
        assert not answer.duplicate
    answer, _ = client.ask(wire.Pop("live", WINDOW * BATCH))
    assert isinstance(answer, wire.Popped)
    assert sum(lent.count for lent in answer.lent) == WINDOW * BATCH
    receipts = [wire.Receipt(lent.partition, lent.lsn, lent.nonce) for lent in answer.lent]
    settled = client.ack("live", receipts)
    assert settled.done == WINDOW * BATCH
    assert not settled.lost


def _settled_bytes(node: LiveNode) -> int:
    """The directory's size when LevelDB has finished merging."""
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while (size := node.disk_bytes()) > END_BYTES_MAX and time.monotonic() < deadline:
        time.sleep(0.2)
    return size


def test_the_disk_follows_what_is_live(tmp_path: Path) -> None:
    payload = wire.encode(wire.Payload([os.urandom(BODY_BYTES) for _ in range(BATCH)]))
    with LiveNode(tmp_path / "node") as node:
        node.start()
        with WireClient(node.zmq) as client:
            client.create("live")
            client.push("live", 2, 0, [b"the one"])
            (held,) = client.pop("live", 1, lease_ms=3_600_000)
            started, peak, acked = time.monotonic(), 0, 0
            while acked < MESSAGES:
                _cycle(client, payload, acked // BATCH)
                acked += WINDOW * BATCH
                if acked // BATCH % 80 == 0:
                    peak = max(peak, node.disk_bytes())
            seconds = time.monotonic() - started
            end, rss = _settled_bytes(node), node.rss_bytes()
            assert client.describe("live").leased == 1
        assert held.bodies == [b"the one"]
        assert node.stop() == 0
        node.start()
        restarted = node.disk_bytes()
        with WireClient(node.zmq) as client:
            assert client.drain("live") == [b"the one"]
    print(
        f"\n{acked:,} messages of {BODY_BYTES} bytes in {seconds:.1f} s "
        f"({acked / seconds:,.0f}/s): disk peak {peak / MIB:.0f} MiB, "
        f"end {end / MIB:.0f} MiB, after restart {restarted / MIB:.0f} MiB, "
        f"memory {rss / MIB:.0f} MiB"
    )
    assert peak <= PEAK_BYTES_MAX
    assert end <= END_BYTES_MAX
    assert restarted <= RESTARTED_BYTES_MAX

"""A client that sends requests and never reads pins bounded memory and delays no other client.

Each pop is answered with up to 8 MiB. The answers fill the client's own buffers, then TCP's, then
the node's buffer for one connection; after that they cannot be sent, and their messages return to
the queue at once, with those that wait in the connection. Messages that the kernel has taken and
the client never read return when their lease expires.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Final

import pytest

from tests.process.live_node import LiveNode
from tests.process.wire_client import WireClient
from weft.limits import LEASE_MS_MAX, MIB, WAIT_MS_MAX
from weft.proto import wire
from weft.server.edges.edge import PEER_BYTES_MAX

pytestmark = pytest.mark.process

BODY_BYTES: Final = 1 * MIB
#: Seven bodies and their frame are one batch, just under POP_BYTES_MAX.
BATCH: Final = 7
BATCHES: Final = 60
#: More pops than there are batches, so that every batch is lent, returned and lent again.
POPS: Final = 200
LEASE_MS: Final = 3000
#: Memory that one connection may add: its unsent answers, and one round's answers.
GROWTH_BYTES_MAX: Final = PEER_BYTES_MAX + 96 * MIB
#: Upper bound of the median: a client blocked by the slow one would always wait longer.
OTHER_SECONDS_MAX: Final = 2.0


def _fill(client: WireClient) -> set[bytes]:
    names = set()
    for batch in range(BATCHES):
        bodies = [b"%d-%d" % (batch, index) + os.urandom(BODY_BYTES - 20) for index in range(BATCH)]
        client.push("large", 1, batch, bodies)
        names |= {body[:20] for body in bodies}
    return names


def test_a_client_that_never_reads(tmp_path: Path) -> None:
    with LiveNode(tmp_path / "node") as node, WireClient(node.start().zmq) as other:
        other.create("large")
        other.create("small")
        names = _fill(other)
        before = node.own_bytes()
        with WireClient(node.zmq, receive_max=1) as deaf:
            peak, waits = before, []
            for number in range(POPS):
                deaf.send(wire.Pop("large", BATCH, 0, LEASE_MS))
                started = time.monotonic()
                other.push("small", 2, number, [b"small"])
                assert other.drain("small") == [b"small"]
                waits.append(time.monotonic() - started)
                peak = max(peak, node.own_bytes())
            print(
                f"\nmemory: {before / MIB:.0f} MiB before, {peak / MIB:.0f} MiB at most; others "
                f"waited {max(waits) * 1000:.0f} ms at most; {other.describe('large')}"
            )
            assert statistics.median(waits) < OTHER_SECONDS_MAX
            assert peak - before < GROWTH_BYTES_MAX
            # Nothing was acked: everything returns, the last messages when the leases expire.
            assert _drain(other) == names
        assert node.stop() == 0


def _drain(client: WireClient) -> set[bytes]:
    names: set[bytes] = set()
    deadline = time.monotonic() + LEASE_MS / 1000 + 200
    while time.monotonic() < deadline:
        names |= {body[:20] for body in client.drain("large")}
        left = client.describe("large")
        if not left.ready + left.leased:
            return names
        time.sleep(0.1)
    raise AssertionError(f"not all of it comes back: {left}")


def test_pops_that_wait_are_answered_as_fast_as_they_are_read(tmp_path: Path) -> None:
    """More waiting pops on one connection than unsent answers are allowed.

    When messages for all arrive at once, each pop is answered when there is room, and the
    connection stays open.
    """
    waits = 2 * PEER_BYTES_MAX // (BATCH * BODY_BYTES)
    with LiveNode(tmp_path / "node") as node, WireClient(node.start().zmq) as other:
        for queue in ("large", "larger"):
            other.create(queue)
        before = node.own_bytes()
        with WireClient(node.zmq, receive_max=1) as slow:
            asked = {
                slow.send(wire.Pop(queue, BATCH, WAIT_MS_MAX, LEASE_MS_MAX))
                for queue in ("large", "larger")
                for _ in range(waits // 2)
            }
            slow.status()  # they all wait
            peak = before
            for batch in range(waits // 2):
                for queue in ("large", "larger"):
                    other.push(queue, 1, batch, [os.urandom(BODY_BYTES)] * BATCH)
                peak = max(peak, node.own_bytes())
            assert other.describe("large").waiting_pops > 0, "not all went out unread"
            answered = set()
            for _ in asked:
                rid, answer, frames = slow.receive()
                assert isinstance(answer, wire.Popped)
                assert sum(one.count for one in answer.lent) == BATCH
                assert len(frames) == len(answer.lent)
                answered.add(rid)
            assert answered == asked
            left = other.describe("large")
            assert (left.ready, left.waiting_pops, left.leased) == (0, 0, BATCH * (waits // 2))
        assert peak - before < GROWTH_BYTES_MAX
        assert node.stop() == 0

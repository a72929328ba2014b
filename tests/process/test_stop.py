"""How a node ends: on request, killed during its start, or refused because another one runs."""

from __future__ import annotations

import random
import secrets
import time
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.contract.served import eventually
from tests.process.live_node import LiveNode, NodeEnded
from tests.process.load import QUEUE, Consumer, Producer, Target, Worker, drain, working
from tests.process.wire_client import WireClient
from tests.total_queue import History, check
from weft.proto import wire

pytestmark = pytest.mark.process

STOPS: Final = 4
GRACE_MS: Final = 3000
#: After the grace: the rest is written and the store is closed.
CLOSE_SECONDS_MAX: Final = 100.0
#: Longer than anything takes that does not wait for the grace.
LONG_GRACE_MS: Final = 200_000
WAITING: Final = 20


def test_sigterm_under_load_loses_nothing(tmp_path: Path) -> None:
    seed = secrets.randbelow(1 << 31)
    print(f"\nseed {seed}")
    target, history = Target(), History()
    workers: list[Worker] = [Producer(n, target, history, seed) for n in range(2)]
    workers += [Consumer(f"consumer-{n}", target, history, seed) for n in range(2)]
    with LiveNode(tmp_path / "node", grace_ms=GRACE_MS) as node:
        with WireClient(node.start().zmq) as client:
            client.create(QUEUE)
        with working(workers, target, node.kill):
            target.moved(node.zmq)
            for _ in range(STOPS):
                done = _counts(workers)["batches"]
                time.sleep(0.4)
                eventually(lambda done=done: _counts(workers)["batches"] > done + 1)  # type: ignore[misc]
                history.restarted()
                assert node.stop(GRACE_MS / 1000 + CLOSE_SECONDS_MAX) == 0, node.log
                assert "Traceback" not in node.log
                history.restarted()
                target.moved(node.start().zmq)
        history.restarted()
        assert node.stop() == 0
        with WireClient(node.start().zmq) as client:
            drain(client, history)
    verdict = check(history)
    counts = _counts(workers)
    print(verdict.report(), dict(counts))
    assert verdict.ok, verdict.report()
    assert counts["batches"] > STOPS
    assert counts["acks"] > 0


def _counts(workers: list[Worker]) -> Counter[str]:
    return sum((worker.counts for worker in workers), Counter[str]())


def test_waiting_pops_return_when_the_node_stops(tmp_path: Path) -> None:
    with (
        LiveNode(tmp_path / "node", grace_ms=LONG_GRACE_MS) as node,
        WireClient(node.start().zmq) as client,
    ):
        client.create("empty")
        waiting = {client.send(wire.Pop("empty", 1, 60_000)) for _ in range(WAITING)}
        deadline = time.monotonic() + 100
        with WireClient(node.zmq) as other:
            while other.describe("empty").waiting_pops < WAITING:
                assert time.monotonic() < deadline, "the pops do not arrive"
        started = time.monotonic()
        node.terminate()
        while waiting:
            rid, answer, _ = client.receive()
            assert answer == wire.Popped([])
            waiting.remove(rid)
        assert node.wait(CLOSE_SECONDS_MAX) == 0
        # The node did not wait for the grace to be over: there was nothing to finish.
        assert time.monotonic() - started < LONG_GRACE_MS / 2000


def test_killed_while_it_recovers(tmp_path: Path) -> None:
    """A start changes the directory (LevelDB turns its log into tables): it may end anywhere."""
    rng, bodies = random.Random(7), [b"%d" % index for index in range(1000)]
    with LiveNode(tmp_path / "node") as node:
        with WireClient(node.start().zmq) as client:
            client.create("kept")
            for batch in range(100):
                client.push("kept", 1, batch, bodies)
            client.ack("kept", [loan.receipt() for loan in client.pop("kept", 10_000)])
        for _ in range(8):
            node.kill()
            node.spawn()
            time.sleep(rng.uniform(0.2, 0.6))
        node.kill()
        with WireClient(node.start().zmq) as client:
            assert client.drain("kept") == bodies * 90


def test_a_second_node_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "node"
    with LiveNode(data) as node, WireClient(node.start().zmq) as client:
        client.create("mine")
        client.push("mine", 1, 0, [b"one"])
        with (
            LiveNode(data, log=tmp_path / "second.log") as second,
            pytest.raises(NodeEnded) as ended,
        ):
            second.start()
        assert ended.value.code == 1
        assert str(data) in ended.value.log
        assert f"process {node.process.pid}" in ended.value.log
        assert "Traceback" not in ended.value.log
        # The first node is not affected, and address.json is still its own.
        assert client.drain("mine") == [b"one"]
        assert f'"pid": {node.process.pid}' in (data / "address.json").read_text()

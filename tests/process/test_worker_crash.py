"""One message kills every worker that gets it: that message alone becomes a dead letter.

The settings are those of the README except for the lease, which is shorter so that each crash costs
a second and not half a minute.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from weft.testing import Cluster, cluster

GOOD = 900
CRASHES = 5

#: Both programs record each result before the ack, and die of the poison message.
CONSUMER = """
import os, signal, sys, weft
client = weft.connect(sys.argv[1])
with open(sys.argv[3], "ab", buffering=0) as done:
    for message in client.queue(sys.argv[2]).consume(idle_ms=3_000):
        if message.body == b"poison":
            os.kill(os.getpid(), signal.SIGKILL)
        done.write(message.body + b"\\n")
        message.ack()
client.close()
"""
STREAM = """
import os, signal, sys, grpc
from weft.proto import weft_pb2 as pb, weft_pb2_grpc
stub = weft_pb2_grpc.QueueStub(grpc.insecure_channel(sys.argv[1]))
with open(sys.argv[3], "ab", buffering=0) as done:
    # A plain client renews no leases: it holds no more than it works through in time.
    stream = stub.Consume(
        pb.ConsumeRequest(queue=sys.argv[2], limit=50, prefetch=100), timeout=60
    )
    try:
        for answer in stream:
            for message in answer.messages:
                if message.body == b"poison":
                    os.kill(os.getpid(), signal.SIGKILL)
                done.write(message.body + b"\\n")
            receipts = [message.receipt for message in answer.messages]
            stub.Ack(pb.AckRequest(queue=sys.argv[2], receipts=receipts))
            left = stub.DescribeQueue(pb.DescribeQueueRequest(queue=sys.argv[2]))
            if left.ready + left.leased == 0:
                break
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED, error
"""
WORKER = """
import os, signal, sys, weft
def handle(message):
    if message.body == b"poison":
        os.kill(os.getpid(), signal.SIGKILL)
    os.write(done, message.body + b"\\n")
done = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
with weft.connect(sys.argv[1]) as client:
    client.queue(sys.argv[2]).work(handle, concurrency=4, idle_ms=3_000)
"""
PROGRAMS = {"consume": CONSUMER, "grpc": STREAM, "work": WORKER}


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with cluster() as node:
        yield node


@pytest.mark.process
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_one_killing_message_takes_no_other_along(node: Cluster, name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    done = tmp_path / "done"
    with node.client() as client:
        client.create_queue(name, lease_ms=1_500, max_deliveries=5, dead_letter=f"{name}.dead")
        queue = client.queue(name)
        good = [b"%d" % number for number in range(GOOD)]
        queue.push_many([*good[:450], b"poison", *good[450:]])
        ends = [_run(program, node.servers[0], name, done)]
        while ends[-1] == -signal.SIGKILL:
            assert len(ends) <= CRASHES, "the killing message is still in its queue"
            _wait_for_leases(queue)
            ends.append(_run(program, node.servers[0], name, done))
        assert ends == [-signal.SIGKILL] * CRASHES + [0]
        dead = client.queue(f"{name}.dead").peek(1000)
        assert [message.body for message in dead] == [b"poison"]
        assert dead[0].dead_reason == "5 deliveries, the last one lease expired"
        assert set(done.read_bytes().split()) == set(good)
        stats = queue.stats()
        assert (stats.ready, stats.leased, stats.delayed) == (0, 0, 0)


def _run(program: str, server: str, queue: str, done: Path) -> int:
    ran = subprocess.run(
        [sys.executable, "-c", program, server, queue, str(done)],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert ran.returncode in (0, -signal.SIGKILL), ran.stderr
    return ran.returncode


def _wait_for_leases(queue: weft.Queue) -> None:
    end = time.monotonic() + 100
    while queue.stats().leased:
        assert time.monotonic() < end, "leases do not end"
        time.sleep(0.05)

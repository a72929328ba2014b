"""Pops of a plain gRPC client on real nodes: stolen messages and messages between nodes.

    python bench/plain_pops.py [--nodes 3] [--messages 3000]

One grpcio client pops and acknowledges messages one by one at one node: first a backlog spread over
all nodes, then messages that arrive one at a time while the client waits. Results are the nodes'
counters (`weft_stolen_messages_total`, `weft_peer_messages_total` without pings) and include
replication; ``python -m tests.sim.plain_costs`` separates the kinds of messages.
"""

from __future__ import annotations

import argparse
import sys
import time
from threading import Timer

import grpc

import weft
from weft.client.sync_client import Queue  # type: ignore[attr-defined]
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc
from weft.testing import Cluster, cluster

QUEUE = "plain"
BODY = b"x" * 100
#: Seconds between the start of a waiting pop and the arrival of a message.
ARRIVAL_S = 0.01


def counters(made: Cluster, nodes: int) -> tuple[int, int]:
    """Number of stolen messages, and of messages between nodes."""
    stolen = peer = 0
    for number in range(nodes):
        with grpc.insecure_channel(made.node(number).grpc) as channel:
            stub = weft_pb2_grpc.ClusterStub(channel)  # type: ignore[no-untyped-call]
            status = stub.Status(pb.StatusRequest())
            stolen += status.stolen
            peer += status.peer_messages - status.peer_pings
    return stolen, peer


def consume(address: str, count: int, arriving: Queue | None = None) -> None:
    """Pops and acknowledges `count` messages, one by one."""
    with grpc.insecure_channel(address) as channel:
        stub = weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]
        for _ in range(count):
            if arriving is not None:
                Timer(ARRIVAL_S, arriving.push, [BODY]).start()
            popped = stub.Pop(pb.PopRequest(queue=QUEUE, limit=1, wait_ms=10_000))
            receipts = [message.receipt for message in popped.messages]
            stub.Ack(pb.AckRequest(queue=QUEUE, receipts=receipts))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--messages", type=int, default=3000)
    asked = parser.parse_args()
    with cluster(asked.nodes) as made, weft.connect(made.node(0).grpc) as client:
        client.create_queue(QUEUE)
        queue = client.queue(QUEUE)
        time.sleep(3)  # Until the partitions are balanced.
        for _ in range(asked.messages // 10):
            queue.push_many([BODY] * 10)
        address = made.node(1).grpc
        for name, count, arriving in (
            ("backlog", asked.messages // 10 * 10, None),
            ("arrivals", asked.messages // 10, queue),
        ):
            before, start = counters(made, asked.nodes), time.monotonic()
            consume(address, count, arriving)
            took_s = time.monotonic() - start
            stolen, peer = (b - a for a, b in zip(before, counters(made, asked.nodes), strict=True))
            print(
                f"{name}: {count} popped, {stolen} stolen, {peer / count:.2f} messages between "
                f"nodes per message, {count / took_s:.0f} messages/s",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())

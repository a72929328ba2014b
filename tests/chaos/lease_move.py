"""How long a node with many leases takes to stop, and whether all of them move.

``python -m tests.chaos.lease_move [--leases 100000]``

Three nodes; one has that many leases of one message each, and is stopped. Then every message is
acked through another node. Prints one line of JSON: the time from SIGTERM to the end of the
process, the same for a node with no lease, and how many acks were refused.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

import grpc

from tests.process.wire_client import WireClient
from weft.client.admin.cluster import ClusterCalls
from weft.ids import partition_of
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc, wire
from weft.proto.settings import Settings
from weft.server.edges import grpc_receipts
from weft.testing import Cluster, cluster

QUEUE: Final = "held"
#: Messages of one push: each is popped alone, under a separate lease.
BATCH: Final = 64
#: Pops in flight at once.
WINDOW: Final = 256
ACKS_PER_CALL: Final = 1000
LEASE_MS: Final = 3_600_000
#: The node that is stopped, and the node through which everything is acked.
STOPPED, OTHER = 0, 1


def measure(made: Cluster, leases: int) -> dict[str, Any]:
    made.settled()
    with WireClient(made.node(STOPPED).zmq) as client:
        client.create(QUEUE, Settings(lease_ms=LEASE_MS))
        alone_s = _restart(made)
    with WireClient(made.node(STOPPED).zmq) as client:
        for numbers in islice(_batches(made), leases // BATCH + 1):
            client.push(QUEUE, 1, numbers, [b"x"] * BATCH)
        lent = _pop(client, leases)
    stop_s = _stop(made)
    return {
        "leases": len(lent),
        "stop_s_without_leases": alone_s,
        "stop_s": stop_s,
        "refused": _ack(made.node(OTHER).grpc, lent),
    }


def _stop(made: Cluster) -> float:
    began = time.monotonic()
    code = made.stop(STOPPED)
    assert code == 0, f"the node ended with exit code {code}"
    return round(time.monotonic() - began, 2)


def _restart(made: Cluster) -> float:
    took_s = _stop(made)
    made.start(STOPPED)
    made.settled()
    return took_s


def _batches(made: Cluster) -> Iterator[int]:
    """Numbers of batches in partitions that the node leads."""
    places = ClusterCalls(made.servers).places().places[:-1]
    name = made.node(STOPPED).id
    led = {number for number, place in enumerate(places) if place.sync[0] == name}
    return (n for n in count() if partition_of(1, n, len(places)) in led)


def _pop(client: WireClient, leases: int) -> list[wire.Lent]:
    lent: list[wire.Lent] = []
    sent = 0
    while len(lent) < leases:
        while sent < min(leases, len(lent) + WINDOW):
            client.send(wire.Pop(QUEUE, 1))
            sent += 1
        _, answer, _ = client.receive()
        assert isinstance(answer, wire.Popped), answer
        assert len(answer.lent) == 1, answer
        lent += answer.lent
    return lent


def _ack(address: str, lent: list[wire.Lent]) -> int:
    """Ack everything through one node; return how many acks were refused."""
    refused = 0
    with grpc.insecure_channel(address) as channel:
        stub = weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]
        for start in range(0, len(lent), ACKS_PER_CALL):
            some = lent[start : start + ACKS_PER_CALL]
            held = [grpc_receipts.pack(grpc_receipts.lease_key(one), one.first) for one in some]
            request = pb.AckRequest(queue=QUEUE, receipts=held)
            refused += len(stub.Ack(request, timeout=60, wait_for_ready=True).lost)
    return refused


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leases", type=int, default=100_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, cluster(3, data=Path(folder)) as made:
        print(json.dumps(measure(made, asked.leases)), flush=True)


if __name__ == "__main__":
    main()

"""A node that is cut off from the others, seen by a client that still reaches it.

``python -m tests.chaos.minority FOLDER`` prints the node's answers as one line of JSON. The program
moves into the clients' network, and so needs a separate process.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any, Final

import weft
from tests.process.wire_client import Refused, Silence, WireClient
from weft.client.admin.cluster import ClusterCalls
from weft.ids import partition_of
from weft.proto import wire

from .stage import Stage, host_of, stage

QUEUE: Final = "minority"
BEFORE: Final = 120
TRIES: Final = 10
#: How long to wait for an answer: an acknowledgement takes milliseconds.
PATIENCE_MS: Final = 300
CUT: Final = 0
#: Until the others have failed over, and have delivered all messages.
FAILOVER_S_MAX: Final = 100.0


def main(folder: Path) -> dict[str, Any]:
    with stage(folder, 3, hosts=True, rng=random.Random(1), fault_s=0) as scene:
        with weft.connect(scene.cluster.servers) as client:
            client.create_queue(QUEUE)
            client.queue(QUEUE).push_many([b"%d" % n for n in range(BEFORE)])
            for number in range(BEFORE, 2 * BEFORE):
                client.queue(QUEUE).push(b"%d" % number)
        return _cut_off(scene)


def _cut_off(scene: Stage) -> dict[str, Any]:
    assert scene.network is not None
    others = [number for number in range(scene.nodes) if number != CUT]
    led = _led(scene)
    scene.network.split([host_of(CUT)], [host_of(number) for number in others])
    acked, end = 0, time.monotonic() + FAILOVER_S_MAX
    while acked < 2 * BEFORE and time.monotonic() < end:
        time.sleep(0.5)
        acked += _drain(scene, others)
    with WireClient(scene.cluster.node(CUT).zmq, timeout_ms=PATIENCE_MS) as client:
        pushed = [_push(client, led, number) for number in range(TRIES)]
        try:
            lent = sum(loan.lent.count for loan in client.pop(QUEUE, 1000))
        except (Silence, Refused):
            lent = 0
    scene.network.heal()
    scene.cluster.settled()
    left = _drain(scene, list(range(scene.nodes)))
    return {"led": len(led), "acked": acked, "pushed": pushed, "lent": lent, "left": left}


def _led(scene: Stage) -> set[int]:
    """The partitions that the node leads now, and believes to lead when cut off."""
    places = ClusterCalls(scene.cluster.servers).places().places[:-1]
    name = scene.cluster.node(CUT).id
    return {number for number, place in enumerate(places) if place.sync[0] == name}


def _push(client: WireClient, led: set[int], number: int) -> str:
    """The node's answer to a push to a partition that it led."""
    batch = next(n for n in range(number * 10_000, 1 << 40) if partition_of(1, n, 256) in led)
    payload = wire.encode(wire.Payload([b"late %d" % number]))
    try:
        answer, _ = client.ask(wire.Push(QUEUE, 1, batch, 1), payload)
    except Silence:
        return "silence"
    except Refused as refused:
        return refused.code
    return type(answer).__name__


def _drain(scene: Stage, numbers: list[int]) -> int:
    """Pop and ack all messages that these nodes hold."""
    acked = 0
    for number in numbers:
        with WireClient(scene.cluster.node(number).zmq) as client:
            try:
                while loans := client.pop(QUEUE, 1000):
                    acked += client.ack(QUEUE, [loan.receipt() for loan in loans]).done
            except (Silence, Refused):
                continue  # not ready, or not any more: leased messages are delivered again
    return acked


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))), flush=True)

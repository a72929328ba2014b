"""Nodes with `monitor_queue` publish their figures into that queue."""

from __future__ import annotations

import json
import time

import pytest

import weft
from weft.testing import cluster

MONITOR = "monitor"
#: Only a hang takes that long.
SAMPLES_S_MAX = 60.0


@pytest.mark.process
def test_every_node_publishes_samples_of_every_queue() -> None:
    with cluster(2, monitor_queue=MONITOR) as nodes, nodes.client() as client:
        client.create_queue("orders")
        client.queue("orders").push_many([b"x"] * 5)
        names = {node.node for node in client.view().nodes}
        wanted = {(name, queue) for name in names for queue in ("orders", MONITOR)}
        found: dict[tuple[str, str], dict[str, int]] = {}

        def complete() -> bool:
            # A sample may have been taken before the push.
            return found.keys() >= wanted and sum(found[n, "orders"]["pushed"] for n in names) == 5

        end = time.monotonic() + SAMPLES_S_MAX
        while not complete() and time.monotonic() < end:
            try:
                messages = client.queue(MONITOR).pop_many(100, wait_ms=500)
            except weft.QueueNotFound:
                time.sleep(0.1)  # the nodes create the queue after they start
                continue
            for message in messages:
                sample = json.loads(message.body)
                found[sample["node"], sample["queue"]] = sample
                message.ack()
        assert complete(), found

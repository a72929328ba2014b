"""rate_limit and max_in_flight hold over three nodes."""

from __future__ import annotations

import time

import pytest

import weft
from weft.testing import cluster

pytestmark = pytest.mark.process

RATE = 60
SECONDS = 3.0


def test_limits_hold_over_three_nodes() -> None:
    with cluster(3, durability="os") as made, made.client() as client:
        made.settled()
        client.create_queue("few", max_in_flight=6)
        client.create_queue("slow", rate_limit=RATE)
        few, slow = client.queue("few"), client.queue("slow")
        for queue in (few, slow):
            for _ in range(60):  # batches on all partitions
                queue.push_many([b"x"] * 10)

        held = []
        for _ in range(20):
            held += few.pop_many(100)
        assert len(held) == 6, "the parts of the nodes add up to the limit"
        assert few.stats().leased == 6
        few.ack_many([held.pop()])
        held += few.pop_many(100, wait_ms=5_000)
        assert len(held) == 6
        few.ack_many(held)

        began = time.monotonic()
        delivered = 0
        while time.monotonic() - began < SECONDS:
            messages = slow.pop_many(1000, wait_ms=200)
            delivered += len(messages)
            slow.ack_many(messages)
        took = time.monotonic() - began
        # A tenth of a second is saved, and each node rounds up to one message.
        assert delivered <= RATE * (took + 0.1) + 3
        assert delivered >= RATE * took / 2, "the nodes' parts are used"

        with pytest.raises(weft.InvalidArgument, match="cannot be divided among 3 nodes"):
            client.create_queue("one", max_in_flight=2)
        with pytest.raises(weft.QueueNotFound):
            client.queue("one").stats()
        with pytest.raises(weft.InvalidArgument, match="cannot be divided among 3 nodes"):
            client.update_queue("few", max_in_flight=1)
        assert few.stats().settings.max_in_flight == 6
        client.create_queue("one", max_in_flight=1, ordered=True)
        one = client.queue("one")
        one.push_many([b"x"] * 3)
        (message,) = one.pop_many(10, wait_ms=1_000)
        assert one.pop_many(10) == []
        one.ack_many([message])
        assert len(one.pop_many(10, wait_ms=1_000)) == 1

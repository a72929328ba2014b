"""A schedule for every second over the failover of a cluster of three: every tick once."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from tests.tasks import scheduled
from weft.client.sync_client import Client
from weft.tasks.call import decode_call
from weft.tasks.schedule import TICK, DueRecord, due_key
from weft.tasks.testing import worker_process
from weft.testing import cluster

pytestmark = [pytest.mark.process, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
QUEUE = "timed.default"
TIMEOUT_S = 120


def next_due(client: Client) -> float:
    data = client.kv.lookup(due_key("timed", "seconds"))
    assert data is not None
    return msgspec.msgpack.decode(data, type=DueRecord).next_due


def ticked(client: Client, due: float) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while next_due(client) < due:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_every_tick_happens_once_over_a_failover() -> None:
    with cluster(3, durability="os") as nodes:
        nodes.settled()
        client = nodes.client()
        client.create_queue("timed.marks")
        client.create_queue(QUEUE, lease_ms=1000)
        with worker_process(
            "tests.tasks.scheduled:app", nodes.servers, "-c", "2", folder=ROOT
        ) as w:
            w.logged("takes")
            first = next_due(client)
            ticked(client, first + 2)
            # The primary of the schedule's partitions is among these, whichever it is.
            for number in (1, 2):
                before = next_due(client)
                nodes.kill(number)
                nodes.recovered()
                ticked(client, before + 2)
                nodes.start(number)
                nodes.settled()
            ticked(client, next_due(client) + 2)
            assert w.stop() == 0
        last, held, ticks = next_due(client), 0, 0
        queue = client.queue(QUEUE)
        for message in [*queue.peek(1000), *queue.peek(1000, delayed=True)]:
            name = decode_call(message.body).name
            held, ticks = held + (name == "mark"), ticks + (name == TICK)
        assert ticks == 1, "one chain"
        assert client.queue("timed.marks").stats().ready + held == last - first
        scheduled.app.close()

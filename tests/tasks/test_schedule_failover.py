"""A schedule for every second over the failover of a cluster of three: every tick once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.tasks.pending_calls import begin_chain, next_due, pending_calls
from weft.client.sync_client import Client
from weft.tasks.testing import worker_process
from weft.testing import cluster

pytestmark = [pytest.mark.process, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120


def ticked(client: Client, due: float) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while next_due(client) < due:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_every_tick_happens_once_over_a_failover() -> None:
    with cluster(3, durability="os") as nodes:
        nodes.settled()
        client = nodes.client()
        first = begin_chain(client, nodes.servers)
        with worker_process(
            "tests.tasks.scheduled:app", nodes.servers, "-c", "2", folder=ROOT
        ) as w:
            w.logged("takes")
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
        calls = pending_calls(client)
        (last,) = calls.ticks  # one chain
        assert client.queue("timed.marks").stats().ready + calls.marks == last - first

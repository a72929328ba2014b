"""Queues with `expire_idle_ms` against real nodes."""

from __future__ import annotations

import time

import pytest
from click.testing import CliRunner

import weft
from weft.client.cli.main import cli
from weft.testing import Cluster, cluster

pytestmark = pytest.mark.process
MS = 5_000


def test_an_idle_queue_is_deleted_and_one_in_use_stays() -> None:
    with cluster(nodes=3) as nodes, nodes.client() as client:
        for name in ("idle", "polled"):
            client.create_queue(name, expire_idle_ms=MS)
        client.create_queue("kept")
        client.queue("idle").push(b"a message does not keep a queue")
        start = time.monotonic()
        while any(each.name == "idle" for each in client.list_queues("idle")):
            client.queue("polled").pop()
            assert time.monotonic() - start < 60
            time.sleep(0.3)
        assert time.monotonic() - start >= MS / 1000 - 1
        with pytest.raises(weft.QueueNotFound):
            client.queue("idle").push(b"too late")
        assert [each.name for each in client.list_queues()] == ["kept", "polled"]


def test_the_command_line_and_a_node_alone(node: Cluster) -> None:
    words = ["queue", "create", "fleeting", "--expire-idle-ms", str(MS), "-s", node.servers[0]]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(cli, ["queue", "show", "fleeting", "-s", node.servers[0]])
    assert "after 5.0 s without use" in done.output
    with node.client() as client:
        start = time.monotonic()
        while client.list_queues("fleeting"):  # which is no use of it
            assert time.monotonic() - start < 60, "the queue does not expire"
            time.sleep(0.2)

"""`weft tasks graph`: text, JSON, live, pictures; what a client leaves behind that was killed."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.tasks import graphs_app as shop
from weft.client.cli.main import cli
from weft.client.transport.blocking_link import run
from weft.errors import DeadlineExceeded
from weft.ids import MessageId
from weft.tasks import graph_submission
from weft.tasks.graph import Graph
from weft.tasks.testing import thread_worker
from weft.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60


@pytest.fixture(autouse=True)
def connected(node: Cluster) -> Iterator[None]:
    shop.app.connect(node.servers)
    yield
    for queue in shop.app.client.list_queues("graphs."):
        shop.app.client.queue(queue.name).purge()
    shop.app.close()


def command(node: Cluster, *words: str) -> Result:
    servers = ["--servers", ",".join(node.servers)]
    return CliRunner().invoke(cli, ["tasks", "graph", "graphs", *words, *servers])


def diamond() -> Graph:
    g = shop.app.graph()
    first = g.add(shop.one)
    g.add(shop.total, [g.add(shop.add, first), g.add(shop.add, first)])
    return g


def test_a_graph_as_text_as_json_and_as_a_picture(node: Cluster, tmp_path: Path) -> None:
    submitted = diamond().submit()
    result = command(node, submitted.id)
    assert result.exit_code == 0
    assert "0 of 4 tasks ended, 4 dependencies" in result.stdout
    assert "1 ready" not in result.stdout.splitlines()[0]
    assert "3 waiting  1 ready" in result.stdout
    said: dict[str, Any] = json.loads(command(node, submitted.id, "--json").stdout)
    assert [each["state"] for each in said["nodes"]] == ["ready", *["waiting"] * 3]
    assert said["nodes"][3]["parents"] == [1, 2]
    stats = json.loads(
        CliRunner()
        .invoke(
            cli,
            ["queue", "show", "graphs.default", "--json", "--servers", ",".join(node.servers)],
        )
        .stdout
    )
    assert (stats["ready"], stats["waiting"]) == (1, 3)
    with thread_worker(shop.app, node.servers):
        result = command(node, submitted.id, "--follow", "--interval", "0.1")
    assert result.exit_code == 0
    assert "4 of 4 tasks ended" in result.stdout
    for suffix in ("svg", "dot"):
        file = tmp_path / f"graph.{suffix}"
        assert command(node, submitted.id, "--plot", str(file)).exit_code == 0
        text = file.read_text()
        assert submitted.id in text
        if suffix == "svg":
            shapes = [each.tag.rpartition("}")[2] for each in ElementTree.fromstring(text)]
            assert (shapes.count("line"), shapes.count("rect")) == (4, 4 + 6)
        else:
            assert text.count("->") == 4
    assert command(node, submitted.id, "--plot", str(tmp_path / "x.png")).exit_code == 2
    assert command(node, "0" * 32).exit_code == 3


def test_a_failed_graph_and_a_large_one(node: Cluster, tmp_path: Path) -> None:
    g = shop.app.graph()
    bad = g.add(shop.fails)
    nodes = g.group(shop.add, range(400))
    g.add(shop.total, [bad, *nodes])
    submitted = g.submit()
    with thread_worker(shop.app, node.servers):
        result = command(node, submitted.id, "--follow", "--interval", "0.1")
    assert result.exit_code == 1
    assert "add: 400 of 400 ended (400 done)" in result.stdout
    assert "total: 1 of 1 ended (1 upstream failed)" in result.stdout
    file = tmp_path / "graph.svg"
    command(node, submitted.id, "--plot", str(file))
    assert "add: 400 of 400 done" in file.read_text()


def test_cancel(node: Cluster) -> None:
    submitted = diamond().submit()
    assert command(node, submitted.id, "--cancel").exit_code == 0
    with thread_worker(shop.app, node.servers):
        # The first task was ready: a worker may begin it before it hears of the cancel.
        assert submitted.wait(TIMEOUT_S).counts["cancelled"] >= 3


_KILLED = """
import os, signal
from tests.tasks import graphs_app as shop
from weft.tasks import graph_submission

async def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

graph_submission.REAP_S = 1.0
graph_submission._decide = killed
shop.app.connect({servers!r})
g = shop.app.graph()
first = g.group(shop.mark, [f"never {{n}}" for n in range(1_100)])
g.add(shop.mark, "never", after=first)
print(g.planned_for(shop.app.session).record.number, flush=True)
g.submit()
"""


def test_a_client_killed_while_it_submits_leaves_nothing_running(node: Cluster) -> None:
    client = shop.app.client
    client.create_queue("graphs.marks")
    program = _KILLED.format(servers=",".join(node.servers))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == -9, done.stderr
    stats = client.queue("graphs.default").stats()
    assert (stats.waiting, stats.ready, stats.delayed) == (1_101, 0, 1)
    with thread_worker(shop.app, node.servers):
        left = shop.app.graph_run(done.stdout.strip())
        progress = left.wait(TIMEOUT_S)
    assert progress.counts["upstream failed"] == 1_101
    assert shop.app.client.queue("graphs.marks").stats().pushed == 0
    assert shop.app.client.queue("graphs.default").stats().waiting == 0


def test_a_client_that_is_later_than_the_reaper_starts_nothing(node: Cluster) -> None:
    shop.app.client.create_queue("graphs.marks", update=True)
    g = shop.app.graph()
    g.group(shop.mark, map(str, range(1_100)))
    session = shop.app.session
    plan = g.planned_for(session)
    run(graph_submission.ensure_graph_queue(session, "graphs.default"))
    assert run(graph_submission.abandon(session, "graphs", plan.record))
    with pytest.raises(DeadlineExceeded, match="given up"):
        g.submit()
    with thread_worker(shop.app, node.servers):
        number = MessageId(plan.record.number)
        progress = shop.app.graph_run(number).wait(TIMEOUT_S)
    assert progress.counts["upstream failed"] == 1_100
    assert shop.app.client.queue("graphs.marks").stats().pushed == 0


def test_a_reaper_leaves_a_started_graph_alone(node: Cluster) -> None:
    submitted = diamond().submit()
    session = shop.app.session
    assert not run(graph_submission.abandon(session, "graphs", submitted.record))
    with thread_worker(shop.app, node.servers):
        assert submitted.result(TIMEOUT_S) == 4

"""Graphs through kills, short; and through a backup. `make graph-faults` is the long form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.tasks import graphs_app as shop
from weft.client.cli.main import cli
from weft.tasks.testing import thread_worker
from weft.testing import Cluster, cluster

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60


@pytest.mark.process
def test_graphs_end_once_while_workers_and_the_node_are_killed() -> None:
    program = [sys.executable, "-m", "tests.tasks.graph_faults", "--nodes", "1"]
    sizes = ["--tasks", "800", "--supervisors", "1", "--pause", "1.2", "--kill-s", "5"]
    done = subprocess.run(
        [*program, *sizes], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3_000:]
    assert "every task ended once, and nothing waits" in done.stdout


def command(servers: list[str], *words: str) -> None:
    told = CliRunner().invoke(cli, [*words, "--json", "-s", ",".join(servers)])
    assert told.exit_code == 0, (told.output, told.exception)
    json.loads(told.stdout)


@pytest.mark.process
def test_waiting_tasks_survive_a_backup_and_a_restore(node: Cluster, tmp_path: Path) -> None:
    shop.app.connect(node.servers)
    g = shop.app.graph()
    first = g.add(shop.one)
    layer = [g.add(shop.add, first) for _ in range(10)]
    g.add(shop.total, layer)
    submitted = g.submit()
    file = tmp_path / "graph.backup"
    command(node.servers, "backup", str(file))
    shop.app.close()
    with cluster(durability="os") as other:
        command(other.servers, "restore", str(file))
        shop.app.connect(other.servers)
        stats = shop.app.client.queue("graphs.default").stats()
        assert (stats.ready, stats.waiting) == (1, 11)
        again = shop.app.graph_run(submitted.id)
        with thread_worker(shop.app, other.servers):
            assert again.result(TIMEOUT_S) == 20
        shop.app.close()

"""`weft tasks`: workers by their heartbeats, the states of a task, cancel."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.tasks import shop
from weft.client.cli.main import cli
from weft.tasks import heartbeat
from weft.tasks.testing import worker_process
from weft.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60


@pytest.fixture(autouse=True)
def connected(node: Cluster) -> Iterator[None]:
    shop.app.connect(node.servers)
    yield
    shop.app.close()


def command(node: Cluster, *words: str) -> tuple[int, Any]:
    servers = ["--servers", ",".join(node.servers)]
    result = CliRunner().invoke(cli, ["tasks", *words, *servers, "--json"])
    try:
        return result.exit_code, json.loads(result.stdout)
    except ValueError:
        return result.exit_code, result.output


def until(node: Cluster, *words: str, holds: Any) -> Any:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        code, said = command(node, *words)
        if holds(said):
            return said
        assert time.monotonic() < deadline, (code, said)
        time.sleep(0.2)


def test_the_states_of_a_task(node: Cluster) -> None:
    shop.app.client.create_queue("shop.default")
    waiting = shop.double.submit(1)
    delayed = shop.double.with_options(delay=3600).submit(2)
    assert command(node, "show", "shop", waiting.id)[1]["state"] == "waiting"
    said = command(node, "show", "shop", delayed.id)[1]
    assert (said["state"], said["name"], said["queue"]) == ("delayed", "double", "shop.default")
    assert command(node, "cancel", "shop", delayed.id) == (
        0, {"id": delayed.id, "cancelled": True},
    )  # fmt: skip
    assert command(node, "show", "shop", delayed.id)[1]["state"] == "cancelled"
    assert command(node, "cancel", "shop", delayed.id)[0] == 3
    assert command(node, "show", "shop", "0" * 32) == (3, {"id": "0" * 32, "state": "unknown"})
    assert command(node, "show", "shop", "nonsense")[0] == 2
    arguments = ("-c", "1", "-q", "default")
    app = "tests.tasks.shop:app"
    with worker_process(app, node.servers, *arguments, folder=ROOT) as worker:
        assert waiting.result(TIMEOUT_S) == 2
        said = command(node, "show", "shop", waiting.id)[1]
        assert (said["state"], said["result"]) == ("succeeded", "2")
        failing = shop.fail_with_effects.submit(1)
        failing.exception(TIMEOUT_S)
        said = command(node, "show", "shop", failing.id)[1]
        assert (said["state"], said["error"], said["text"]) == (
            "failed", "RuntimeError", "no effects",
        )  # fmt: skip
        running = shop.nap.submit(600)
        said = until(
            node, "show", "shop", running.id, holds=lambda said: said["state"] == "running"
        )
        assert said["worker"].endswith(f" {worker.pid}")
        said = until(
            node, "list", "shop", holds=lambda said: said["workers"][0]["counts"]["failed"] == 1
        )
        (row,) = said["workers"]
        assert (row["pid"], row["queues"], row["counts"]["succeeded"]) == (
            worker.pid, ["shop.default"], 1,
        )  # fmt: skip
        assert list(row["running"]) == [running.id]
        assert [each["queue"] for each in said["queues"]] == ["shop.default"]
        assert command(node, "cancel", "shop", running.id)[0] == 0
        assert worker.stop() == 0
    assert command(node, "list", "shop")[1]["workers"] == []


def test_a_heartbeat_expires(node: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "TTL_MS", 300)
    client = shop.app.client
    beat = heartbeat.BeatWriter(
        client, "beats", "solo", 1, ["beats.default"], lambda: (heartbeat.TaskCounts(1), {})
    )
    deadline = time.monotonic() + TIMEOUT_S
    while not (rows := heartbeat.beats_of(client, "beats")):
        assert time.monotonic() < deadline
    assert (rows[0].pid, rows[0].counts.succeeded) == (os.getpid(), 1)
    while heartbeat.beats_of(client, "beats"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    beat.close()

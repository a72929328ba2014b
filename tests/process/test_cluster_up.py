"""`weft cluster up`: real nodes start, are listed, stop with Ctrl-C, and return."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

import weft
from tests.contract.served import eventually
from weft.client.admin.cluster import ClusterCalls
from weft.client.admin.cluster_health import ClusterHealth
from weft.client.cli.cluster.up import ClusterPlan, layout, remember
from weft.shell_command import typed_command

pytestmark = pytest.mark.process

WEFT = [sys.executable, "-m", "weft.client.cli.main"]


@contextmanager
def up(folder: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*WEFT, "cluster", "up", f"--data={folder}", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_json(process: subprocess.Popen[str]) -> Any:
    """The document that the command prints when all nodes serve."""
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line == "}\n":
            return json.loads(text)
    raise AssertionError(f"it ended: {text}")


def gone(pid: int) -> bool:
    end = time.monotonic() + 100
    while time.monotonic() < end:
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def port() -> str:
    """A base port with all of the nodes' ports free, below those that other tests take."""
    for base in random.SystemRandom().sample(range(2000, 9900, 50), 100):
        with ExitStack() as ends:
            probes = [ends.enter_context(socket.socket()) for _ in range(34)]
            if all(s.connect_ex(("127.0.0.1", base + n)) for n, s in enumerate(probes)):
                return f"--base-port={base}"
    raise AssertionError("no free ports")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_stop_and_comes_back(
    tmp_path: Path, port: str, number: signal.Signals
) -> None:
    with up(tmp_path, "-n1", port, "--json") as process:
        said = read_json(process)
        (node,) = said["nodes"]
        with weft.connect(said["servers"]) as client:
            client.create_queue("kept")
        process.send_signal(number)
        assert process.wait(100) == 0
    assert gone(node["pid"])
    assert "server.serve: stopped" in (tmp_path / "node-0.log").read_text()
    with up(tmp_path, "--json") as process:
        (again,) = read_json(process)["nodes"]
        assert (again["id"], again["grpc"]) == (node["id"], node["grpc"])
        with weft.connect(again["grpc"]) as client:
            assert [queue.name for queue in client.list_queues()] == ["kept"]
    assert gone(again["pid"])  # the command was killed this time


def test_three_nodes_come_and_come_back(tmp_path: Path, port: str) -> None:
    with up(tmp_path, port, "--json", "--durability=os") as process:
        said = read_json(process)
        assert len(said["nodes"]) == 3
        settle(said)
        with weft.connect(said["servers"]) as client:
            client.create_queue("kept")
            client.queue("kept").push(b"one")
        process.send_signal(signal.SIGINT)
        assert process.wait(100) == 0
    with up(tmp_path, "--json", "--durability=os") as process:
        again = read_json(process)
        assert [node["id"] for node in again["nodes"]] == [node["id"] for node in said["nodes"]]
        assert again["servers"] == said["servers"]
        settle(again)
        with weft.connect(again["servers"]) as client:
            message = client.queue("kept").pop(wait_ms=100_000)
            assert message is not None
            assert message.body == b"one"


@pytest.mark.parametrize("number", [0, 2])
def test_a_node_that_has_left_is_neither_started_nor_recommended(
    tmp_path: Path, port: str, number: int
) -> None:
    with up(tmp_path, port, "--json", "--durability=os") as process:
        said = read_json(process)
        settle(said)
        leaver = said["nodes"][number]
        stay = [node for node in said["nodes"] if node is not leaver]
        done = subprocess.run(
            [*WEFT, "-s", said["servers"], "cluster", "leave", leaver["id"], "--yes", "--force"],
            capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        calls = ClusterCalls([node["grpc"] for node in stay])
        eventually(lambda: leaver["id"] not in {node.id for node in calls.places().nodes})
        process.send_signal(signal.SIGINT)
        assert process.wait(100) == 0
    for _ in range(2):  # found by asking, then remembered
        with up(tmp_path, "--json", "--durability=os") as process:
            again = read_json(process)
            assert [node["id"] for node in again["nodes"]] == [node["id"] for node in stay]
            assert leaver["grpc"] not in again["servers"]
            settle(again)
            process.send_signal(signal.SIGINT)
            assert process.wait(100) == 0
    assert json.loads((tmp_path / "cluster.json").read_text())["left"] == [leaver["id"]]


def settle(said: Any) -> None:
    calls = ClusterCalls(said["servers"].split(","))
    eventually(lambda: ClusterHealth.of(calls.places()).settled)


def test_it_shows_where_everything_is_and_what_to_try(tmp_path: Path, port: str) -> None:
    with up(tmp_path, "-n1", port) as process:
        assert process.stdout is not None
        said = ""
        while "Stop with Ctrl-C" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
    grpc = f"127.0.0.1:{port.partition('=')[2]}"
    assert said.splitlines()[1].split()[:3][2] == grpc
    command = typed_command("main.py")
    assert f"{command} -s {grpc} cluster status" in said
    assert f"{command} -s {grpc} queue create hello" in said


def test_a_node_that_is_killed_is_told_of_and_not_started_again(tmp_path: Path, port: str) -> None:
    with up(tmp_path, "-n1", port, "--json") as process:
        (node,) = read_json(process)["nodes"]
        os.kill(node["pid"], signal.SIGKILL)
        assert process.wait(100) == 1
        assert process.stderr is not None
        assert "node-0 exited with code -9" in process.stderr.read()


def test_a_port_in_use_is_named_before_a_node_starts(tmp_path: Path, port: str) -> None:
    """A cluster beside `make run`: the message names the option, and the option then works."""
    base = int(port.partition("=")[2])
    with socket.create_server(("127.0.0.1", base + 11)):
        for flags in ([port], []):
            with up(tmp_path, "-n2", *flags) as process:
                _, said = process.communicate(timeout=100)
            assert process.returncode == 1
            assert f"error: node-1 cannot listen on 127.0.0.1:{base + 11}" in said
            assert "--base-port" in said
        assert not (tmp_path / "node-0").exists()
        with up(tmp_path, "-n1", f"--base-port={base + 20}", "--json") as process:
            (node,) = read_json(process)["nodes"]
            assert node["grpc"] == f"127.0.0.1:{base + 20}"
            process.send_signal(signal.SIGINT)
            assert process.wait(100) == 0
    with socket.create_server(("127.0.0.1", base + 21)), up(tmp_path) as process:
        _, said = process.communicate(timeout=100)
    assert process.returncode == 1
    assert "--base-port" not in said, "the nodes of an existing cluster keep their ports"


def test_a_node_that_does_not_start_is_named(tmp_path: Path, port: str) -> None:
    (tmp_path / "node-0").write_text("not a directory")
    with up(tmp_path, "-n1", port) as process:
        _, said = process.communicate(timeout=100)
    assert process.returncode == 1
    assert "error: node-0: the node ended with exit code 1" in said
    assert "cannot be used as a data directory" in said


def test_the_plan_is_remembered(tmp_path: Path) -> None:
    first = remember(tmp_path, 2, 9000, witness=True)
    assert first == ClusterPlan(2, 9000, True)
    assert remember(tmp_path, None, None, witness=False) == first
    assert remember(tmp_path, 4, 9000, witness=False) == ClusterPlan(4, 9000, True)
    assert remember(tmp_path, None, 9100, witness=False) == ClusterPlan(4, 9100, True), (
        "no node yet"
    )
    (tmp_path / "node-1").mkdir()
    (tmp_path / "node-1" / "node.json").write_text("{}")
    with pytest.raises(click.UsageError, match="--base-port 9100"):
        remember(tmp_path, None, 9000, witness=False)
    assert remember(tmp_path / "other", None, None, witness=False) == ClusterPlan(3, 7700, False)


def test_no_two_nodes_share_a_port(tmp_path: Path) -> None:
    nodes = layout(tmp_path, ClusterPlan(16, 7700, True))
    ports = [port for node in nodes for port in node.ports]
    assert len(set(ports)) == len(ports) == 17 * 4
    assert nodes[0].ports == (7700, 7701, 7703, 7702)
    assert nodes[1].ports == (7710, 7711, 7713, 7712)
    assert [node.data.name for node in nodes[-2:]] == ["node-15", "witness"]

"""`weft serve` as a process: its start, its refusals, and its end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc
from weft.testing import Cluster, cluster

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-m", "weft.server.serve_command"]


def run(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A node that is expected to exit by itself."""
    return subprocess.run(
        [*COMMAND, *flags],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, **environment},
    )


@contextmanager
def stubs(made: Cluster) -> Iterator[Any]:
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(made.servers[0], options=options) as channel:
        yield weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(data=tmp_path, grace_ms=60_000) as made:
        yield made


def test_it_says_where_clients_connect_and_what_to_try(made: Cluster) -> None:
    node = made.node(0)
    address = json.loads((node.data / "address.json").read_text())
    http = address.pop("http")
    assert address == {"grpc": node.grpc, "zmq": node.zmq, "pid": node.pid}
    said = node.log.read_text()
    assert f"clients connect to  {node.grpc}" in said
    assert f"http://{http}/metrics" in said
    commands = [line.strip() for line in said.splitlines() if line.startswith("  WEFT_SERVERS=")]
    assert len(commands) == 2
    for command in commands:  # they work as printed
        subprocess.run(command, shell=True, check=True, capture_output=True, timeout=100)
    assert made.client().queue("hello").stats().ready == 1


def test_health_reflection_and_view(made: Cluster) -> None:
    with grpc.insecure_channel(made.servers[0]) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        answer = health.Check(health_pb2.HealthCheckRequest(service="weft.v1.Queue"))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        services = ProtoReflectionDescriptorDatabase(channel).get_services()
        assert {"weft.v1.Queue", "weft.v1.Table", "weft.v1.Cluster"} <= set(services)
        stub = weft_pb2_grpc.ClusterStub(channel)  # type: ignore[no-untyped-call]
        (node,) = stub.View(pb.ViewRequest()).nodes
        assert (node.grpc, node.zmq) == (made.node(0).grpc, made.node(0).zmq)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(made: Cluster, number: signal.Signals) -> None:
    node = made.node(0)
    with stubs(made) as queue:
        queue.CreateQueue(pb.CreateQueueRequest(queue="q"))
        waiting = queue.Pop.future(pb.PopRequest(queue="q", wait_ms=60_000))
        while not queue.DescribeQueue(pb.DescribeQueueRequest(queue="q")).waiting_pops:
            time.sleep(0.01)
        node.signal(number)
        assert node.process is not None
        assert node.process.wait(100) == 0
        trailing = dict(waiting.trailing_metadata())
        assert (trailing["weft-code"], trailing["weft-retriable"]) == ("SHUTTING_DOWN", "true")
    assert not (node.data / "address.json").exists()
    assert node.log.read_text().rstrip().endswith("server.serve: stopped")


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with cluster(data=tmp_path, grace_ms=600_000) as made, stubs(made) as queue:
        queue.CreateQueue(pb.CreateQueueRequest(queue="q"))
        body = pb.OutMessage(body=bytes(1 << 20))
        for _ in range(16):
            queue.Push(pb.PushRequest(queue="q", messages=[body] * 4))
        # A client that does not read holds its stream, and so the drain, until the grace is over.
        stream = queue.Consume(pb.ConsumeRequest(queue="q", limit=4, prefetch=1000))
        next(stream)
        time.sleep(0.3)
        node = made.node(0)
        assert node.process is not None
        node.signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            node.process.wait(1)
        node.signal(signal.SIGTERM)
        assert node.process.wait(100) == 128 + signal.SIGTERM
        stream.cancel()


def test_what_was_pushed_is_there_after_a_restart(made: Cluster) -> None:
    with stubs(made) as queue:
        queue.CreateQueue(pb.CreateQueueRequest(queue="q"))
        push = pb.PushRequest(queue="q", messages=[pb.OutMessage(body=b"kept")])
        (pushed,) = queue.Push(push).ids
    made.kill(0)
    made.start(0)
    with stubs(made) as queue:
        (message,) = queue.Pop(pb.PopRequest(queue="q"), wait_for_ready=True, timeout=100).messages
        assert (message.id, message.body) == (pushed, b"kept")


def test_a_failed_disk_ends_the_node(tmp_path: Path) -> None:
    # A file that may not grow acts as a failing disk: LevelDB's log ends at the limit.
    flags = ["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    node = subprocess.Popen(
        ["bash", "-c", 'ulimit -f 4096; exec "$@"', "bash", *COMMAND, *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = _address(tmp_path / "data", node)
        with grpc.insecure_channel(address) as channel:
            queue = weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]
            queue.CreateQueue(pb.CreateQueueRequest(queue="q"))
            push = pb.PushRequest(queue="q", messages=[pb.OutMessage(body=bytes(1 << 20))])
            codes = [queue.Push.future(push, timeout=100).code() for _ in range(8)]
        _, said = node.communicate(timeout=100)
    finally:
        node.kill()
        node.wait()
    stored = codes.index(grpc.StatusCode.UNAVAILABLE)
    # gRPC itself answers CANCELLED to a call that meets the server while it closes.
    refused = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
    assert set(codes[:stored]) <= {grpc.StatusCode.OK}
    assert set(codes[stored:]) <= refused
    assert node.returncode == 3
    assert "weft serve: the node failed and ended: " in said
    assert "File too large" in said


def _address(data: Path, node: subprocess.Popen[str]) -> str:
    file = data / "address.json"
    end = time.monotonic() + 100
    while not file.exists():
        assert node.poll() is None, "it ended"
        assert time.monotonic() < end, "it does not serve"
        time.sleep(0.01)
    return str(json.loads(file.read_text())["grpc"])


def test_json_logs_and_nothing_else(tmp_path: Path) -> None:
    with cluster(data=tmp_path, log_format="json") as made:
        made.stop(0)
        lines = [json.loads(line) for line in made.node(0).log.read_text().splitlines()]
    assert [line["message"] for line in lines if line["where"] == "server.serve"] == [
        "serving",
        "stopping",
        "stopped",
    ]
    assert next(line for line in lines if line["message"] == "serving")["durability"] == "disk"


def test_a_node_that_waits_for_a_member_can_be_stopped(tmp_path: Path) -> None:
    flags = ["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--join", "127.0.0.1:1"]
    node = subprocess.Popen([*COMMAND, *flags], stderr=subprocess.PIPE, text=True)
    try:
        assert node.stderr is not None
        said = node.stderr.readline()
        assert "waiting for a member" in said
        assert "127.0.0.1:1: connection refused" in said
        node.send_signal(signal.SIGTERM)
        _, rest = node.communicate(timeout=100)
    finally:
        node.kill()
        node.wait()
    assert node.returncode == 0
    assert "stopped reason=SIGTERM" in rest
    assert not (tmp_path / "data").exists()


# --- refused starts ---------------------------------------------------------------------------


def refused(done: subprocess.CompletedProcess[str], code: int, says: str) -> None:
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_node_on_the_same_data(made: Cluster) -> None:
    done = run("--data", str(made.node(0).data), "--listen", "127.0.0.1:0")
    refused(done, 1, f"is in use by process {made.node(0).pid}")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("which", ["listen", "zmq_listen", "http_listen"])
def test_a_port_in_use(tmp_path: Path, which: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = {"listen": "127.0.0.1:0", "zmq_listen": "127.0.0.1:0", which: address}
        done = run(
            f"--data={tmp_path}",
            f"--listen={flags['listen']}",
            f"--zmq-listen={flags['zmq_listen']}",
            f"--http-listen={flags.get('http_listen', '127.0.0.1:0')}",
            "--peer-listen=127.0.0.1:0",  # the default port may be taken, too
        )
    refused(done, 1, f"cannot listen on {address}")
    assert "Address already in use" in done.stderr
    assert not (tmp_path / "address.json").exists()


def test_a_data_directory_of_a_newer_version(tmp_path: Path) -> None:
    with cluster(data=tmp_path) as made:
        made.stop(0)
        file = made.node(0).data / "node.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "format": 99}))
        refused(run("--data", str(file.parent), "--listen", "127.0.0.1:0"), 1, "Upgrade Weft")


def test_a_data_directory_that_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    refused(run("--data", str(file)), 1, "cannot be used as a data directory")


def test_beyond_this_machine(tmp_path: Path) -> None:
    flags = ["--data", str(tmp_path / "data"), "--listen", "0.0.0.0:0"]
    refused(run(*flags), 2, "any program there can read and delete every queue")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("flags", "environment", "says"),
    [
        (["--nonsense"], {}, "No such option"),
        (["--durability", "none"], {}, "'none' is not one of 'disk', 'os'"),
        (["--grace-ms", "soon"], {}, "not a valid integer"),
        (["--grace-ms", "-1"], {}, "grace_ms must be 0 to"),
        (["--listen", "nowhere"], {}, "listen must be HOST:PORT"),
        (["--config", "none.toml"], {}, "none.toml cannot be read"),
        ([], {"WEFT_GRACE_MS": "soon"}, "WEFT_GRACE_MS must be a whole number"),
    ],
)
def test_wrong_settings_are_usage_errors(
    flags: list[str], environment: dict[str, str], says: str
) -> None:
    refused(run(*flags, **environment), 2, says)


def test_help_names_every_setting() -> None:
    done = run("--help")
    assert done.returncode == 0
    for flag in (
        "--data",
        "--zmq-listen",
        "--calls-max",
        "--join",
        "--peer-listen",
        "--insecure",
        "WEFT_GRACE_MS",
        "--config",
    ):
        assert flag in done.stdout

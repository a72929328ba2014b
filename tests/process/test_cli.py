"""The `weft` command against a real node: every command, its output, its exit code."""

from __future__ import annotations

import base64
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from weft import testing
from weft.client.cli.main import cli

pytestmark = pytest.mark.process

WEFT = [sys.executable, "-m", "weft.client.cli.main"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.Cluster]:
    with testing.cluster(data=tmp_path_factory.mktemp("cli"), durability="os") as running:
        yield running


@pytest.fixture
def servers(cluster: testing.Cluster) -> str:
    return cluster.servers[0]


@pytest.fixture
def queue(servers: str, request: pytest.FixtureRequest) -> str:
    """A separate queue for the test."""
    name: str = request.node.name.partition("[")[0]
    assert weft(servers, "queue", "create", name).stdout == f"created {name}\n"
    return name


def weft(servers: str, *words: str, stdin: str | bytes = "", code: int = 0) -> Result:
    told = CliRunner().invoke(cli, ["-s", servers, *words], input=stdin)
    assert told.exit_code == code, (told.stdout, told.stderr, told.exception)
    return told


def weft_json(servers: str, *words: str, code: int = 0) -> Any:
    return json.loads(weft(servers, *words, "--json", code=code).stdout)


def lines_json(told: Result) -> list[Any]:
    return [json.loads(line) for line in told.stdout.splitlines()]


def spawn(servers: str, *words: str, **streams: Any) -> subprocess.Popen[bytes]:
    environment = os.environ | {"WEFT_SERVERS": servers}
    return subprocess.Popen([*WEFT, *words], env=environment, stderr=subprocess.PIPE, **streams)


# --- queues -----------------------------------------------------------------------------------


def test_queue_create_show_update_list_delete(servers: str) -> None:
    settings = ["--lease-ms", "5000", "--max-deliveries", "3", "--dead-letter", "life.dead"]
    made = weft_json(servers, "queue", "create", "life", *settings)
    assert made == {"queue": "life", "created": True}
    assert weft_json(servers, "queue", "create", "life", *settings)["created"] is False
    told = weft(servers, "queue", "create", "life", "--lease-ms", "7000", code=1)
    assert "try: `weft queue show NAME`" in told.stderr

    shown = weft_json(servers, "queue", "show", "life")
    assert shown["settings"]["lease_ms"] == 5000
    assert shown["settings"]["dead_letter"] == "life.dead"
    weft(servers, "queue", "update", "life", "--lease-ms", "6000")
    assert weft_json(servers, "queue", "show", "life")["settings"]["lease_ms"] == 6000
    assert "6.0 s" in weft(servers, "queue", "show", "life").stdout

    listed = weft_json(servers, "queue", "list", "--prefix", "life")
    assert [one["name"] for one in listed] == ["life", "life.dead"]
    table = weft(servers, "queue", "list", "--prefix", "life").stdout
    assert table.splitlines()[1].split()[:2] == ["life", "0"]
    assert "\x1b" not in table

    in_use = weft(servers, "queue", "delete", "life.dead", "--yes", "--json", code=1)
    assert json.loads(in_use.stderr)["error"]["code"] == "QUEUE_IN_USE"
    weft(servers, "push", "life", "x")
    assert weft_json(servers, "queue", "delete", "life", "--yes")["deleted"] == 1
    gone = weft(servers, "queue", "show", "life", code=1)
    assert gone.stderr.startswith("error: ")
    assert "weft queue create NAME" in gone.stderr


def test_purge_needs_a_yes(servers: str, queue: str) -> None:
    weft(servers, "push", queue, "--lines", "-", stdin="a\nb\n")
    told = weft(servers, "queue", "purge", queue, code=2)
    assert "--yes" in told.stderr
    assert weft_json(servers, "queue", "show", queue)["ready"] == 2
    assert weft_json(servers, "queue", "purge", queue, "--yes") == {"queue": queue, "purged": 2}


def test_redrive_sends_dead_letters_back(servers: str) -> None:
    weft(servers, "queue", "create", "live", "--max-deliveries", "1", "--dead-letter", "grave",
         "--lease-ms", "100")  # fmt: skip
    weft(servers, "push", "live", "poison")
    weft(servers, "pop", "live", "--no-ack")
    end = time.monotonic() + 100
    while not weft_json(servers, "queue", "show", "grave")["ready"]:
        assert time.monotonic() < end, "the lease ended and the message is not in its dead letter"
        time.sleep(0.05)
    findings = {one["check"]: one for one in weft_json(servers, "doctor")}
    assert findings[f"{servers} dead letters"]["level"] == "WARN"
    assert weft_json(servers, "queue", "redrive", "grave")["redriven"] == 1
    assert weft(servers, "pop", "live").stdout == "poison\n"


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 1), (b"y\n", 0)])
def test_on_a_terminal_a_person_decides(servers: str, answer: bytes, code: int) -> None:
    name = f"asked-{code}"
    weft(servers, "queue", "create", name)
    ours, theirs = pty.openpty()
    with spawn(servers, "queue", "delete", name, stdin=theirs, stdout=subprocess.PIPE) as process:
        os.close(theirs)
        os.write(ours, answer)
        _, told = process.communicate(timeout=100)
    os.close(ours)
    assert process.returncode == code
    assert b"with all its messages?" in told
    assert bool(weft_json(servers, "queue", "list", "--prefix", name)) is bool(code)


# --- messages ---------------------------------------------------------------------------------


def test_push_peek_pop(servers: str, queue: str) -> None:
    made = weft_json(
        servers, "push", queue, "hello", "--header", "a=1", "-H", "b=x=y", "--key", "k"
    )
    assert len(made["id"]) == 32
    raw = b"\xff\xfe\x00"
    weft(servers, "push", queue, "-", stdin=raw, code=0)

    first, second = lines_json(weft(servers, "peek", queue, "--json"))
    assert first["id"] == made["id"]
    assert first["body"] == "hello"
    assert first["headers"] == {"a": "1", "b": "x=y"}
    assert first["key"] == "k"
    assert base64.b64decode(second["body_base64"]) == raw
    assert "hello" in weft(servers, "peek", queue).stdout

    (popped,) = lines_json(weft(servers, "pop", queue, "--json"))
    assert popped["id"] == made["id"]
    assert popped["deliveries"] == 1
    assert weft(servers, "pop", queue, "-n", "9").stdout_bytes == raw + b"\n"
    nothing = weft(servers, "pop", queue, code=3)
    assert nothing.stdout == ""
    assert weft_json(servers, "queue", "show", queue)["leased"] == 0


def test_the_options_of_a_push_arrive(servers: str, queue: str) -> None:
    weft(servers, "push", queue, "low")
    weft(servers, "push", queue, "high", "--priority", "9")
    weft(servers, "push", queue, "later", "--delay-ms", "60000")
    ids = {weft(servers, "push", queue, "once", "--dedup-key", "d").stdout for _ in range(2)}
    assert len(ids) == 1
    assert weft_json(servers, "queue", "show", queue)["delayed"] == 1
    assert weft(servers, "pop", queue, "-n", "9").stdout.split() == ["high", "low", "once"]
    told = weft(servers, "push", queue, "x", "--priority", "10", code=2)
    assert "priority must be 0 to 9" in told.stderr


def test_lines_are_messages(servers: str, queue: str, tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(2500)]
    file = tmp_path / "lines"
    file.write_text("\n".join(lines))  # the last one without a newline
    told = weft(servers, "push", queue, "--lines", str(file), "--header", "from=file")
    assert told.stdout == f"pushed 2,500 messages to {queue}\n"
    (seen,) = lines_json(weft(servers, "peek", queue, "-n", "1", "--json"))
    assert seen["headers"] == {"from": "file"}
    assert weft(servers, "pop", queue, "-n", "9999").stdout.splitlines() == lines


def test_lines_of_a_missing_queue_fail_loudly(servers: str) -> None:
    told = weft(servers, "push", "nowhere", "--lines", "-", stdin="a\nb\n", code=1)
    assert "weft queue list" in told.stderr
    assert told.stdout == ""


def test_a_pop_without_ack_leaves_the_message_leased(servers: str, queue: str) -> None:
    weft(servers, "push", queue, "x")
    assert weft(servers, "pop", queue, "--no-ack").stdout == "x\n"
    assert weft_json(servers, "queue", "show", queue)["leased"] == 1


def test_a_pop_waits_and_prints_what_comes(servers: str, queue: str) -> None:
    words = ["pop", queue, "-n", "2", "--wait-ms", "100000"]
    with spawn(servers, *words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for body in ("one", "two"):
            weft(servers, "push", queue, body)
            assert process.stdout.readline() == body.encode() + b"\n"
        assert process.wait(100) == 0


def test_an_interrupt_is_quiet(servers: str, queue: str) -> None:
    with spawn(servers, "pop", queue, "--wait-ms", "200000", stdout=subprocess.PIPE) as process:
        end = time.monotonic() + 100
        while not weft_json(servers, "queue", "show", queue)["waiting_pops"]:
            assert time.monotonic() < end, "it does not wait"
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, told = process.communicate(timeout=100)
    assert process.returncode == 130
    assert (out, told.strip()) == (b"", b"")


def test_a_closed_pipe_is_quiet_and_loses_nothing(servers: str, queue: str) -> None:
    weft(servers, "push", queue, "--lines", "-", stdin="x\n" * 10)
    reader, writer = os.pipe()
    os.close(reader)
    with spawn(servers, "pop", queue, "-n", "10", stdout=writer) as process:
        os.close(writer)
        _, told = process.communicate(timeout=100)
    assert process.returncode == 1
    assert told == b""
    assert weft_json(servers, "queue", "show", queue)["ready"] == 10


# --- the table, the node ----------------------------------------------------------------------


def test_kv(servers: str) -> None:
    weft(servers, "kv", "insert", "colour", "blue")
    inserted = weft_json(servers, "kv", "lookup", "colour")["version"]
    assert weft(servers, "kv", "lookup", "colour").stdout == "blue"
    assert weft(servers, "kv", "append", "colour", "ish").stdout == "7\n"
    # A version is a number of the partition's log, in which other entries have numbers, too.
    found = weft_json(servers, "kv", "lookup", "colour")
    assert found.pop("version") > inserted > 0
    assert found == {"key": "colour", "value": "blueish"}
    refused = weft(servers, "kv", "cas", "colour", "--old", "red", "--new", "green", code=1)
    assert "blueish" in refused.stderr
    swapped = weft_json(servers, "kv", "cas", "colour", "--old", "blueish", "--new", "green")
    assert swapped == {"key": "colour", "swapped": True, "current": "blueish"}
    assert weft_json(servers, "kv", "remove", "colour") == {"key": "colour", "removed": True}
    weft(servers, "kv", "remove", "colour", code=1)
    weft(servers, "kv", "lookup", "colour", code=1)
    weft(servers, "kv", "cas", "colour", "--absent", "--new", "red")
    weft(servers, "kv", "cas", "colour", "--old", "red", "--remove")
    assert weft_json(servers, "kv", "lookup", "colour", code=1)["value"] is None
    weft(servers, "kv", "insert", "raw", "-", stdin=b"\xff")
    assert weft(servers, "kv", "lookup", "raw").stdout_bytes == b"\xff"


def test_status(servers: str) -> None:
    found = weft_json(servers, "status")
    assert found["durability"] == "os"
    assert found["uptime_ms"] > 0
    assert found["node"] in weft(servers, "status").stdout


def test_doctor_on_a_healthy_node(servers: str) -> None:
    findings = {one["check"]: one for one in weft_json(servers, "doctor")}
    assert not [one for one in findings.values() if one["level"] == "FAIL"]
    for check in ("gRPC", "ZeroMQ", "version", "disk", "old messages"):
        assert findings[f"{servers} {check}"]["level"] == "OK", check
    assert findings[f"{servers} durability"]["level"] == "WARN"
    assert f"WARN  {servers} durability" in weft(servers, "doctor").stdout


def test_doctor_leaves_a_directory_in_use_alone(cluster: testing.Cluster) -> None:
    told = CliRunner().invoke(cli, ["doctor", "--data", str(cluster.node().data), "--json"])
    assert told.exit_code == 0, told.stderr
    (found,) = [one for one in json.loads(told.stdout) if one["check"].endswith(" data")]
    assert found["level"] == "WARN"
    assert str(cluster.node().pid) in found["found"]

"""`weft top` against a real node: once, as JSON, into a pipe, and live on a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft import testing

pytestmark = pytest.mark.process

WEFT = [sys.executable, "-m", "weft.client.cli.main"]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node with a queue that receives pushes all the time."""
    data: Path = tmp_path_factory.mktemp("top")
    with testing.cluster(data=data, durability="os") as running:
        client = running.client()
        for name in ("busy", "idle"):
            client.create_queue(name)
        client.queue("idle").push(b"x")
        end = threading.Event()

        def push() -> None:
            busy = client.queue("busy")
            while not end.wait(0.05):
                busy.push_many([b"x"] * 10)

        pusher = threading.Thread(target=push)
        pusher.start()
        yield running.servers[0]
        end.set()
        pusher.join()


def weft(servers: str, *words: str) -> str:
    done = subprocess.run(
        [*WEFT, "-s", servers, "top", *words],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_once_as_json(servers: str) -> None:
    end = time.monotonic() + 100
    while True:
        told = json.loads(weft(servers, "--once", "--interval", "0.5", "--json"))
        assert told["seconds"] > 0.4
        busy, idle = sorted(told["queues"], key=lambda queue: str(queue["name"]))
        if busy["pushed_per_s"]:
            break
        assert time.monotonic() < end, "nobody pushes"  # the pusher did not run
    assert [queue["name"] for queue in told["queues"]] == ["busy", "idle"]
    # Tens of messages, in the reported time, to hundredths of a second.
    pushed = busy["pushed_per_s"] * told["seconds"]
    assert pushed == pytest.approx(round(pushed, -1), rel=0.02)
    assert idle["pushed_per_s"] == 0
    assert idle["ready"] == 1
    assert [node["grpc"] for node in told["nodes"]] == [servers]
    assert told["status"]["queues"] == 2


def test_once_as_a_table_sorted_by_name_of_choice(servers: str) -> None:
    lines = weft(servers, "--once", "--interval", "0.3", "--sort", "oldest").splitlines()
    assert lines[0].startswith("node ")
    assert lines[1].split()[:2] == ["queue", "pushed/s"]
    assert {line.split()[0] for line in lines[2:]} == {"busy", "idle"}


def test_json_is_a_line_an_interval_until_interrupted(servers: str) -> None:
    with subprocess.Popen(
        [*WEFT, "-s", servers, "--json", "top", "--interval", "0.2"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        for _ in range(2):
            assert len(json.loads(process.stdout.readline())["queues"]) == 2
        process.send_signal(signal.SIGINT)
        assert process.wait(100) == 0


def test_live_on_a_terminal(servers: str) -> None:
    main, terminal = pty.openpty()
    process = subprocess.Popen(
        [*WEFT, "-s", servers, "top", "--interval", "0.2"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "30"},
    )
    os.close(terminal)
    try:
        seen, end = b"", time.monotonic() + 100
        while seen.count(b"busy") < 2:
            assert time.monotonic() < end, seen
            if select.select([main], [], [], 1)[0]:
                seen += os.read(main, 65536)
        process.send_signal(signal.SIGINT)
        while process.poll() is None:
            assert time.monotonic() < end, "it does not end"
            if select.select([main], [], [], 0.1)[0]:
                try:
                    seen += os.read(main, 65536)
                except OSError:
                    break  # the other side of the terminal is closed
        assert process.wait(100) == 0
        assert b"pushed/s" in seen
        assert b"\x1b[?1049h" in seen  # the alternate screen
    finally:
        process.kill()
        process.wait()
        os.close(main)


@pytest.mark.parametrize("wrong", [["--interval", "0"], ["--sort", "colour"]])
def test_wrong_options_are_usage_errors(servers: str, wrong: list[str]) -> None:
    done = subprocess.run(
        [*WEFT, "-s", servers, "top", *wrong], capture_output=True, timeout=100, check=False
    )
    assert done.returncode == 2

"""`weft call` and `weft reply`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

import weft
from tests.contract.served import eventually
from weft.client.cli.main import cli
from weft.testing import Cluster

pytestmark = pytest.mark.process
LONG_MS = 100_000


@pytest.fixture
def client(node: Cluster) -> Iterator[weft.Client]:
    with weft.connect(node.servers) as client:
        yield client


def command(nodes: Cluster, *words: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, [*words, "-s", ",".join(nodes.servers)])
    assert done.exit_code == code, done.output
    return done.stdout


@contextmanager
def answering(nodes: Cluster, *words: str) -> Iterator[subprocess.Popen[str]]:
    """`weft reply` as a program: two commands in one process would share its standard output."""
    command = [sys.executable, "-m", "weft.client.cli.main", "reply", *words]
    with subprocess.Popen(
        [*command, "-s", ",".join(nodes.servers)], stdout=subprocess.PIPE, text=True
    ) as program:
        try:
            yield program
        finally:
            program.kill()


def test_the_commands(node: Cluster, client: weft.Client) -> None:
    client.create_queue("asked")
    queue = client.queue("asked")
    ask = ("call", queue.name, "--timeout-ms", str(LONG_MS))
    with answering(node, queue.name, "--exec", "tr a-z A-Z", "-n", "2", "--json") as program:
        assert command(node, *ask, "question") == "QUESTION"
        said = json.loads(command(node, *ask, "more", "--json"))
        assert said == {"body": "MORE", "headers": {}}
        assert json.loads(program.communicate()[0])["answered"] == 2
        assert program.returncode == 0
    with answering(node, queue.name, "fixed", "-n", "1") as program:
        assert command(node, *ask, "x") == "fixed"
        assert program.wait() == 0
    assert command(node, "reply", queue.name, "x", "--idle-ms", "100", code=3) == ""
    done = CliRunner().invoke(
        cli, ["call", queue.name, "x", "--timeout-ms", "300", "--json", "-s", node.servers[0]]
    )
    assert done.exit_code == 1
    assert json.loads(done.stderr)["error"]["code"] == "CALL_TIMED_OUT"


def test_the_reply_command_with_a_command_that_fails_and_a_plain_message(
    node: Cluster, client: weft.Client
) -> None:
    client.create_queue("ask-dead")
    client.create_queue("failing", lease_ms=1_000, max_deliveries=2, dead_letter="ask-dead")
    queue = client.queue("failing")
    queue.push(b"plain")
    command(node, "reply", queue.name, "x", "--idle-ms", "500", code=1)
    letter = client.queue("ask-dead").pop(wait_ms=LONG_MS)
    assert letter is not None
    assert "not a question" in letter.dead_reason
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(queue.call, b"q", timeout_ms=LONG_MS)
        eventually(lambda: queue.stats().ready == 1)
        command(node, "reply", queue.name, "--exec", "exit 7", "--idle-ms", "4000", code=1)
        letter = client.queue("ask-dead").pop(wait_ms=LONG_MS)
        assert letter is not None
        assert "exit status 7" in letter.dead_reason
        assert letter.reply_to is not None
        letter.reply(b"by hand", ack=True)  # an operator can still answer
        assert asked.result().body == b"by hand"

"""Another language: a Node.js program that has only proto/weft.proto works with a real node."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import weft
from tests import node_packages
from tests.node_packages import PROTO, SOURCE
from tests.process.live_node import LiveNode
from tools.languages.build_cache import Missing

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    try:
        return node_packages.environment()
    except Missing as why:
        pytest.skip(str(why))


def test_a_node_js_transaction(environment: dict[str, str], tmp_path: Path) -> None:
    with LiveNode(tmp_path / "node") as node:
        node.start()
        with weft.connect(node.grpc) as client:
            client.create_queue("from")
            client.create_queue("to")
            for start in range(0, 1000, 100):
                bodies = [b"message %d" % number for number in range(start, start + 100)]
                client.queue("from").push_many(bodies)
            done = subprocess.run(
                node_packages.transform([node.grpc], "from", "to", 1000),
                env=environment,
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert done.stdout == "transformed 1000\n"
            counted = client.kv.lookup("transformed/to") or b""
            assert sum(map(int, filter(None, counted.split(b",")))) == 1000
            found = [each.body for each in client.queue("to").pop_many(2000, wait_ms=5000)]
            assert sorted(found) == sorted(b"MESSAGE %d" % number for number in range(1000))
            assert client.queue("from").stats().ready == 0


def test_a_node_js_client(environment: dict[str, str], tmp_path: Path) -> None:
    with LiveNode(tmp_path / "node") as node:
        node.start()
        done = subprocess.run(
            ["node", str(SOURCE / "queue.js"), node.grpc, str(PROTO)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "node.js: ok" in done.stdout
        assert "Traceback" not in node.log
        assert node.stop() == 0

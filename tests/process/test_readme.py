"""The printed examples of README.md and docs/tutorial.md are files, and run as printed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from weft.testing import cluster

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "first.py"
WORKER = ROOT / "examples" / "worker.py"


def test_the_examples_are_the_printed_ones() -> None:
    text = (ROOT / "README.md").read_text()
    (worker,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    tutorial = (ROOT / "docs" / "tutorial.md").read_text()
    first, *_ = re.findall(r"```python\n(.*?)```", tutorial, re.DOTALL)
    assert first == EXAMPLE.read_text()
    assert worker == WORKER.read_text()
    assert text.index('queue("orders").work(') < text.index("## How fast")


def test_the_readme_names_the_wire_format_and_the_library_that_writes_it() -> None:
    text = " ".join((ROOT / "README.md").read_text().split())
    assert "msgpack frames that the library msgspec writes" in text
    assert '"msgspec' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.process
def test_the_worker_runs_until_it_is_told_to_stop(tmp_path: Path) -> None:
    with cluster() as node, node.client() as client:
        program = tmp_path / "worker.py"
        program.write_text(WORKER.read_text().replace("127.0.0.1:7700", node.servers[0]))
        with subprocess.Popen(
            [sys.executable, str(program)], stdout=subprocess.PIPE, text=True
        ) as process:
            client.create_queue(
                "orders", lease_ms=30_000, max_deliveries=5, dead_letter="orders.dead"
            )
            client.queue("orders").push(b"one")
            assert process.stdout is not None
            assert process.stdout.readline() == "handled one\n"
            process.send_signal(signal.SIGTERM)
            assert "1 succeeded" in process.stdout.read()
            assert process.wait(100) == 0
        assert client.queue("orders").stats().acked == 1


@pytest.mark.process
def test_the_example_runs_twice(tmp_path: Path) -> None:
    with cluster() as node:
        # Only the address differs: a real node may listen on the README's port.
        text = EXAMPLE.read_text().replace("127.0.0.1:7700", node.servers[0])
        program = tmp_path / "first.py"
        program.write_text(text)
        for _ in range(2):
            ran = subprocess.run(
                [sys.executable, str(program)], capture_output=True, text=True, timeout=200
            )
            assert ran.returncode == 0, ran.stderr
            first, second, third = ran.stdout.splitlines()
            assert first.endswith("b'one' {'from': 'readme'} 1")
            # The second time "four" is a push of the same dedup key within the window.
            assert second in ("[b'two', b'three', b'four']", "[b'two', b'three']")
            assert third == "0 left"

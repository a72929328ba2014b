"""The workers in examples/ in Go, Node.js and Java, against a real node that restarts.

A message says in its body how long its work takes, and the worker prints each message that it has
handled. Without a language's tools, or their registry, its test is skipped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

import weft
from tools.languages import go_programs, maven_projects, npm_packages
from tools.languages.build_cache import Missing
from weft.testing import Cluster, cluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"
#: The work of the long message exceeds its lease several times.
LEASE_MS, LONG_MS = 1000, 3000
#: Only a hang takes longer.
_WAIT_S: Final = 100.0


class ExampleWorker:
    """A running worker and the lines that it printed."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, errors: Path) -> None:
        self.process = process
        self._out = out
        self._errors = errors

    def handled(self) -> list[str]:
        lines = self._out.read_text().splitlines(keepends=True)
        return [
            line.split()[1] for line in lines if line.startswith("handled ") and line[-1] == "\n"
        ]

    def said(self) -> str:
        return self._out.read_text() + self._errors.read_text()

    def until(self, check: Callable[[], bool]) -> None:
        end = time.monotonic() + _WAIT_S
        while not check():
            assert self.process.poll() is None, f"the worker ended: {self.said()}"
            assert time.monotonic() < end, f"it did not happen in time: {self.said()}"
            time.sleep(0.02)


def command(language: str, address: str, queue: str) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of a worker with two handlers."""
    folder = EXAMPLES / f"{language}-worker"
    words = [address, queue, "2"]
    try:
        if language == "go":
            return [str(go_programs.program(folder)), *words], {}
        if language == "node":
            modules = npm_packages.installed(folder / "package.json")
            script = ["node", str(folder / "worker.js"), str(go_programs.PROTO)]
            return [*script, *words], {"NODE_PATH": str(modules)}
        # A short program: the compiler's later stages would only cost time.
        java = ["java", "-XX:TieredStopAtLevel=1", "-cp", maven_projects.classpath(folder)]
        return [*java, "weft.example.Worker", *words], {}
    except Missing as error:
        pytest.skip(str(error))


@contextmanager
def working(language: str, node: Cluster, folder: Path) -> Iterator[ExampleWorker]:
    words, environment = command(language, node.servers[0], "orders")
    out, errors = folder / "out", folder / "errors"
    with out.open("wb") as standard, errors.open("wb") as error:
        process = subprocess.Popen(
            words, stdout=standard, stderr=error, stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
        )  # fmt: skip
    try:
        yield ExampleWorker(process, out, errors)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("language", ["go", "node", "java"])
def test_a_worker_loses_nothing(language: str, tmp_path: Path) -> None:
    command(language, "", "")  # built, or skipped, before a node starts
    with cluster() as node:
        client = node.client()
        client.create_queue("orders", lease_ms=LEASE_MS)
        queue = client.queue("orders")
        with working(language, node, tmp_path) as worker:
            _over_a_restart(node, queue, worker)
            _longer_than_a_lease(queue, worker)
            _until_it_is_stopped(queue, worker)


def _over_a_restart(node: Cluster, queue: weft.Queue, worker: ExampleWorker) -> None:
    names = [f"short-{number}" for number in range(40)]
    queue.push_many([f"{name} 20".encode() for name in names])
    worker.until(lambda: len(worker.handled()) >= 5)
    assert node.stop() == 0
    node.start()
    worker.until(lambda: _is_empty(queue))
    assert set(worker.handled()) == set(names)


def _longer_than_a_lease(queue: weft.Queue, worker: ExampleWorker) -> None:
    queue.push(f"long {LONG_MS}".encode())
    worker.until(lambda: "long" in worker.handled() and _is_empty(queue))
    assert worker.handled().count("long") == 1, "its lease was not extended"


def _until_it_is_stopped(queue: weft.Queue, worker: ExampleWorker) -> None:
    """SIGTERM: work in hand is finished and acked, the rest is in the queue at once."""
    names = [f"last-{number}" for number in range(20)]
    queue.push_many([f"{name} 200".encode() for name in names])
    worker.until(lambda: any(name in worker.handled() for name in names))
    worker.process.send_signal(signal.SIGTERM)
    code = worker.process.wait(_WAIT_S)
    assert code in (0, -signal.SIGTERM, 128 + signal.SIGTERM), worker.said()
    assert "stopped after" in worker.said()
    stats = queue.stats()
    assert stats.leased == 0, "the worker did not give back what it had not begun"
    left = [message.body.decode().split()[0] for message in queue.pop_many(100)]
    done = [name for name in worker.handled() if name in names]
    assert sorted(done + left) == sorted(names)
    assert left, "all messages were handled: nothing was left to give back"


def _is_empty(queue: weft.Queue) -> bool:
    try:
        stats = queue.stats()
    except weft.WeftError:
        return False
    return stats.ready + stats.leased == 0

"""The life of a worker: renewal, stops, the grace, deaths, and code that cannot be imported."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from tests.tasks import shop
from weft import tasks
from weft.tasks.app_location import AppLocation
from weft.tasks.testing import worker_process
from weft.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.tasks.shop:app"
TIMEOUT_S = 60


@pytest.fixture(autouse=True)
def connected(node: Cluster) -> Iterator[None]:
    shop.app.connect(node.servers)
    yield
    shop.app.close()


def test_a_lease_is_renewed_while_a_task_holds_the_interpreter(node: Cluster) -> None:
    """The task holds the interpreter's lock for three leases, and runs once."""
    held = tasks.App("held", node.servers)
    held.client.create_queue("held.default", lease_ms=1000)
    task = held.task(shop.hold_interpreter.function)
    with worker_process("tests.tasks.held:app", node.servers, folder=ROOT):
        assert task.submit(3).result(TIMEOUT_S) == 1
    held.close()


def test_sigterm_finishes_the_running_task(node: Cluster) -> None:
    with worker_process(APP, node.servers, "-q", "default", folder=ROOT) as running:
        running.logged("takes")
        future = shop.nap.submit(1.0)
        time.sleep(0.5)
        assert running.stop() == 0
    assert future.done()


@pytest.mark.parametrize("queue", ["default", "async"])
def test_after_the_grace_the_task_is_given_back_uncounted(node: Cluster, queue: str) -> None:
    with worker_process(APP, node.servers, "--grace", "0.2", "-q", queue, folder=ROOT) as running:
        running.logged("takes")
        task = shop.nap if queue == "default" else shop.wait_for
        future = task.submit(30)
        running_since(task.queue)
        assert running.stop() == 0
    client = shop.app.client
    (message,) = client.queue(f"shop.{queue}").pop_many(10, wait_ms=10_000)
    assert (str(message.id), message.deliveries) == (future.id, 1)
    message.ack()


def test_worker_processes_end_with_their_supervisor(node: Cluster) -> None:
    with worker_process(APP, node.servers, "-c", "2", "-q", "default", folder=ROOT) as running:
        lines = [running.logged("takes")]
        pids = {int(line.split("worker process ")[1].split()[0]) for line in lines}
        running.kill()
        deadline = time.monotonic() + TIMEOUT_S
        while any(alive(pid) for pid in pids):
            assert time.monotonic() < deadline, "a worker process outlived its supervisor"
            time.sleep(0.05)


def test_an_idle_worker_ends(node: Cluster) -> None:
    with worker_process(APP, node.servers, "-c", "2", "--max-idle", "0.3", folder=ROOT) as running:
        assert running.wait() == 0


@pytest.mark.parametrize(
    ("app", "says"),
    [
        ("no.such.module:app", "the module no.such.module cannot be imported: ModuleNotFoundError"),
        ("no_such_module:app", f"No module named 'no_such_module' (in the folder {os.getcwd()})"),
        ("tests.tasks.broken:app", "broken.py, line 5)"),
        ("tests.tasks.shop:other", "tests.tasks.shop:other is missing"),
        ("tests.tasks.shop:double", "is a AppTask: it must be a weft.tasks.App"),
    ],
)
def test_code_that_cannot_be_imported_is_one_line(app: str, says: str) -> None:
    with pytest.raises(weft.UsageError) as caught:
        AppLocation.parse(app).load()
    assert says in caught.value.message
    assert "\n" not in caught.value.message


def test_a_worker_without_its_code_ends_with_one_line(node: Cluster) -> None:
    with worker_process("tests.tasks.broken:app", node.servers, folder=ROOT) as running:
        assert running.wait() == 1
        errors = [line for line in running.log if line.startswith("error:")]
    assert len(errors) == 1, running.log
    assert "the module tests.tasks.broken cannot be imported: ImportError: on purpose" in errors[0]
    with pytest.raises(weft.InvalidArgument, match="an app is named MODULE:APP"):
        AppLocation.parse("not a module")
    for text in (":app", "shop:app:other", "shop:my-app"):
        with pytest.raises(weft.InvalidArgument, match="an app is named MODULE:APP"):
            AppLocation.parse(text)


def running_since(name: str) -> None:
    """Waits until a task is leased."""
    queue = shop.app.client.queue(name)
    deadline = time.monotonic() + TIMEOUT_S
    while not queue.stats().leased:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.3)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] != "Z"


def test_a_worker_waits_for_a_node_that_is_away(node: Cluster) -> None:
    with worker_process(APP, node.servers, "-q", "default", folder=ROOT) as running:
        running.logged("takes")
        node.kill()
        time.sleep(0.5)
        node.start()
        assert shop.double.submit(8).result(TIMEOUT_S) == 16

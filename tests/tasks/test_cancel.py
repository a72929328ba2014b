"""Cancelled tasks: waiting, delayed, running, ended, and in every kind of loop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from tests.tasks import shop
from weft import tasks
from weft.tasks.testing import thread_worker, worker_process
from weft.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.tasks.shop:app"
TIMEOUT_S = 60


@pytest.fixture(autouse=True)
def connected(node: Cluster) -> Iterator[None]:
    shop.app.connect(node.servers)
    yield
    shop.app.close()


def leased(queue: str, count: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while shop.app.client.queue(queue).stats().leased < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.2)


def test_a_waiting_task_ends_without_a_worker(node: Cluster) -> None:
    shop.app.client.create_queue("shop.default")
    waiting = shop.double.submit(1)
    delayed = shop.double.with_options(delay=3600).submit(1)
    by_id = shop.app.future(delayed.id)
    assert waiting.cancel()
    assert by_id.cancel()
    for future in (waiting, delayed):
        with pytest.raises(weft.TaskCancelled):
            future.result(TIMEOUT_S)
        assert not future.cancel(), "it has ended"
    assert shop.app.client.queue("shop.default").stats().ready == 0


def test_a_cancel_with_a_lost_answer_is_completed_by_the_next(node: Cluster) -> None:
    future = shop.double.submit(1)
    assert shop.app.client.queue("shop.default").cancel(future.id)
    assert future.cancel()
    assert isinstance(future.exception(TIMEOUT_S), weft.TaskCancelled)


def test_a_running_task_is_interrupted_and_may_clean_up(node: Cluster) -> None:
    with worker_process(APP, node.servers, "-q", "default", folder=ROOT) as worker:
        worker.logged("takes")
        future = shop.linger.submit(600)
        leased("shop.default", 1)
        assert not future.cancel()
        with pytest.raises(weft.TaskCancelled):
            future.result(TIMEOUT_S)
        assert shop.app.client.kv.lookup("lingered") == b"cleaned up"
        ended = shop.double.submit(2)
        assert ended.result(TIMEOUT_S) == 4
        assert not ended.cancel()
        assert ended.result(TIMEOUT_S) == 4
        assert worker.stop() == 0


def test_a_task_that_does_not_react_is_killed(node: Cluster) -> None:
    with worker_process(APP, node.servers, "-q", "default", folder=ROOT) as worker:
        worker.logged("takes")
        future = shop.hold_interpreter.submit(600)
        leased("shop.default", 1)
        assert not future.cancel()
        with pytest.raises(weft.TaskCancelled):
            future.result(TIMEOUT_S)
        worker.logged("cancelled, and has not ended within 5 s")


def test_coroutines_and_threads(node: Cluster) -> None:
    with worker_process(APP, node.servers, "-q", "async", folder=ROOT) as worker:
        worker.logged("takes")
        future, other = shop.wait_for.submit(600), shop.wait_for.submit(1.0)
        leased("shop.async", 2)
        assert not future.cancel()
        assert isinstance(future.exception(TIMEOUT_S), weft.TaskCancelled)
        assert other.result(TIMEOUT_S) == 1
    app = tasks.App("cancelling")

    @app.task
    def spin(seconds: float) -> str:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.001)
        return "spun"

    with thread_worker(app, node.servers, concurrency=2):
        future, other = spin.submit(600), spin.submit(0.5)
        deadline = time.monotonic() + TIMEOUT_S
        while app.client.queue("cancelling.default").stats().leased < 1:
            assert time.monotonic() < deadline
        time.sleep(0.3)
        assert not future.cancel()
        assert isinstance(future.exception(TIMEOUT_S), weft.TaskCancelled)
        assert other.result(TIMEOUT_S) == "spun"


def test_inline_tasks_have_ended_when_they_are_cancelled(node: Cluster) -> None:
    with shop.app.inline():
        future = shop.double.submit(1)
        assert not future.cancel()
        assert future.result() == 2

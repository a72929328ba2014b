"""Threads, solo and event loops: the same results as processes, and what they cannot promise."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import weft
from tests.tasks import shop
from weft import tasks
from weft.client.key_group import KeyGroup
from weft.ids import MessageId
from weft.tasks.call import result_prefix
from weft.tasks.testing import thread_worker, worker_process
from weft.tasks.worker import TaskWorker
from weft.tasks.worker_options import WorkerOptions
from weft.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60


def made(name: str) -> tasks.App:
    app = tasks.App(name)

    @app.task
    def where(n: int) -> tuple[int, str]:
        return n, threading.current_thread().name

    @app.task
    def nap(seconds: float) -> str:
        time.sleep(seconds)
        return threading.current_thread().name

    @app.task(soft_time_limit=0.3, attempts=1)
    def spin(seconds: float) -> str:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass
        return "spun"

    return app


def test_threads_run_tasks_side_by_side(node: Cluster) -> None:
    app = made("threads")
    with thread_worker(app, node.servers, concurrency=3):
        names = tasks.gather(app.tasks["nap"].map([0.5] * 3), timeout=TIMEOUT_S)
        assert len(set(names)) == 3
        results = tasks.gather(app.tasks["where"].map(range(500)), timeout=TIMEOUT_S)
        assert [n for n, _ in results] == list(range(500))


def test_a_soft_limit_interrupts_a_thread_and_only_its_task(node: Cluster) -> None:
    app = made("limits")
    with thread_worker(app, node.servers, concurrency=2):
        spin = app.tasks["spin"]
        futures = [spin.submit(20.0), spin.submit(0.01)]
        with pytest.raises(weft.TaskTimedOut):
            futures[0].result(TIMEOUT_S)
        assert futures[1].result(TIMEOUT_S) == "spun"
        assert tasks.gather(spin.map([0.0] * 20), timeout=TIMEOUT_S) == ["spun"] * 20


def test_effects_that_are_no_transaction_fail_their_task(node: Cluster) -> None:
    """The task writes the row of its own result, which the transaction writes, too."""
    app = made("clash")

    @app.task
    def clash(n: int) -> int:
        number = MessageId.parse(tasks.current().id)
        group = KeyGroup(app.session, result_prefix(app.name, number), number.partition)
        if n == 3:
            tasks.current().kv.insert(group.key("0"), b"mine")
        return n

    with thread_worker(app, node.servers):
        error = clash.submit(3).exception(TIMEOUT_S)
        assert error is not None
        assert "twice: write it once" in error.text
        assert clash.submit(4).result(TIMEOUT_S) == 4


def test_the_fixture_runs_a_node_and_a_worker(
    task_worker: Callable[[tasks.App], TaskWorker],
) -> None:
    app = made("fixture")
    task_worker(app)
    assert app.tasks["where"].submit(3).result(TIMEOUT_S)[0] == 3


def test_short_tasks_do_not_wait_behind_a_long_one(node: Cluster) -> None:
    """All tasks are in one batch; the tasks behind the long one are given back to the others."""
    app = made("mixed")
    nap = app.tasks["nap"]
    with thread_worker(app, node.servers, concurrency=2):
        tasks.gather(nap.map([0.0] * 200), timeout=TIMEOUT_S)  # the pops have grown
        futures = nap.map([0.0, 4.0, *([0.0] * 40)])
        began = time.monotonic()
        tasks.gather([futures[0], *futures[2:]], timeout=TIMEOUT_S)
        assert not futures[1].done()
        assert time.monotonic() - began < 4
        futures[1].result(TIMEOUT_S)


def test_a_pool_that_cannot_keep_a_promise_is_refused(node: Cluster) -> None:
    with pytest.raises(weft.InvalidArgument, match="never_end has a time_limit, which takes"):
        TaskWorker(shop.app, WorkerOptions(1, "threads"))
    for options, says in (
        ({"pool": "fibers"}, "pool must be one of"),
        ({"pool": "solo", "concurrency": 2}, "one task at a time"),
        ({"concurrency": 0}, "concurrency must be"),
        ({"grace_s": -1}, "grace_s must be"),
        ({"coroutines": 0}, "coroutines must be"),
    ):
        with pytest.raises(weft.InvalidArgument, match=says):
            WorkerOptions(**options)
    with pytest.raises(weft.UsageError, match="has no task"):
        TaskWorker(tasks.App("empty"), WorkerOptions(1, "solo"))


def test_the_solo_pool_runs_in_its_own_process(node: Cluster) -> None:
    shop.app.connect(node.servers)
    arguments = ("--pool", "solo", "-q", "solo")
    with worker_process("tests.tasks.solo:app", node.servers, *arguments, folder=ROOT) as running:
        from tests.tasks import solo

        solo.app.connect(node.servers)
        assert solo.add.submit(1, 2).result(TIMEOUT_S) == 3
        assert running.stop() == 0
        solo.app.close()
    shop.app.close()


@pytest.fixture
def async_worker(node: Cluster) -> Iterator[None]:
    shop.app.connect(node.servers)
    with worker_process("tests.tasks.shop:app", node.servers, "-q", "async", folder=ROOT) as made:
        yield
        assert made.stop() == 0
    shop.app.close()


def test_coroutines_run_at_once(async_worker: None) -> None:
    began = time.monotonic()
    futures = shop.wait_for.map([2.0] * 50)
    assert tasks.gather(futures, timeout=TIMEOUT_S) == [1] * 50
    assert time.monotonic() - began < 50, "they ran one after the other"
    with pytest.raises(weft.TaskTimedOut, match="time limit"):
        shop.wait_long.submit().result(TIMEOUT_S)


async def test_the_asyncio_side(node: Cluster, async_worker: None) -> None:
    aio = tasks.aio
    future = await shop.wait_for.aio.submit(0.0)
    assert await future.result(TIMEOUT_S) == 1
    assert await future.done()
    assert await future.exception() is None
    again = await shop.app.aio_future(future.id)
    assert await again.result(1) == 1
    assert await (await shop.wait_for.aio.future(future.id)).result(1) == 1
    futures = await shop.wait_for.aio.map([0.01] * 20)
    assert await aio.gather(futures, timeout=TIMEOUT_S) == [1] * 20
    seen = [each.id async for each in aio.as_completed(futures, timeout=TIMEOUT_S)]
    assert sorted(seen) == sorted(each.id for each in futures)
    late = await shop.wait_for.with_options(delay=3600).aio.submit(0.0)
    with pytest.raises(weft.DeadlineExceeded):
        await late.result(0.1)
    with pytest.raises(weft.DeadlineExceeded):
        async for _ in aio.as_completed([late], timeout=0.1):
            pass
    with pytest.raises(weft.InvalidArgument, match="argument 'seconds'"):
        await shop.wait_for.aio.submit("x")
    with pytest.raises(weft.InvalidArgument, match="must be a Future"):
        tasks.gather([future])  # type: ignore[list-item]
    client = await shop.app.aio_client()
    assert await client.queue("shop.async").cancel(late.id)
    await asyncio.sleep(0)
    await shop.app.aio_close()

"""Tasks and events that must cost their own task at most, never the worker or the next tasks."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import weft
from tests.tasks import hostile
from weft import limits, tasks
from weft.client.worker.signals import stopping
from weft.ids import MessageId
from weft.tasks import async_lease_loop
from weft.tasks.cancellation import Marks
from weft.tasks.child_channel import CancelFrame, ChildChannel, DropFrame, StopFrame
from weft.tasks.execution import TaskRun, failed
from weft.tasks.graph_inputs import GraphInputs
from weft.tasks.outcome import blocks_of, size_of, task_error
from weft.tasks.run_column import RunColumn
from weft.tasks.settlement import TaskSettlement
from weft.tasks.signature import encode
from weft.tasks.task_commit import BYTES_MAX, portions
from weft.tasks.task_context import TaskEffects
from weft.tasks.testing import WorkerProcess, thread_worker, worker_process
from weft.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def worker(node: Cluster) -> Iterator[WorkerProcess]:
    """One process: what it survives, it survives for the next test."""
    hostile.app.connect(node.servers)
    hostile.submitting = True
    with worker_process("tests.tasks.hostile:app", node.servers, folder=ROOT) as made:
        made.logged("takes")
        yield made
        assert made.stop() == 0
    hostile.app.close()


def deaths_in(worker: WorkerProcess) -> int:
    return sum("ended with" in line for line in worker.log)


# --- a worker process ---


@pytest.mark.parametrize(
    ("how", "says"),
    [("surrogate", "report-\\udcff.txt"), ("nameless", "its __str__ raised RuntimeError")],
)
def test_an_exception_without_an_encodable_text_fails_its_task_alone(
    worker: WorkerProcess, how: str, says: str
) -> None:
    """Such a text ended the worker, and each worker that got the task next."""
    deaths = deaths_in(worker)
    with pytest.raises(weft.TaskFailed) as caught:
        hostile.fail.submit(how).result(TIMEOUT_S)
    assert type(caught.value) is weft.TaskFailed
    assert says in caught.value.text
    assert hostile.plain.submit(1).result(TIMEOUT_S) == 2
    assert deaths_in(worker) == deaths


@pytest.mark.parametrize("count", [1, 8])
def test_classes_that_cannot_be_decoded_or_encoded_fail_their_tasks(
    worker: WorkerProcess, count: int
) -> None:
    deaths = deaths_in(worker)
    taken = hostile.take.map([hostile.Fragile(n) for n in range(count)])
    for end in tasks.gather(taken, timeout=TIMEOUT_S, return_exceptions=True):
        assert end.error == "KeyError"
    with pytest.raises(weft.TaskFailed, match="the result of task give cannot be encoded"):
        hostile.give.submit().result(TIMEOUT_S)
    assert deaths_in(worker) == deaths


def test_a_message_that_is_nested_too_deeply_is_no_task(worker: WorkerProcess) -> None:
    deaths = deaths_in(worker)
    queue = hostile.app.client.queue("hostile.default")
    hostile.plain.submit(1).result(TIMEOUT_S)
    queue.push(b"\x93\xa5plain" + b"\x91" * 100_000 + b"\x80\x80")
    deadline = time.monotonic() + TIMEOUT_S
    while (stats := queue.stats()).ready + stats.leased + stats.delayed:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert deaths_in(worker) == deaths
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(weft.InvalidArgument, match="cannot be encoded"):
        hostile.anything.submit(nested)
    while nested:  # the interpreter would free it recursively
        nested = nested.pop()


@pytest.mark.parametrize(("count", "size"), [(48, 600_000), (1_500, 16_000)])
def test_results_that_are_too_many_for_a_transaction_are_several(
    worker: WorkerProcess, count: int, size: int
) -> None:
    """The tasks came back again and again, and ended as lost."""
    results = tasks.gather(hostile.much.map(range(count), size=size), timeout=TIMEOUT_S)
    assert {len(each) for each in results} == {size}


def test_failures_are_as_many_blocks_and_transactions_as_they_need() -> None:
    error = task_error(ValueError("x" * 4_000), trace="y" * 16_000)
    assert size_of(error) >= 20_000
    blocks = blocks_of([(index, error) for index in range(1_000)])
    assert max(len(data) for _, data in blocks) <= limits.TABLE_VALUE_BYTES_MAX
    runs = []
    for index in range(1_000):
        run = TaskRun(SimpleNamespace(id=index))
        run.outcome = error
        runs.append(run)
    parts = list(portions(runs, lambda run: ()))
    assert [run for part in parts for run in part] == runs
    sizes = [sum(size_of(error) for _ in part) for part in parts]
    assert max(sizes) <= BYTES_MAX <= limits.COMMIT_BYTES_MAX / 2


def test_a_backoff_that_fails_is_replaced_by_the_default(worker: WorkerProcess) -> None:
    assert hostile.retry.submit().result(TIMEOUT_S) == 2


def test_a_process_forked_by_a_task_ends_by_a_signal(worker: WorkerProcess) -> None:
    """It had the signal handlers of the worker, for which SIGTERM is a request to drain."""
    assert hostile.end_a_fork.submit().result(TIMEOUT_S) == -signal.SIGTERM


def test_a_fork_that_outlives_its_worker_process_does_not_stop_the_supervisor(
    worker: WorkerProcess, tmp_path: Path
) -> None:
    """The fork holds the end of the supervisor's channel."""
    file = tmp_path / "pid"
    try:
        assert hostile.leave_a_fork.submit(str(file)).result(TIMEOUT_S) == 2
    finally:
        os.kill(int(file.read_text()), signal.SIGKILL)


def test_signals_act_as_usual_in_a_fork_of_any_worker() -> None:
    program = (
        "import os, signal\n"
        "from weft.client.worker.signals import stopping\n"
        "with stopping(lambda now: print('stopped', flush=True)):\n"
        "    forked = os.fork()\n"
        "    if not forked:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        signal.pause()\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]))\n"
    )
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert found.stdout.split() == [str(-signal.SIGTERM)]


def test_a_signal_during_the_handler_of_another_one_waits_for_its_end() -> None:
    """The handlers take locks: two signals at once could stop a worker from stopping."""
    lock, told = threading.Lock(), list[bool]()

    def stop(now: bool) -> None:
        assert lock.acquire(timeout=5)
        if not told:
            signal.raise_signal(signal.SIGTERM)
        told.append(now)
        lock.release()

    with stopping(stop):
        signal.raise_signal(signal.SIGINT)
    assert told == [False, True]


def test_a_supervisor_never_waits_for_a_worker_process() -> None:
    mine, theirs = socket.socketpair()
    supervisor, child = ChildChannel(mine), ChildChannel(theirs)
    numbers = [f"{number:032x}" for number in range(50_000)]
    supervisor.post(CancelFrame(numbers))  # more than the socket takes
    supervisor.post(StopFrame())
    assert supervisor.drain() == []
    frames: list[Any] = []

    def read() -> None:
        while StopFrame() not in frames:
            frames.extend(child.receive() or ())

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    while reader.is_alive():
        supervisor.flush()
        reader.join(0.01)
    assert frames == [CancelFrame(numbers), StopFrame()]
    child.send(DropFrame([1]))
    assert (supervisor.drain(), supervisor.ended) == ([DropFrame([1])], False)
    child.close()
    assert (supervisor.drain(), supervisor.ended) == ([], True)
    supervisor.post(StopFrame())  # the process has ended
    supervisor.close()


# --- parts ---


def test_a_stored_error_can_be_encoded() -> None:
    error = task_error(OSError("\ud800" * 9), trace="line \udcff")
    assert b"\\ud800" in encode(error)
    assert error.trace == "line \\udcff"


def test_a_failed_attempt_has_no_effects() -> None:
    """An interrupt may come after the function's return, when the effects are taken."""
    run = TaskRun(SimpleNamespace(deliveries=1))
    run.task = hostile.fail
    run.effects = TaskEffects()
    failed(run, weft.TaskTimedOut("late"))
    assert run.effects is None
    assert run.retry_ms < 0


def test_marks_of_other_tasks_do_not_break_a_column() -> None:
    lease: Any = SimpleNamespace(lent=SimpleNamespace(partition=3, producer=7, batch=9))
    column = RunColumn(hostile.plain, lease, 100, [(n,) for n in range(50)])
    marks = Marks()
    assert not column.has_cancelled(marks)
    marks.add([MessageId.of(3, 7, 9, index) for index in (99, 150)])
    marks.add([MessageId.of(3, 7, 8, 120)])
    assert not column.has_cancelled(marks)
    assert column.marks_seen == marks.added == 3
    marks.add([MessageId.of(3, 7, 9, 149)])
    assert column.has_cancelled(marks)


# --- errors of the loops ---


def test_an_error_while_tasks_are_settled_delivers_them_again(
    node: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else their leases would be renewed as long as the worker lives."""
    settle, failures = TaskSettlement.settle, ["once"]

    async def settle_or_fail(self: TaskSettlement, runs: Sequence[Any], parts: Any = ()) -> None:
        if failures:
            raise RuntimeError(failures.pop())
        await settle(self, runs, parts)

    monkeypatch.setattr(TaskSettlement, "settle", settle_or_fail)
    for is_async in (False, True):
        app = tasks.App(f"settled-{is_async}")
        task = app.task(_echo if is_async else _double)
        with thread_worker(app, node.servers):
            app.client.create_queue(task.queue, lease_ms=1_000)
            failures[:] = ["once"]
            assert task.submit(4).result(TIMEOUT_S) == 8
            assert not failures


def _double(n: int) -> int:
    return 2 * n


async def _echo(n: int) -> int:
    await asyncio.sleep(0)
    return 2 * n


def test_a_task_that_cannot_begin_is_delivered_again_by_an_event_loop(
    node: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, failures = GraphInputs.ready, ["once"]

    async def ready_or_fail(self: GraphInputs, run: TaskRun) -> bool:
        if failures:
            raise RuntimeError(failures.pop())
        return await ready(self, run)

    monkeypatch.setattr(GraphInputs, "ready", ready_or_fail)
    app = tasks.App("begun")
    task = app.task(_echo)
    with thread_worker(app, node.servers):
        assert task.submit(4).result(TIMEOUT_S) == 8
    assert not failures


def test_a_task_cancelled_while_it_is_claimed_ends(
    node: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cancel reaches the coroutine before its function has begun."""
    claiming = threading.Event()

    async def claim(*arguments: object) -> bool:
        claiming.set()
        await asyncio.sleep(600)
        return True

    monkeypatch.setattr(async_lease_loop, "claim", claim)
    app = tasks.App("claimed")
    task = app.task(once="start")(_echo)
    with thread_worker(app, node.servers):
        future = task.submit(4)
        assert claiming.wait(TIMEOUT_S)
        assert not future.cancel()
        with pytest.raises(weft.TaskCancelled):
            future.result(TIMEOUT_S)


def test_a_limit_does_not_count_the_wait_for_the_thread(node: Cluster) -> None:
    """A worker with coroutines has one thread for its synchronous tasks."""
    app = tasks.App("one-thread")
    app.task(_echo)

    @app.task(attempts=1, soft_time_limit=1.5)
    def nap(n: int) -> int:
        time.sleep(0.4)
        return n

    with thread_worker(app, node.servers):
        assert tasks.gather(nap.map(range(6)), timeout=TIMEOUT_S) == list(range(6))


# --- the grace of pools without processes ---


@pytest.mark.parametrize(
    ("arguments", "signals"),
    [
        (("--pool", "solo", "--grace", "0.2"), 1),
        (("--pool", "threads", "-c", "2", "--grace", "0.2"), 1),
        (("--pool", "solo", "--grace", "500"), 2),
        (("--pool", "threads", "-c", "2", "--grace", "500"), 2),
        (("--pool", "processes", "--grace", "500"), 2),
    ],
)
def test_after_the_grace_or_a_second_signal_the_task_is_given_back(
    node: Cluster, arguments: tuple[str, ...], signals: int
) -> None:
    app = tasks.App("hostile-solo", node.servers)
    task = app.task(hostile.sleep.function)
    name = "tests.tasks.hostile:solo"
    with worker_process(name, node.servers, *arguments, folder=ROOT) as running:
        future = task.submit()
        queue = app.client.queue(task.queue)
        deadline = time.monotonic() + TIMEOUT_S
        while not queue.stats().leased:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        if signals == 2:
            os.kill(running.pid, signal.SIGTERM)
            # A second one at once may go to another thread than the first, which sleeps on.
            running.logged("stopping: running tasks have 500 s")
        assert running.stop() == 0
    message = queue.pop(wait_ms=10_000)
    assert message is not None
    assert (str(message.id), message.deliveries) == (future.id, 1)
    message.ack()
    app.close()

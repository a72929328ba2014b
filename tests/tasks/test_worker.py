"""A worker of processes on a real node: results, retries, limits, deaths, stops."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from tests.tasks import shop
from weft import tasks
from weft.tasks.testing import WorkerProcess, worker_process
from weft.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.tasks.shop:app"
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def worker(node: Cluster) -> Iterator[WorkerProcess]:
    shop.app.connect(node.servers)
    client = shop.app.client
    client.create_queue("shop.effects")
    with worker_process(APP, node.servers, "-c", "2", "-q", "default", folder=ROOT) as running:
        running.logged("takes shop.default")
        yield running
        assert running.stop() == 0
    assert client.queue("shop.default").stats().leased == 0
    shop.app.close()


def counts(client: weft.Client, queue: str) -> tuple[int, int]:
    stats = client.queue(queue).stats()
    return stats.ready, stats.leased


def test_submit_and_map(worker: WorkerProcess) -> None:
    future = shop.double.submit(21)
    assert future.result(TIMEOUT_S) == 42
    assert future.done()
    assert shop.app.future(future.id).result(1) == 42
    futures = shop.double.map(range(10_000))
    assert tasks.gather(futures, timeout=TIMEOUT_S) == [2 * n for n in range(10_000)]
    assert len({each.id for each in futures}) == 10_000
    assert shop.double.map([]) == []


def test_a_bundle_gathers_submissions_and_is_durable_at_its_end(worker: WorkerProcess) -> None:
    with shop.app.bundle():
        early = shop.double.submit(1)
        assert "in a bundle" in repr(early)
        assert early.result(TIMEOUT_S) == 2, "a wait for a result pushes the bundle"
        futures = [shop.double.submit(n) for n in range(2_500)]
        other = shop.with_effects.with_options(priority=3).submit(7)
        with pytest.raises(weft.UsageError, match="is open in this thread"), shop.app.bundle():
            pass
    assert tasks.gather([early, *futures], timeout=TIMEOUT_S) == [2, *(2 * n for n in range(2_500))]
    assert len({each.id for each in futures}) == 2_500
    assert len({each.id[:28] for each in futures}) < 100, "few pushes"
    assert other.result(TIMEOUT_S) == other.id
    try:
        with shop.app.bundle():
            last = shop.double.submit(9)
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    assert last.result(TIMEOUT_S) == 18, "a submission stays one"


def test_results_come_typed_from_the_task_and_plain_from_the_app(worker: WorkerProcess) -> None:
    import datetime

    order = shop.Order(1, datetime.date(2026, 12, 31))
    future = shop.next_day.submit(order)
    assert future.result(TIMEOUT_S) == shop.Order(1, datetime.date(2027, 1, 1))
    assert shop.next_day.future(future.id).result(1) == future.result()
    assert shop.app.future(future.id).result(1) == {"number": 1, "day": "2027-01-01"}


def test_as_completed_yields_each_future_when_its_task_ends(worker: WorkerProcess) -> None:
    slow, fast = shop.nap.submit(1.0), shop.double.map(range(50))
    order = [each.id for each in tasks.as_completed([slow, *fast], timeout=TIMEOUT_S)]
    assert sorted(order) == sorted(each.id for each in [slow, *fast])
    assert order[-1] == slow.id
    assert list(tasks.as_completed([])) == []


def test_long_tasks_do_not_wait_behind_each_other(worker: WorkerProcess) -> None:
    began = time.monotonic()
    pids = tasks.gather(shop.nap.map([0.5] * 4), timeout=TIMEOUT_S)
    assert len(set(pids)) == 2
    assert time.monotonic() - began < 30


def test_a_timeout_names_the_task(worker: WorkerProcess) -> None:
    future = shop.double.with_options(delay=3600).submit(1)
    with pytest.raises(weft.DeadlineExceeded, match=future.id):
        future.result(0.1)
    with pytest.raises(weft.DeadlineExceeded, match="1 tasks or more"):
        tasks.gather([future], timeout=0.1)
    with pytest.raises(weft.DeadlineExceeded, match="1 tasks have no result"):
        list(tasks.as_completed([future], timeout=0.1))
    assert not future.done()
    assert shop.app.client.queue("shop.default").cancel(future.id)


def test_failed_attempts_are_repeated_with_pauses(worker: WorkerProcess) -> None:
    assert shop.succeed_at.submit(3).result(TIMEOUT_S) == 3
    with pytest.raises(weft.TaskFailed, match="ValueError: attempt 3 fails") as caught:
        shop.succeed_at.submit(9).result(TIMEOUT_S)
    assert 'raise ValueError(f"attempt' in caught.value.trace
    some = tasks.gather(
        [shop.double.submit(1), shop.succeed_at.submit(9)],
        timeout=TIMEOUT_S,
        return_exceptions=True,
    )
    assert some[0] == 2
    assert isinstance(some[1], weft.TaskFailed)


def test_effects_happen_once_with_the_result(worker: WorkerProcess) -> None:
    client = shop.app.client
    client.queue("shop.effects").purge()
    futures = shop.with_effects.map(range(40))
    ids = tasks.gather(futures, timeout=TIMEOUT_S)
    assert ids == [each.id for each in futures]
    popped = client.queue("shop.effects").pop_many(100)
    assert sorted(int(message.body) for message in popped) == list(range(40))
    assert {message.headers["n"] for message in popped} == {str(n) for n in range(40)}
    client.queue("shop.effects").ack_many(popped)
    keys = [f"effect/{n}" for n in range(40)]
    assert len(client.kv.lookup_many(keys)) == 40
    with pytest.raises(weft.TaskFailed):
        shop.fail_with_effects.submit(1).result(TIMEOUT_S)
    assert client.queue("shop.effects").pop() is None


@pytest.mark.parametrize("name", ["push_to", "plain_push_to"])
def test_refused_effects_fail_their_task_alone(worker: WorkerProcess, name: str) -> None:
    futures = shop.app.tasks[name].map(["shop.effects", "no.such.queue", "shop.effects"])
    results = tasks.gather(futures, timeout=TIMEOUT_S, return_exceptions=True)
    assert results[0] is None
    assert results[2] is None
    assert isinstance(results[1], weft.TaskFailed)
    assert results[1].error == "QueueNotFound"
    pushed = shop.app.client.queue("shop.effects").purge()
    # Without a transaction the effects of the other tasks may happen again.
    assert pushed == 2 if name == "push_to" else pushed >= 2


def test_large_results_come_in_chunks(worker: WorkerProcess) -> None:
    assert shop.big.submit(5_000_000).result(TIMEOUT_S) == b"x" * 5_000_000
    with pytest.raises(weft.TaskFailed, match="at most 67108864 are allowed"):
        shop.big.submit(64 * 1024 * 1024).result(TIMEOUT_S)


def test_a_result_that_cannot_be_encoded_fails(worker: WorkerProcess) -> None:
    with pytest.raises(weft.TaskFailed, match="result of task unencodable cannot be encoded"):
        shop.unencodable.submit().result(TIMEOUT_S)


def test_a_key_names_one_submission(worker: WorkerProcess) -> None:
    keyed = shop.double.with_options(key="order-7")
    first, second = keyed.submit(7), keyed.submit(8)
    assert first.id == second.id
    assert second.result(TIMEOUT_S) == 14
    with pytest.raises(weft.InvalidArgument, match="names one submission"):
        keyed.map([1, 2])


def test_reply_to_pushes_a_copy_of_the_result(worker: WorkerProcess) -> None:
    import msgspec

    client = shop.app.client
    client.create_queue("shop.answers")
    reply = shop.double.with_options(reply_to="shop.answers").submit(4)
    assert reply.result(TIMEOUT_S) == 8
    message = client.queue("shop.answers").pop(wait_ms=10_000)
    assert message is not None
    assert message.headers == {"task": reply.id, "name": "double", "status": "ok"}
    assert msgspec.msgpack.decode(message.body) == 8
    message.ack()


def test_progress_is_seen_while_the_task_runs(worker: WorkerProcess) -> None:
    future = shop.report.submit(1.0)
    deadline = time.monotonic() + TIMEOUT_S
    while (seen := future.progress()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert seen == (0.0, "step 0"), "a report in a second"
    assert future.result(TIMEOUT_S) == 1000
    with shop.app.inline():
        inline = shop.report.submit(0.0)
        assert (inline.result(), inline.progress()) == (1000, None)


def test_soft_limits_raise_inside_the_task(worker: WorkerProcess) -> None:
    assert shop.clean_up.submit().result(TIMEOUT_S) == "cleaned"
    with pytest.raises(weft.TaskTimedOut, match=r"soft time limit of 0\.2 s"):
        shop.time_out.submit().result(TIMEOUT_S)


def test_a_hard_limit_kills_the_process_and_reports_the_task(worker: WorkerProcess) -> None:
    with pytest.raises(weft.WorkerLost, match=r"past its time limit of 0\.5 s"):
        shop.never_end.submit().result(TIMEOUT_S)
    assert shop.double.submit(1).result(TIMEOUT_S) == 2


def test_a_task_that_kills_its_worker_ends_after_its_attempts(worker: WorkerProcess) -> None:
    before = shop.double.map(range(20))
    killer, survivor = shop.kill_worker.submit(), shop.kill_worker_once.submit()
    assert tasks.gather(before, timeout=TIMEOUT_S) == [2 * n for n in range(20)]
    with pytest.raises(weft.WorkerLost, match="ended while it ran the task, 2 times"):
        killer.result(TIMEOUT_S)
    assert survivor.result(TIMEOUT_S) == 2


def test_start_once_is_claimed_and_a_loss_is_reported(worker: WorkerProcess) -> None:
    client = shop.app.client
    assert shop.start_once.submit("a").result(TIMEOUT_S) == "a"
    lost = shop.start_and_die.submit("b")
    with pytest.raises(weft.WorkerLost):
        lost.result(TIMEOUT_S)
    assert client.kv.lookup("started/a") == b"x"
    assert client.kv.lookup("started/b") == b"x"


def test_a_plain_task_has_results_and_effects_too(worker: WorkerProcess) -> None:
    assert tasks.gather(shop.plain.map(range(5)), timeout=TIMEOUT_S) == [1, 2, 3, 4, 5]
    assert shop.app.client.queue("shop.effects").purge() == 5


def test_an_unknown_task_is_kept_and_runs_on_a_worker_that_knows_it(
    node: Cluster, worker: WorkerProcess
) -> None:
    newer = tasks.App("shop", node.servers)

    @newer.task
    def future_work(n: int) -> int:
        return n

    future = future_work.submit(3)
    worker.logged("'future_work', which this worker does not know")
    assert not future.done()
    assert shop.app.client.queue("shop.default").cancel(future.id)
    newer.close()

"""Gangs on a real node: assembled without deadlock, released, cancelled, and lost as a whole."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.tasks import crew
from weft import tasks
from weft.tasks.testing import WorkerProcess, worker_process
from weft.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.tasks.crew:app"
TIMEOUT_S = 90
SLOTS = 6


@pytest.fixture(scope="module")
def worker(node: Cluster) -> Iterator[WorkerProcess]:
    crew.app.connect(node.servers)
    with worker_process(APP, node.servers, "-c", str(SLOTS), folder=ROOT) as running:
        running.logged("takes crew.gangs")
        yield running
        assert running.stop() == 0
    for queue in ("crew.gangs", "crew.gangs.jobs", "crew.gangs.runs"):
        stats = crew.app.client.queue(queue).stats()
        assert (stats.ready, stats.leased) == (0, 0), queue
    crew.app.close()


def failure(future: tasks.Future) -> weft.TaskFailed:
    error = future.exception(TIMEOUT_S)
    assert error is not None
    return error


def until(holds: Any) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_three_gangs_of_four_on_six_slots_all_finish(worker: WorkerProcess) -> None:
    """Four slots run one gang; two gangs never hold two slots each and wait for ever."""
    futures = [crew.meet.submit(0.3) for _ in range(3)]
    spans: list[tuple[float, float]] = []
    for future in futures:
        rows = future.result(TIMEOUT_S)
        assert [(rank, size) for rank, size, _, _ in rows] == [(n, 4) for n in range(4)]
        starts, ends = [row[2] for row in rows], [row[3] for row in rows]
        assert max(starts) < min(ends), "the members run at once"
        spans += zip(starts, ends, strict=True)
    # Six slots run six members at most: no gang is on its way while it counts as running.
    assert all(sum(a <= start < b for a, b in spans) <= SLOTS for start, _ in spans)


def test_members_reach_each_other_by_their_addresses(worker: WorkerProcess) -> None:
    assert crew.total.submit(5).result(TIMEOUT_S) == [5 + 10 + 15, 0, 0]
    assert crew.alone.submit(1).result(TIMEOUT_S) == 2, "tasks of the same queue run, too"


def test_an_mpi_program_runs_on_the_members(worker: WorkerProcess) -> None:
    (code, output), (other, nothing) = crew.allreduce.submit(5).result(TIMEOUT_S)
    assert (code, other, nothing) == (0, 0, "")
    assert sorted(output.splitlines()) == ["rank 0 of 2: 15", "rank 1 of 2: 15"]


def test_a_gang_larger_than_all_slots_fails_at_once(worker: WorkerProcess) -> None:
    began = time.monotonic()
    error = failure(crew.meet.with_options(size=SLOTS + 1).submit(0.0))
    assert error.error == "GangTooLarge"
    assert "needs 7 workers at once, and 6 slots serve crew.gangs" in error.text
    assert time.monotonic() - began < 30


def test_a_gang_that_waits_runs_when_there_are_more_slots(
    node: Cluster, worker: WorkerProcess
) -> None:
    waiting = crew.meet.with_options(size=SLOTS + 1, wait=True).submit(0.0)
    assert crew.meet.with_options(size=2).submit(0.0).result(TIMEOUT_S), "it blocks no other"
    assert not waiting.done()
    with worker_process(APP, node.servers, "-c", "1", folder=ROOT) as more:
        assert len(waiting.result(TIMEOUT_S)) == SLOTS + 1
        assert more.stop() == 0


def test_the_time_out_releases_all_members(worker: WorkerProcess) -> None:
    long = crew.wait_long.with_options(size=3).submit(600)
    until(lambda: leased() == 3)
    short = crew.meet.with_options(size=5, assemble_timeout=0.5)
    error = failure(short.submit(0.0))
    assert error.error == "GangTimeout"
    assert "3 of 5 workers were free" in error.text
    assert crew.meet.with_options(size=3).submit(0.0).result(TIMEOUT_S), "three slots are free"
    assert long.cancel()
    assert isinstance(failure(long), weft.TaskCancelled)
    until(lambda: leased() == 0)
    assert crew.app.client.kv.lookup("crew/never") is None, "a cancelled member has no effects"


def test_a_waiting_gang_is_cancelled(worker: WorkerProcess) -> None:
    long = crew.wait_long.with_options(size=4).submit(600)
    until(lambda: leased() == 4)
    blocked, behind = crew.meet.submit(0.0), crew.meet.submit(0.0)
    until(lambda: leased() == SLOTS)  # two members of the first one wait for two others
    behind.cancel()
    blocked.cancel()
    assert isinstance(failure(behind), weft.TaskCancelled)
    assert isinstance(failure(blocked), weft.TaskCancelled)
    long.cancel()
    until(lambda: leased() == 0)


def test_a_killed_member_ends_the_gang_and_another_attempt_succeeds(
    worker: WorkerProcess,
) -> None:
    assert crew.lose_one.submit("first").result(TIMEOUT_S) == [0, 1]
    worker.logged("is tried again: rank 1 of 2")


def test_after_the_last_attempt_the_reason_names_the_member(worker: WorkerProcess) -> None:
    error = failure(crew.always_lose_one.submit())
    assert isinstance(error, weft.WorkerLost)
    assert "rank 1 of 2 (process " in error.text
    assert "SIGKILL" in error.text
    until(lambda: leased() == 0)


def test_a_member_that_raises_ends_the_others(worker: WorkerProcess) -> None:
    error = failure(crew.fail_at.submit(1))
    assert error.error == "ValueError"
    assert error.text.endswith("ValueError: rank 1 has no data")
    assert "rank 1 of 2" in error.text
    until(lambda: leased() == 0)
    again = crew.app.retry(crew_id(error))
    assert failure(again).error == "ValueError"


def crew_id(error: weft.TaskFailed) -> str:
    """The id of the failed task in the text of its error."""
    return str(error).split()[1]


def leased() -> int:
    return crew.app.client.queue("crew.gangs").stats().leased


def test_another_worker_goes_on_when_the_assembling_one_dies(node: Cluster) -> None:
    """Both workers have coordinators; the one with the job's lease is killed."""
    crew.app.connect(node.servers)
    app = tasks.App("crew", node.servers)
    app.client.create_queue("crew.gangs.jobs", ordered=True, lease_ms=1000, update=True)
    with worker_process(APP, node.servers, "-c", "2", folder=ROOT) as first:
        first.logged("takes crew.gangs")
        future = crew.meet.with_options(size=4, wait=True, assemble_timeout=300).submit(0.0)
        time.sleep(0.5)
        with worker_process(APP, node.servers, "-c", "4", folder=ROOT) as second:
            second.logged("takes crew.gangs")
            first.kill_all()
            assert len(future.result(TIMEOUT_S)) == 4
            assert second.stop() == 0
    app.close()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"size": 0}, "size must be"),
        ({"size": 2, "attempts": 0}, "attempts must be"),
        ({"size": 2, "assemble_timeout": 0}, "assemble_timeout must be"),
        ({"size": 2, "queue": "a b"}, "queue"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(weft.InvalidArgument, match=says):
        tasks.App("unused").gang(**options)(sample)


def sample(n: int) -> int:
    return n


def test_gangs_that_cannot_be_are_refused() -> None:
    app = tasks.App("unused", "127.0.0.1:1")
    gang = app.gang(size=2)(sample)
    with pytest.raises(weft.InvalidArgument, match="has a task 'sample' already"):
        app.gang(size=2)(sample)
    with pytest.raises(weft.InvalidArgument, match="argument 'n'"):
        gang.submit("x")
    with pytest.raises(weft.InvalidArgument, match="size must be"):
        gang.with_options(size=-1)
    assert gang(3) == 3

    async def waiting() -> None: ...

    with pytest.raises(weft.InvalidArgument, match="must not be `async def`"):
        app.gang(size=2)(waiting)
    with app.inline(), pytest.raises(weft.UsageError, match="does not run inline"):
        gang.submit(1)

    @app.task
    def no_gang() -> None:
        _ = tasks.current().gang

    with app.inline():
        assert "is no gang" in failure(no_gang.submit()).text
    from weft.tasks.gangs.gang_task import gang_queues

    app.task(name="async", queue="gangs")(waiting)
    with pytest.raises(weft.InvalidArgument, match="runs no gangs"):
        gang_queues(app, ["unused.gangs"])

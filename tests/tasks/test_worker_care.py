"""The care of workers: retry, reload, metrics, traces, the limit of life, causes of deaths."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

import weft
from tests.tasks import eater, shop
from weft import tasks
from weft.client.cli.main import cli
from weft.node_process import unused_ports
from weft.tasks.child_death import CRASHED, KILLED, LIMIT, MEMORY, OomWatch, cause_of
from weft.tasks.failed_call import KEPT_BYTES_MAX
from weft.tasks.metrics import workers_text
from weft.tasks.source_watch import SourceWatch
from weft.tasks.testing import thread_worker, worker_process
from weft.tasks.worker_options import WorkerOptions
from weft.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.tasks.shop:app"
TIMEOUT_S = 60


@pytest.fixture(autouse=True)
def connected(node: Cluster) -> Iterator[None]:
    shop.app.connect(node.servers)
    yield
    shop.app.close()


def command(node: Cluster, *words: str) -> tuple[int, str]:
    servers = ",".join(node.servers)
    result = CliRunner().invoke(cli, ["tasks", *words, "--servers", servers])
    return result.exit_code, result.output


# --- retry ---


def flaky_app(fails: list[int]) -> tasks.App:
    app = tasks.App("flaky")

    @app.task(attempts=1)
    def half(n: int, text: str = "") -> float:
        if n in fails:
            raise ValueError(f"{n} fails")
        return n / 2

    return app


def test_a_failed_task_is_retried_as_a_new_one_once(node: Cluster) -> None:
    fails = [3, 5]
    app = flaky_app(fails)
    half = app.tasks["half"]
    with thread_worker(app, node.servers):
        futures = half.map(range(8))
        ends = tasks.gather(futures, timeout=TIMEOUT_S, return_exceptions=True)
        assert [n for n, end in enumerate(ends) if isinstance(end, weft.TaskFailed)] == fails
        fails.clear()
        again = app.retry(futures[3].id)
        assert again.id != futures[3].id
        assert again.result(TIMEOUT_S) == 1.5
        assert app.retry(futures[3].id).id == again.id, "a task is retried once"
        assert isinstance(futures[3].exception(1), weft.TaskFailed), "a result never changes"
        code, said = command(node, "retry", "flaky", futures[5].id)
        new = said.split()[-1]
        assert (code, said) == (0, f"{futures[5].id} is retried as {new}\n")
        assert app.future(new).result(TIMEOUT_S) == 2.5
        with pytest.raises(weft.InvalidArgument, match="has succeeded"):
            app.retry(futures[0].id)
        with pytest.raises(weft.InvalidArgument, match="has no result"):
            app.retry("0" * 32)
        with pytest.raises(weft.InvalidArgument, match="task_id"):
            app.retry("nonsense")
        assert command(node, "retry", "flaky", futures[0].id)[0] != 0


def test_calls_that_are_too_large_or_cancelled_are_not_kept(node: Cluster) -> None:
    app = flaky_app([1])
    half = app.tasks["half"]
    with thread_worker(app, node.servers):
        large = half.submit(1, "x" * KEPT_BYTES_MAX)
        assert isinstance(large.exception(TIMEOUT_S), weft.TaskFailed)
        with pytest.raises(weft.InvalidArgument, match="is not kept"):
            app.retry(large.id)
        waiting = half.with_options(delay=3600).submit(1)
        assert waiting.cancel()
        with pytest.raises(weft.InvalidArgument, match="was cancelled"):
            app.retry(waiting.id)


async def test_a_retry_on_an_event_loop(node: Cluster) -> None:
    fails = [4]
    app = flaky_app(fails)
    with thread_worker(app, node.servers):
        future = await app.tasks["half"].aio.submit(4)
        assert isinstance(await future.exception(TIMEOUT_S), weft.TaskFailed)
        fails.clear()
        assert await (await app.aio_retry(future.id)).result(TIMEOUT_S) == 2.0
        await app.aio_close()


# --- reload ---


def test_changed_files_are_seen(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / ".hidden").mkdir()
    module = tmp_path / "package" / "module.py"
    module.write_text("one = 1\n")
    watch = SourceWatch(str(tmp_path))
    assert watch.changed() == []
    (tmp_path / ".hidden" / "other.py").write_text("")
    (tmp_path / "notes.txt").write_text("")
    module.write_text("one = 11\n")
    watch._next = 0.0
    assert watch.changed() == ["package/module.py"]
    module.unlink()
    watch._next = 0.0
    assert watch.changed() == ["package/module.py"]
    with pytest.raises(weft.InvalidArgument, match="takes --pool processes"):
        WorkerOptions(pool="threads", reload=True)


def test_a_worker_reloads_and_survives_code_that_cannot_be_imported(
    node: Cluster, tmp_path: Path
) -> None:
    module = tmp_path / "reloaded.py"
    text = (
        "import time\nfrom weft import tasks\napp = tasks.App('reloaded')\n"
        "@app.task\ndef version(s: float) -> int:\n    time.sleep(s)\n    return {}\n"
    )
    module.write_text(text.format(1))
    caller = tasks.App("reloaded", node.servers)
    version = caller.task(name="version")(lambda s: 0)
    arguments = ("--reload", "-c", "2")
    with worker_process("reloaded:app", node.servers, *arguments, folder=tmp_path) as worker:
        assert version.submit(0.0).result(TIMEOUT_S) == 1
        running = version.submit(1.5)
        deadline = time.monotonic() + TIMEOUT_S
        while not caller.client.queue("reloaded.default").stats().leased:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        module.write_text("this is no python\n")
        worker.logged("reload: reloaded.py")
        assert running.result(TIMEOUT_S) == 1, "a running task ends with its code"
        line = worker.logged("waiting for a change")
        assert "the module reloaded cannot be imported: SyntaxError" in line
        waiting = version.submit(0.0)
        module.write_text(text.format(22))
        assert waiting.result(TIMEOUT_S) == 22
        assert worker.stop() == 0
    caller.close()


# --- metrics ---


def scraped(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return samples(answer.read().decode())


def samples(text: str) -> dict[str, float]:
    from prometheus_client.parser import text_string_to_metric_families

    return {
        "|".join([each.name, *(v for k, v in each.labels.items() if k not in ("host", "pid"))]): (
            each.value
        )
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def test_a_worker_and_the_exporter_serve_metrics(node: Cluster) -> None:
    (port,) = unused_ports(1)
    arguments = ("-q", "default", "--metrics", f"127.0.0.1:{port}")
    with worker_process(APP, node.servers, *arguments, folder=ROOT) as worker:
        assert shop.double.submit(2).result(TIMEOUT_S) == 4
        assert isinstance(shop.fail_with_effects.submit(1).exception(TIMEOUT_S), weft.TaskFailed)
        deadline = time.monotonic() + TIMEOUT_S
        wanted = {
            "weft_worker_slots|shop": 1,
            "weft_worker_tasks_total|shop|succeeded": 1,
            "weft_worker_tasks_total|shop|failed": 1,
            "weft_tasks_ended_total|shop|double|succeeded": 1,
            "weft_tasks_ended_total|shop|fail_with_effects|failed": 1,
            "weft_worker_running_tasks|shop": 0,
        }
        while not wanted.items() <= (found := scraped(port)).items():
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        assert found["weft_worker_busy_seconds_total|shop"] > 0
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/other", timeout=10)
        while not wanted.items() <= (found := samples(command(node, "metrics", "shop")[1])).items():
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
        assert found["weft_tasks_waiting|shop|shop.default"] == 0
        assert worker.stop() == 0


def test_a_taken_port_is_one_line(node: Cluster) -> None:
    (port,) = unused_ports(1)
    arguments = ("-q", "default", "--metrics", str(port))
    with worker_process(APP, node.servers, *arguments, folder=ROOT) as first:
        first.logged("takes")
        with worker_process(APP, node.servers, *arguments, folder=ROOT) as second:
            assert second.wait() in (1, 2)
            (line,) = [line for line in second.log if line.startswith("error:")]
            assert f"metrics cannot be served at 127.0.0.1:{port}" in line


def test_labels_are_escaped() -> None:
    from weft.tasks.heartbeat import TaskCounts, WorkerBeat

    counts = TaskCounts(by_task={'a"\\\n': (1, 0)})
    beat = WorkerBeat("h", 1, "solo", 1, [], 0.0, 0.0, counts, {})
    assert 'task="a\\"\\\\\\n",end="succeeded"} 1' in workers_text("a", [beat])


# --- traces ---


def test_a_task_runs_in_the_trace_of_its_submission(node: Cluster) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.tasks.traced_program", ",".join(node.servers)],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.stdout == "one trace\n", ran.stderr


# --- ends ---


def test_a_worker_stops_at_its_limit_of_life(node: Cluster) -> None:
    arguments = ("-q", "default", "--max-life", "0.5")
    for pool in ("processes", "solo"):
        app, extra = (APP, ()) if pool == "processes" else ("tests.tasks.solo:app", ("-q", "solo"))
        words = ("--pool", pool, *arguments, *extra)
        with worker_process(app, node.servers, *words, folder=ROOT) as running:
            assert running.wait() == 0
    with pytest.raises(weft.InvalidArgument, match="max_life_s must be"):
        WorkerOptions(max_life_s=-1)


def test_the_causes_of_a_death() -> None:
    assert cause_of(-signal.SIGKILL, "", True)[0] == MEMORY
    assert "out of memory" in cause_of(-signal.SIGKILL, "", True)[1]
    assert cause_of(-signal.SIGKILL, "", False) == (
        KILLED, "the worker process ended with SIGKILL",
    )  # fmt: skip
    assert cause_of(-signal.SIGSEGV, "", True)[0] == KILLED
    assert cause_of(1, "", False) == (CRASHED, "the worker process ended with exit code 1")
    assert cause_of(-signal.SIGKILL, "past its time limit", True) == (LIMIT, "past its time limit")


@pytest.mark.parametrize("version", [1, 2])
def test_kills_for_memory_are_counted_by_group_and_machine(tmp_path: Path, version: int) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    line = "0::/a/b" if version == 2 else "4:memory:/a/b"
    (proc / "self" / "cgroup").write_text(f"9:name=systemd:/\n{line}\n")
    (proc / "vmstat").write_text("nr_free_pages 5\noom_kill 3\n")
    name = "a/b/memory.events" if version == 2 else "memory/a/b/memory.oom_control"
    events = groups / name
    events.parent.mkdir(parents=True)
    events.write_text("oom 1\noom_kill 7\n")
    watch = OomWatch(proc, groups)
    assert not watch.recent
    events.write_text("oom 2\noom_kill 8\n")
    assert watch.recent
    assert OomWatch(tmp_path / "none", groups).recent is False


MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path]:
    """A control group with so much memory; skips where none can be made."""
    parent = MEMORY_GROUPS if MEMORY_GROUPS.is_dir() else MEMORY_GROUPS.parent
    group = parent / f"weft-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    limit = "memory.limit_in_bytes" if MEMORY_GROUPS.is_dir() else "memory.max"
    try:
        if not (group / limit).exists():
            pytest.skip("control groups have no limit of memory here")
        (group / limit).write_text(str(limit_bytes))
        yield group
    finally:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                group.rmdir()
                break
            except OSError:  # a process is ending
                assert time.monotonic() < deadline
                time.sleep(0.05)


def test_a_process_killed_for_memory_is_reported_as_such(node: Cluster) -> None:
    eater.app.connect(node.servers)
    with memory_group(256 << 20) as group:
        app = "tests.tasks.eater:app"
        with worker_process(app, node.servers, folder=ROOT) as worker:
            pid = worker.logged("takes").split("worker process ")[1].split()[0]
            for each in (str(worker.pid), pid):
                (group / "cgroup.procs").write_text(each)
            # The kernel takes the largest: the process of the task.
            error = eater.eat.submit(1024).exception(TIMEOUT_S)
            assert isinstance(error, weft.WorkerLost)
            assert "the kernel killed the worker process: out of memory" in error.text
            worker.logged("ended with SIGKILL: the kernel killed the worker process")
            assert eater.eat.submit(1).result(TIMEOUT_S) == 1, "a new process works"
            assert worker.stop() == 0
    eater.app.close()


def test_the_error_of_a_lost_task_has_the_reason(node: Cluster) -> None:
    with worker_process(APP, node.servers, "-q", "default", folder=ROOT) as worker:
        error = shop.kill_worker.submit().exception(TIMEOUT_S)
        assert isinstance(error, weft.WorkerLost)
        assert error.text.endswith("The last time: the worker process ended with SIGKILL")
        assert worker.stop() == 0


def test_a_task_that_ends_its_event_loop_is_lost_after_its_attempts(node: Cluster) -> None:
    """The process runs many tasks at once: the attempts of those that it had begun are counted."""
    with worker_process(APP, node.servers, "-q", "async", folder=ROOT) as worker:
        futures = [shop.kill_event_loop.submit(), shop.kill_thread_of_event_loop.submit()]
        for future in futures:
            error = future.exception(TIMEOUT_S)
            assert isinstance(error, weft.WorkerLost)
            assert "2 times" in error.text
            assert error.text.endswith("The last time: the worker process ended with SIGKILL")
        assert shop.wait_for.submit(0.0).result(TIMEOUT_S) == 1
        assert worker.stop() == 0


# --- bad input that only the worker can see ---


def test_arguments_that_match_another_signature_fail_with_their_name(node: Cluster) -> None:
    """The submitter has other code: the worker finds the mismatch, and the task fails at once."""
    theirs, mine = tasks.App("mismatch"), tasks.App("mismatch", node.servers)

    @theirs.task(name="half", attempts=4)
    def half(n: int, *, deep: bool = False) -> float:
        return n / 2

    loose = mine.task(name="half")(lambda n, **more: n)
    with thread_worker(theirs, node.servers):
        for future, says in (
            (loose.submit("x"), "argument 'n': Expected `int`, got `str`"),
            (loose.submit(1, deep="x"), "argument 'deep': Expected `bool`"),
            (loose.submit(1, other=2), "has no argument 'other'"),
        ):
            error = future.exception(TIMEOUT_S)
            assert error is not None
            assert (error.error, says in error.text) == ("InvalidArgument", True), error.text
        assert loose.submit(3).result(TIMEOUT_S) == 1.5
    mine.close()

"""Tasks in tests: inline without nodes, or with a real node and a real worker.

As pytest fixtures: ``from weft.tasks.testing import inline_tasks, task_worker`` in ``conftest.py``.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from weft.errors import Unavailable, WeftError

from .app import App
from .inline import InlineRunner
from .worker import TaskWorker
from .worker_options import THREADS, WorkerOptions

__all__ = ["WorkerProcess", "thread_worker", "worker_process"]

_END_S: Final = 60.0


@contextmanager
def thread_worker(
    app: App,
    servers: str | Sequence[str],
    *,
    concurrency: int = 1,
    allow_pickle: bool = False,
) -> Iterator[TaskWorker]:
    """Runs a worker of the app in threads of this process, and connects the app to the servers.

    with weft.testing.cluster(1) as cluster, thread_worker(app, cluster.servers):
        assert resize.submit("a.png", 100).result(timeout=10) == "a-100.png"
    """
    app.connect(servers)
    worker = TaskWorker(app, WorkerOptions(concurrency, THREADS, allow_pickle=allow_pickle))
    failures: list[WeftError] = []

    def work() -> None:
        try:
            worker.run()
        except WeftError as error:
            failures.append(error)

    thread = threading.Thread(target=work, name="weft-test-worker", daemon=True)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(_END_S)
        app.close()
    if failures:
        raise failures[0]


class WorkerProcess:
    """A `weft worker` of a test; `log` has the output."""

    def __init__(
        self,
        app: str,
        servers: Sequence[str],
        arguments: Sequence[str],
        folder: str | os.PathLike[str] | None,
    ) -> None:
        environment = {**os.environ, "WEFT_SERVERS": ",".join(servers)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _RUN, str(os.getpid()), "worker", app, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that `kill_all` reaches the worker processes, too
        )
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, timeout_s: float = _END_S) -> int:
        """Waits for the end; returns the exit code. Raises Unavailable after the timeout."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"the worker has not ended within {timeout_s:.0f} s") from None
        self._reader.join(_END_S)
        return code

    def stop(self, timeout_s: float = _END_S) -> int:
        """Stops the worker (SIGTERM) and waits; returns the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def kill(self) -> None:
        """Ends the supervisor without warning (SIGKILL)."""
        self._process.kill()
        self._process.wait()

    def kill_all(self) -> None:
        """Ends the supervisor and all processes without warning."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._reader.join(_END_S)
        assert self._process.stderr is not None
        self._process.stderr.close()

    def logged(self, text: str, timeout_s: float = _END_S) -> str:
        """Waits for a line of the log with the text, and returns the line."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            for line in list(self.log):
                if text in line:
                    return line
            time.sleep(0.02)
        raise Unavailable(f"the worker has not logged {text!r}: {self.log[-20:]}")

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line.rstrip())


#: The worker ends with the test run, also if the run is killed.
_RUN: Final = (
    "import sys; from weft.tasks.child_process import end_with; end_with(int(sys.argv.pop(1))); "
    "from weft.client.cli.main import main; main()"
)


@contextmanager
def worker_process(
    app: str,
    servers: Sequence[str],
    *arguments: str,
    folder: str | os.PathLike[str] | None = None,
) -> Iterator[WorkerProcess]:
    """Runs `weft worker APP ARGUMENTS` in the folder; kills the rest at the end.

    with worker_process("shop.tasks:app", cluster.servers, "-c", "2") as worker:
        worker.logged("takes")
    """
    made = WorkerProcess(app, servers, arguments, folder)
    try:
        yield made
    finally:
        made.kill_all()


if importlib.util.find_spec("pytest") is not None:
    import pytest

    @pytest.fixture
    def inline_tasks() -> Iterator[Callable[[App], InlineRunner]]:
        """`inline_tasks(app)`: until the end of the test, the app's tasks run when submitted."""
        with ExitStack() as ends:
            yield lambda app: ends.enter_context(app.inline())

    @pytest.fixture
    def task_worker() -> Iterator[Callable[[App], TaskWorker]]:
        """`task_worker(app)`: until the end of the test, a node and a worker run its tasks."""
        from weft import testing

        with ExitStack() as ends:

            def start(app: App) -> TaskWorker:
                nodes = ends.enter_context(testing.cluster(1, durability="os"))
                return ends.enter_context(thread_worker(app, nodes.servers))

            yield start

    __all__ += ["inline_tasks", "task_worker"]

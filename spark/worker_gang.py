"""Workers of Weft inside of Spark's executors, as one barrier job."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft.client import arguments
from weft.client.sync_client import connect
from weft.errors import DeadlineExceeded, Unavailable, WeftError
from weft.tasks.app_location import AppLocation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKERS_MAX: Final = 10_000
START_S: Final = 120.0
#: How often an executor looks for the end of the gang, and how long a lost driver is survived.
POLL_S: Final = 0.5
START_POLL_S: Final = 0.05
SIGN_TTL_MS: Final = 30_000
RENEW_S: Final = 5.0
_GRACE_S: Final = 60.0
_CANCEL_S: Final = 1.0
_CANCELS: Final = 60
#: The worker ends with the Python process of its executor.
_RUN: Final = (
    "import sys; from weft.tasks.child_process import end_with; end_with(int(sys.argv.pop(1))); "
    "from weft.client.cli.main import main; main()"
)


@contextmanager
def workers(
    spark: SparkSession,
    n: int,
    app: str,
    *,
    servers: str | None = None,
    options: tuple[str, ...] = (),
    timeout: float = START_S,
) -> Iterator[None]:
    """Runs `n` workers of an app in Spark's executors, in the context.

        with weft.spark.workers(spark, 4, "shop.tasks:app"):
            resize.map(paths, width=100)

    Each worker is a task of one barrier job, so all of them start together: `n` free slots are
    needed. `servers` are the addresses of the cluster for the executors, by default of the
    environment. `options` are further options of `weft worker`. Executors need weft and the module
    of the app. The workers finish their running tasks at the end of the context, and end by
    themselves within 30 s if the driver is lost. Raises InvalidArgument, DeadlineExceeded if the
    slots are not free within `timeout` seconds, and Unavailable if a worker fails.
    """
    arguments.check_integer("n", n, 1, WORKERS_MAX)
    arguments.check_number("timeout", timeout, 0, arguments.WAIT_S_MAX)
    AppLocation.parse(app)
    gang = f"spark-{secrets.token_hex(8)}"
    key = f"tasks/gangs/{gang}"
    context = spark.sparkContext
    with connect(servers) as client:
        client.kv.insert(f"{key}/run", b"", ttl_ms=SIGN_TTL_MS)
        job = _GangJob(
            context, n, gang, partial(_work, app=app, key=key, servers=servers, options=options)
        )
        over = threading.Event()

        def renew() -> None:
            while not over.wait(RENEW_S):
                try:
                    client.kv.insert(f"{key}/run", b"", ttl_ms=SIGN_TTL_MS)
                except WeftError:
                    pass  # the next one; workers outlive a short outage

        renewal = threading.Thread(target=renew, name="weft-spark-gang", daemon=True)
        renewal.start()
        up = 0
        try:
            deadline = time.monotonic() + timeout
            while (up := len(list(client.kv.scan(f"{key}/up/", limit=n)))) < n:
                job.check()
                if time.monotonic() > deadline:
                    raise DeadlineExceeded(
                        f"{n} workers have not started in Spark within {timeout:.0f} s: the "
                        "barrier job needs as many free slots"
                    )
                time.sleep(0.1)
            yield
            job.check()
        finally:
            over.set()
            renewal.join()
            try:
                client.kv.remove(f"{key}/run")
            except WeftError:
                pass  # the sign ends by itself; the job must end, too
            # Without a worker no task runs that could finish: Spark may still look for slots.
            job.end(_GRACE_S if up else 0)


class _GangJob:
    """The barrier job, in a thread of the driver."""

    def __init__(self, context: Any, n: int, gang: str, work: Any) -> None:
        self._context = context
        self._gang = gang
        self._error = ""
        self._ended = False
        from pyspark import InheritableThread

        def run() -> None:
            context.setJobGroup(gang, f"{n} workers of Weft", interruptOnCancel=True)
            try:
                context.parallelize(range(n), n).barrier().mapPartitions(work).collect()
            except Exception as error:
                self._error = str(error)
            self._ended = True

        self._thread = InheritableThread(target=run, name=gang, daemon=True)
        self._thread.start()

    def check(self) -> None:
        if self._ended:
            raise Unavailable(f"the workers in Spark have ended: {_reason(self._error)}")

    def end(self, grace_s: float) -> None:
        """Waits for the workers, and cancels the job if it has not ended after the grace."""
        self._thread.join(grace_s)
        for _ in range(_CANCELS):
            if not self._thread.is_alive():
                break
            self._context.cancelJobGroup(self._gang)  # without effect before the job has begun
            self._thread.join(_CANCEL_S)


def _reason(trace: str) -> str:
    """The line of a Java or Python trace that names the cause: an error of Weft before others."""
    lines = [line.strip() for line in trace.splitlines()]
    weft = [line for line in lines if line.startswith("weft.errors.")]
    named = [line for line in lines if "rror: " in line]
    return (weft or named or [line for line in lines if line] or ["no reason"])[-1]


def _work(
    numbers: Iterator[int], *, app: str, key: str, servers: str | None, options: tuple[str, ...]
) -> Iterator[int]:
    """One worker, in an executor, until the gang's sign is gone."""
    environment = dict(os.environ) if servers is None else {**os.environ, "WEFT_SERVERS": servers}
    command = [sys.executable, "-c", _RUN, str(os.getpid()), "worker", app, "-c", "1", *options]
    for number in numbers:
        with connect(servers) as client, tempfile.TemporaryDirectory() as folder:
            ready = Path(folder) / "ready"
            process = subprocess.Popen(
                [*command, "--ready-file", str(ready)],
                env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                up = False
                while client.kv.lookup(f"{key}/run") is not None:
                    if process.poll() is not None:
                        code = process.returncode
                        raise Unavailable(f"the worker has ended with exit code {code}")
                    # The driver waits for workers that take tasks, not for processes that start.
                    if not up and ready.exists():
                        client.kv.insert(f"{key}/up/{number}", b"", ttl_ms=SIGN_TTL_MS)
                        up = True
                    time.sleep(POLL_S if up else START_POLL_S)
                process.send_signal(signal.SIGTERM)
                process.wait(_GRACE_S)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        yield number

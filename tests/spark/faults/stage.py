"""The environment of a scenario: nodes, queues, drivers in separate processes, and the output."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

import weft
from tests.spark.session import ROOT, environment
from weft.client.sync_client import Client
from weft.testing import Cluster

from .driver import Job
from .spark_cluster import SparkCluster

DRIVER_S_MAX: Final = 180.0
_POLL_S: Final = 0.02
#: More than the ten seconds that Spark waits for a worker of a source.
LATE_S: Final = 12
#: Messages leased by a crashed primary are delivered again within this time.
_REDELIVERY_MS: Final = 5_000


class Stuck(Exception):
    """The scenario did not go as expected."""


class DriverProcess:
    def __init__(self, job: Job, file: Path, python: Path) -> None:
        self.file = file
        self.log = file.with_suffix(".log")
        file.write_bytes(msgspec.json.encode(job))
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.faults.driver", str(file)],
                cwd=ROOT, env=environment() | {"PYSPARK_PYTHON": str(python)},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def _end(self) -> int:
        try:
            return self._process.wait(DRIVER_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Stuck(f"{self.file.name} did not end: {self.tail()}") from None

    def dies(self) -> None:
        if (code := self._end()) != -9:
            raise Stuck(f"{self.file.name} was to be killed and ended with {code}: {self.tail()}")

    def ends(self) -> None:
        if code := self._end():
            raise Stuck(f"{self.file.name} ended with {code}: {self.tail()}")

    def fails(self, *words: str) -> None:
        """Both queries fail with one of these words in the message."""
        if (code := self._end()) != 3:
            raise Stuck(f"{self.file.name} was to fail and ended with {code}: {self.tail()}")
        for name in ("a", "b"):
            said = Path(f"{self.file}.failed-{name}").read_text()
            if not any(word in said for word in words):
                raise Stuck(f"query {name} failed with something else: {said}")

    def fails_somehow(self) -> None:
        if (code := self._end()) != 3:
            raise Stuck(f"{self.file.name} was to fail and ended with {code}: {self.tail()}")

    def tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        told = [line for line in lines if not line.startswith("\tat ")]
        return "\n".join([*told[-15:], f"(all of it in {self.log})"])

    @property
    def late_workers(self) -> int:
        """Restarts of a query because a Python worker started too late for Spark."""
        return sum(
            int(each.read_text()) for each in self.file.parent.glob(f"{self.file.name}.late-*")
        )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the driver and its JVM, by their process ids."""
        written = self.file.parent / "driver"  # not yet there while the driver starts
        pids = written.read_text().split() if written.exists() else []
        if str(self._process.pid) in pids:
            for pid in map(int, pids):
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    continue
        self._process.kill()
        self._process.wait()


class Stage:
    def __init__(self, cluster: Cluster, folder: Path, messages: int) -> None:
        self.cluster = cluster
        self.folder = folder
        self._messages = messages
        self._client: Client = cluster.client()
        self._drivers: list[DriverProcess] = []
        #: Messages of the sink that were delivered again to the checker itself.
        self.redelivered = 0
        self._killed: int | None = None
        self._traps = 0
        self._fresh = False
        self.pushed: list[str] = []
        for name in ("in-a", "in-b", "out-a"):
            self._client.create_queue(name)
        self.again()

    # --- drivers ----------------------------------------------------------------------------

    def start(self, python: Path = Path(sys.executable), **job: Any) -> DriverProcess:
        made = Job(
            servers=",".join(self.cluster.servers),
            folder=str(self.folder),
            trap=str(self._trap),
            per_batch=max(1, self._messages // 2),
            **job,
        )
        self._fresh = False
        driver = DriverProcess(made, self._trap / f"job-{len(self._drivers)}.json", python)
        self._drivers.append(driver)
        return driver

    def again(self) -> None:
        """A fresh trap for the next driver, and messages: earlier drivers may have read all."""
        if self._fresh:
            return
        self._fresh = True
        self._traps += 1
        self._trap = self.folder / f"trap-{self._traps}"
        self._trap.mkdir(parents=True)
        self.push_more()

    def sprung(self) -> None:
        if not (self._trap / "sprung").exists():
            raise Stuck("nothing came to the trap")

    def ran_twice(self) -> None:
        if not (self._trap / "second").exists():
            raise Stuck("Spark started no second copy of the slow task")

    def asked(self, driver: DriverProcess) -> None:
        self._until(driver, (self._trap / "ask").exists, "the driver came to its point")

    def go(self) -> None:
        (self._trap / "go").touch()

    def drained(self, driver: DriverProcess) -> None:
        """Wait until both queues are read to the end and all rows are in the output queue."""
        total = len(self.pushed)

        def done() -> bool:
            waiting = [self._client.queue(f"in-{name}").stats().ready for name in ("a", "b")]
            return not any(waiting) and self._client.queue("out-a").stats().ready == total

        self._until(driver, done, "all was read")

    def _until(self, driver: DriverProcess, done: Any, what: str) -> None:
        end = time.monotonic() + DRIVER_S_MAX
        while not done():
            if not driver.running:
                raise Stuck(f"the driver ended before {what}: {driver.tail()}")
            if time.monotonic() > end:
                raise Stuck(f"too long until {what}: {driver.tail()}")
            time.sleep(_POLL_S)

    def late_python(self) -> Path:
        """A Python whose first worker for a source starts after Spark has given up on it."""
        script, mark = self.folder / "late-python", self.folder / "late"
        late = f"mkdir {shlex.quote(str(mark))} 2>/dev/null && sleep {LATE_S}"
        script.write_text(
            f'#!/bin/sh\ncase "$*" in *python_streaming_source_runner*) {late};; esac\n'
            f'exec {shlex.quote(sys.executable)} "$@"\n'
        )
        script.chmod(0o755)
        return script

    @property
    def late_workers(self) -> int:
        return sum(driver.late_workers for driver in self._drivers)

    @contextmanager
    def spark_cluster(self) -> Iterator[str]:
        with SparkCluster(self.folder / "spark", ("127.0.0.1", "127.0.0.2")) as cluster:
            yield cluster.master

    # --- messages and nodes -------------------------------------------------------------------

    def push_more(self) -> None:
        """Push in small batches, which spread over partitions and nodes."""
        first = len(self.pushed)
        fresh = [f"m-{number:07d}" for number in range(first, first + self._messages)]
        self.pushed += fresh
        for name in ("in-a", "in-b"):
            queue = self._client.queue(name)
            for start in range(0, len(fresh), 97):
                queue.push_many([value.encode() for value in fresh[start : start + 97]])

    def kill_node(self) -> None:
        """Kill a node that does not answer for the whole cluster: any but the first."""
        self._killed = len(self.cluster.servers) - 1
        self.cluster.kill(self._killed)

    def bring_back(self) -> None:
        assert self._killed is not None
        self.cluster.start(self._killed)
        self.cluster.settled()

    # --- output -------------------------------------------------------------------------------

    def results(self) -> dict[str, Counter[str]]:
        """By sink: how often each value was published.

        A redelivered message is the same message: after a crash between the pop and its ack a
        redelivery is right, so each message counts once. A value that was published twice is two
        messages, and counts twice.
        """
        queue = self._client.queue("out-a")
        found: dict[object, str] = {}
        wait_ms = 0
        while popped := queue.pop_many(5000, wait_ms=wait_ms):
            self.redelivered += sum(message.id in found for message in popped)
            found.update({message.id: message.body.decode() for message in popped})
            try:
                queue.ack_many(popped)
            except weft.LeaseLost:
                wait_ms = _REDELIVERY_MS  # a primary crashed: its leases are void
        through_weft = Counter(found.values())
        parquet = msgspec.json.decode((self.folder / "found.json").read_bytes())
        return {"weft": through_weft, "parquet": Counter(parquet)}

    def left_over(self) -> dict[str, int]:
        """Counts that must be zero at the end."""
        left = {}
        for name in ("in-a", "in-b", "out-a"):
            stats = self._client.queue(name).stats()
            left[f"waiting in {name}"] = stats.ready + stats.leased
            left[f"reserved in {name}"] = stats.reserved
            left[f"staged in {name}"] = stats.staged
        return left

    def close(self) -> None:
        for driver in self._drivers:
            if driver.running:
                driver.kill()

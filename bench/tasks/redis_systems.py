"""Celery, Dramatiq and RQ on Redis, which syncs its append-only file every second."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

from bench.peers.fetch import Missing as NoProgram
from bench.peers.fetch import program
from bench.peers.redis_server import RedisEverySecond

from .system import RESULT_S, WORKERS, Missing, TaskSystem

ROOT = Path(__file__).resolve().parents[2]


class RedisTasks(TaskSystem):
    packages: ClassVar[tuple[str, ...]]

    def start(self) -> None:
        for package in self.packages:
            try:
                importlib.import_module(package)
            except ImportError:
                raise Missing(f"pip install {package}") from None
        try:
            program("redis-server", "redis-server", fetch=True)
        except NoProgram as error:
            raise Missing(str(error)) from None
        self._server = RedisEverySecond(self.folder)
        self._server.start()
        self.port = self._server.address["port"]
        os.environ["BENCH_REDIS"] = f"redis://127.0.0.1:{self.port}/0"
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._workers = [
            subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
            for command in self.workers()
        ]
        self.connect()
        self.wait(self.map("null", [0.0] * 10))

    def workers(self) -> list[list[str]]:
        """The command lines of the workers, after `python -m`."""
        raise NotImplementedError

    def connect(self) -> None:
        """Opens the client's side."""

    def close(self) -> None:
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            try:
                worker.wait(20)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        self._server.close()


class CeleryTasks(RedisTasks):
    name = "Celery"
    settings = "Redis appendfsync everysec, acks late, prefetch 4, results in Redis"
    null_tasks = 4_000
    packages = ("celery", "redis")

    def workers(self) -> list[list[str]]:
        words = ["-A", "bench.tasks.celery_app", "worker", "-c", str(WORKERS), "-l", "ERROR"]
        return [["celery", *words, "--without-gossip", "--without-mingle"]]

    def connect(self) -> None:
        self._app = importlib.import_module("bench.tasks.celery_app")

    def submit(self, kind: str, value: float) -> Any:
        return getattr(self._app, kind).delay(value)

    def map(self, kind: str, values: list[float]) -> list[Any]:
        from celery import group

        task = getattr(self._app, kind)
        return list(group(task.s(value) for value in values).apply_async().children)

    def wait(self, handles: list[Any]) -> None:
        for handle in handles:
            handle.get(timeout=RESULT_S)


class DramatiqTasks(RedisTasks):
    name = "Dramatiq"
    settings = "Redis appendfsync everysec, results in Redis, one thread for each process"
    null_tasks = 4_000
    packages = ("dramatiq", "redis")

    def workers(self) -> list[list[str]]:
        return [["dramatiq", "bench.tasks.dramatiq_app", "-p", str(WORKERS), "-t", "1"]]

    def connect(self) -> None:
        self._app = importlib.import_module("bench.tasks.dramatiq_app")

    def submit(self, kind: str, value: float) -> Any:
        return getattr(self._app, kind).send(value)

    def map(self, kind: str, values: list[float]) -> list[Any]:
        return [self.submit(kind, value) for value in values]

    def wait(self, handles: list[Any]) -> None:
        for handle in handles:
            handle.get_result(block=True, timeout=int(RESULT_S * 1000))


class RqTasks(RedisTasks):
    name = "RQ"
    settings = "Redis appendfsync everysec, SimpleWorker (no fork for a job)"
    null_tasks = 2_000
    packages = ("rq", "redis")

    def workers(self) -> list[list[str]]:
        words = ["rq.cli", "worker", "-u", os.environ["BENCH_REDIS"], "-q"]
        return [[*words, "-w", "rq.worker.SimpleWorker"]] * WORKERS

    def connect(self) -> None:
        import redis
        import rq

        self._queue = rq.Queue(connection=redis.Redis(port=self.port))

    def submit(self, kind: str, value: float) -> Any:
        return self._queue.enqueue(f"bench.tasks.functions.{kind}", value)

    def map(self, kind: str, values: list[float]) -> list[Any]:
        import rq

        function = f"bench.tasks.functions.{kind}"
        return self._queue.enqueue_many(
            [rq.Queue.prepare_data(function, args=(value,)) for value in values]
        )

    def wait(self, handles: list[Any]) -> None:
        for handle in handles:
            while not handle.is_finished:
                time.sleep(0.0005)
                handle.refresh()

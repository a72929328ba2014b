"""Weft: one node or three, two worker processes."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

from weft import tasks
from weft.tasks.testing import worker_process
from weft.testing import cluster

from . import weft_app
from .system import RESULT_S, WORKERS, TaskSystem

ROOT = Path(__file__).resolve().parents[2]


class WeftTasks(TaskSystem):
    name = "Weft"
    settings = "durability os, effects and results once"
    null_tasks = 200_000
    durability: ClassVar[str] = "os"
    nodes: ClassVar[int] = 1
    once: ClassVar[str] = "effects"

    def start(self) -> None:
        self._ends = ExitStack()
        nodes = self._ends.enter_context(cluster(self.nodes, durability=self.durability))
        if self.nodes > 1:
            nodes.settled()
        arguments = ("-c", str(WORKERS), "--log-level", "INFO")
        made = worker_process("bench.tasks.weft_app:app", nodes.servers, *arguments, folder=ROOT)
        worker = self._ends.enter_context(made)
        weft_app.app.connect(nodes.servers)
        worker.logged("takes")
        self.wait(self.map("null", [0.0] * 100))

    def submit(self, kind: str, value: float) -> Any:
        return weft_app.app.tasks[f"{kind}.{self.once}"].submit(value)

    def map(self, kind: str, values: list[float]) -> list[Any]:
        return weft_app.app.tasks[f"{kind}.{self.once}"].map(values)

    def bundle_null(self, count: int) -> float | None:
        began = time.perf_counter()
        with weft_app.app.bundle():
            handles = [self.submit("null", 0.0) for _ in range(count)]
        took = time.perf_counter() - began
        self.wait(handles)
        return took

    def wait(self, handles: list[Any]) -> None:
        tasks.gather(handles, timeout=RESULT_S)

    def close(self) -> None:
        weft_app.app.close()
        self._ends.close()


class WeftOnDisk(WeftTasks):
    name = "Weft disk"
    settings = "durability disk (each answer after fsync), effects and results once"
    durability = "disk"


class WeftThreeNodes(WeftTasks):
    name = "Weft 3 nodes"
    settings = "three nodes, two copies of everything, durability os, effects and results once"
    nodes = 3


class WeftStart(WeftTasks):
    name = "Weft start"
    settings = 'durability os, once="start": a claim before each task'
    null_tasks = 20_000
    once = "start"


class WeftNone(WeftTasks):
    name = "Weft none"
    settings = 'durability os, once="none"'
    once = "none"

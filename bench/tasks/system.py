"""A task system under test: four measurements, each in seconds or a list of seconds."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

#: Worker processes of every system: the machine's two cores.
WORKERS = 2
RESULT_S = 600.0


class Missing(Exception):
    """The system cannot run here; the text names what is missing."""


class TaskSystem(ABC):
    """`start` returns when the workers work."""

    name: ClassVar[str]
    #: One line for the report: durability, and every setting that differs from the default.
    settings: ClassVar[str]
    #: Null tasks of the map and of the single submissions: seconds of work for each system.
    null_tasks: ClassVar[int]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def submit(self, kind: str, value: float) -> Any:
        """Submits one task, "null" or "sleep", and returns its handle."""

    @abstractmethod
    def map(self, kind: str, values: list[float]) -> list[Any]:
        """Submits many tasks by the quickest way that the system has."""

    @abstractmethod
    def wait(self, handles: list[Any]) -> None:
        """Waits for the results of the tasks."""

    @abstractmethod
    def close(self) -> None: ...

    # --- measurements ---

    def map_null(self, count: int) -> float:
        began = time.perf_counter()
        self.wait(self.map("null", [0.0] * count))
        return time.perf_counter() - began

    def submit_null(self, count: int) -> float:
        began = time.perf_counter()
        handles = [self.submit("null", 0.0) for _ in range(count)]
        took = time.perf_counter() - began
        self.wait(handles)
        return took

    def bundle_null(self, count: int) -> float | None:
        """Single submissions that the system gathers by itself; None if it has no such way."""
        return None

    def latencies(self, count: int) -> list[float]:
        found = []
        for _ in range(count):
            began = time.perf_counter()
            self.wait([self.submit("null", 0.0)])
            found.append(time.perf_counter() - began)
        return sorted(found)

    def efficiency(self, count: int, sleep_ms: float) -> float:
        """The share of the workers' time that the tasks sleep."""
        began = time.perf_counter()
        self.wait(self.map("sleep", [sleep_ms / 1000] * count))
        took = time.perf_counter() - began
        return count * sleep_ms / 1000 / (WORKERS * took)


def sleep_floor(count: int, sleep_ms: float) -> float:
    """The efficiency of a loop that only sleeps: no task system can have more here."""
    began = time.perf_counter()
    for _ in range(count):
        time.sleep(sleep_ms / 1000)
    return count * sleep_ms / 1000 / (time.perf_counter() - began)

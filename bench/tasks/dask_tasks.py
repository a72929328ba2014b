"""Dask distributed: a scheduler and two worker processes with one thread each."""

from __future__ import annotations

from typing import Any

from . import functions
from .system import WORKERS, Missing, TaskSystem


class DaskTasks(TaskSystem):
    name = "Dask"
    settings = "distributed, two processes with one thread, results in the workers' memory"
    null_tasks = 10_000

    def start(self) -> None:
        try:
            from distributed import Client, LocalCluster
        except ImportError:
            raise Missing("pip install distributed") from None
        self._cluster = LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, dashboard_address=None, processes=True
        )
        self._client = Client(self._cluster)
        self.wait(self.map("null", [0.0] * 10))

    def submit(self, kind: str, value: float) -> Any:
        return self._client.submit(getattr(functions, kind), value, pure=False)

    def map(self, kind: str, values: list[float]) -> list[Any]:
        return self._client.map(getattr(functions, kind), values, pure=False)

    def wait(self, handles: list[Any]) -> None:
        self._client.gather(handles)

    def close(self) -> None:
        self._client.close()
        self._cluster.close()

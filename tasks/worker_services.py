"""The threads beside the tasks of a worker: cancelled tasks, the heartbeat, blocks, gangs.

A supervisor has them for all its worker processes; a worker of threads has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.client.sync_client import Client

from .cancellation import MarkWatch
from .gangs.gang_coordinator import GangCoordinator
from .heartbeat import BeatWriter, TaskCounts, WorkerPlace
from .metrics import workers_text
from .sites.worker_site import SiteServer
from .worker_options import WorkerOptions


class WorkerServices:
    def __init__(
        self,
        client: Client,
        app: str,
        options: WorkerOptions,
        queues: Sequence[str],
        gangs: Sequence[str],
        sited: bool,
        report: Callable[[list[int]], None],
        look: Callable[[], tuple[TaskCounts, dict[str, float]]],
        deaths: dict[str, int],
    ) -> None:
        self._app = app
        #: Serves the blocks of tasks near data. First: its address may be wrong.
        self._blocks = SiteServer(client, app, options) if sited else None
        place = WorkerPlace(options.site) if self._blocks is None else self._blocks.place
        self._marks = MarkWatch(client, app, report)
        self._heartbeat = BeatWriter(
            client, app, options.pool, options.concurrency, list(queues), look, options.ready_file,
            place, deaths,
        )  # fmt: skip
        #: One for each queue of the worker with gangs.
        self._coordinators = [GangCoordinator(client, app, queue) for queue in gangs]

    def metrics(self) -> str:
        return workers_text(self._app, [self._heartbeat.row()])

    def stop_gangs(self) -> None:
        """Assembles no more gangs: the worker is stopping."""
        for each in self._coordinators:
            each.stop()

    def close(self) -> None:
        self.stop_gangs()
        for each in self._coordinators:
            each.close()
        self._heartbeat.close()
        if self._blocks is not None:
            self._blocks.close()
        self._marks.close()

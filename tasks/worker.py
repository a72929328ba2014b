"""A worker of an app: a supervisor with processes, or threads, or this thread alone."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Sequence
from typing import Final

from weft.client.sync_client import connect
from weft.client.transport.blocking_link import run
from weft.client.worker.signals import stopping
from weft.errors import InvalidArgument

from .app import App
from .app_location import AppLocation, queues_of
from .async_lease_loop import AsyncLeaseLoop
from .cancellation import Marks
from .gangs.gang_task import gang_queues
from .heartbeat import TaskCounts
from .lease_keeper import LeaseKeeper
from .lease_loop import LeaseLoop
from .metrics_endpoint import MetricsEndpoint
from .run_marker import RunMarker
from .schedule import begin_schedules
from .supervisor import Supervisor
from .worker_options import PROCESSES, WorkerOptions
from .worker_services import WorkerServices

log = logging.getLogger("weft.tasks")

#: How often a worker looks for the end of its loops and of the grace.
_LOOK_S: Final = 0.2


def run_worker(
    location: AppLocation, options: WorkerOptions, servers: str | Sequence[str] | None = None
) -> None:
    """Runs a worker until SIGTERM or SIGINT, or until the idle limit.

    Raises UsageError with one line if the code cannot be imported, and InvalidArgument if the pool
    cannot keep a promise of a task.
    """
    if options.allow_pickle:
        log.warning(
            "--allow-pickle: every program that may push to the queues of this app can run any "
            "code in this worker"
        )
    if options.pool == PROCESSES:
        with connect(servers) as client:
            Supervisor(location, options, client).run()
        return
    app = location.load()
    if servers is not None:
        app.connect(servers)
    TaskWorker(app, options, ends_process=True).run()


class TaskWorker:
    """The pools `threads` and `solo`: tasks run in the calling process.

    A task with the interpreter's lock in hand stops the renewal of leases here, and no
    thread can be killed: use processes for such tasks, and for hard time limits.
    """

    def __init__(self, app: App, options: WorkerOptions, *, ends_process: bool = False) -> None:
        self._app = app
        #: The process is this worker's: it may end with a task that runs on after the grace.
        self._ends_process = ends_process
        self._options = options
        self._queues = queues_of(app, options.queues)
        tasks = [task for task in app.tasks.values() if task.queue in self._queues]
        self._is_async = any(task.is_async for task in tasks)
        for task in tasks:
            if task.options.time_limit is not None and not task.is_async:
                raise InvalidArgument(
                    f"task {task.name} has a time_limit, which takes --pool processes: no thread "
                    "can be killed. Use soft_time_limit with this pool"
                )
        if self._is_async and options.concurrency != 1:
            raise InvalidArgument(
                "an app with async tasks has one event loop in this pool: leave -c out, and set "
                "--coroutines"
            )
        self._loops: list[LeaseLoop] = []
        self._stop_async: AsyncLeaseLoop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = threading.Event()
        #: When the grace is over.
        self._kill_at = float("inf")
        #: All loops have ended.
        self._ended = threading.Event()
        self._marks = Marks()

    def stop(self, now: bool = False) -> None:
        """Ends the worker after the running tasks, or after the grace; with `now` without grace.
        Any thread, or a signal, may call `stop`."""
        grace_s = 0.0 if now else self._options.grace_s
        if not self._stopped.is_set():
            log.info("stopping: running tasks have %.0f s", grace_s)
        self._kill_at = min(self._kill_at, time.monotonic() + grace_s)
        self._stopped.set()
        for loop in self._loops:
            loop.stop()
        if self._loop is not None and self._stop_async is not None:
            self._loop.call_soon_threadsafe(self._stop_async.stop)

    def _look(self) -> tuple[TaskCounts, dict[str, float]]:
        """For the heartbeat: counts and running tasks."""
        counts, running = TaskCounts(), dict[str, float]()
        ahead = time.time() - time.monotonic()
        for loop in self._loops:
            counts = counts.plus(loop.settlement.counts)
            if (current := loop.current) is not None:
                running[str(current[0].message.id)] = round(current[1] + ahead, 3)
        if self._stop_async is not None:
            counts = counts.plus(self._stop_async.settlement.counts)
        return counts, running

    def _cancel(self, numbers: list[int]) -> None:
        self._marks.add(numbers)
        for loop in self._loops:
            loop.cancel(numbers)
        if self._loop is not None and self._stop_async is not None:
            self._loop.call_soon_threadsafe(self._stop_async.cancel, numbers)

    def run(self) -> None:
        """Works until `stop`, a signal, or the idle limit."""
        session = self._app.session
        run(begin_schedules(self._app, session, self._queues))
        keeper = LeaseKeeper(session)
        sited = self._app.is_sited(self._queues)
        if sited:
            self._app.blocks.settle(self._options.site, self._options.spill)
        services = WorkerServices(
            self._app.client, self._app.name, self._options, self._queues,
            gang_queues(self._app, self._queues), sited, self._cancel, self._look, {},
        )  # fmt: skip
        life = threading.Timer(self._options.max_life_s or 0.0, self.stop)
        life.daemon = True
        if self._options.max_life_s:
            life.start()
        self._app.pickle_allowed = self._options.allow_pickle
        try:
            endpoint = MetricsEndpoint.of(self._options.metrics or None, services.metrics)
            with endpoint, stopping(self.stop):
                if self._is_async:
                    asyncio.run(self._run_async(keeper))
                elif self._options.concurrency == 1:
                    self._run_alone(self._made(keeper))
                else:
                    self._run_threads(keeper)
        finally:
            self._ended.set()
            self._app.pickle_allowed = False
            life.cancel()
            services.close()
            keeper.close()

    def _made(self, keeper: LeaseKeeper) -> LeaseLoop:
        loop = LeaseLoop(
            self._app, self._app.session, keeper, self._options, self._queues, RunMarker()
        )
        loop.marks.add(self._marks.all())
        self._loops.append(loop)
        return loop

    def _run_loop(self, loop: LeaseLoop) -> None:
        if not self._stopped.is_set():
            loop.run()

    def _run_alone(self, loop: LeaseLoop) -> None:
        """Runs the loop in this thread: only the end of the process ends its task."""
        if self._ends_process:
            threading.Thread(
                target=self._end_after_grace, args=(loop,), name="weft-grace", daemon=True
            ).start()
        self._run_loop(loop)

    def _end_after_grace(self, loop: LeaseLoop) -> None:
        while time.monotonic() < self._kill_at:
            if self._ended.wait(_LOOK_S):
                return
        try:
            log.warning("a task runs after the grace: it is given back, and the process ends")
            loop.abandon()
        except Exception:
            log.exception("the task comes back when its lease ends")
        finally:
            logging.shutdown()
            os._exit(0)

    def _run_threads(self, keeper: LeaseKeeper) -> None:
        failures: list[BaseException] = []

        def work(loop: LeaseLoop) -> None:
            try:
                self._run_loop(loop)
            except BaseException as error:
                failures.append(error)
                self.stop()

        loops = [self._made(keeper) for _ in range(self._options.concurrency)]
        threads = [
            threading.Thread(target=work, args=(loop,), name=f"weft-worker-{number}", daemon=True)
            for number, loop in enumerate(loops)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive() and time.monotonic() < self._kill_at:
                thread.join(_LOOK_S)
        for thread, loop in zip(threads, loops, strict=True):
            if thread.is_alive():
                log.warning("a task runs after the grace: it is given back")
                loop.abandon()
        if failures:
            raise failures[0]

    async def _run_async(self, keeper: LeaseKeeper) -> None:
        client = await self._app.aio_client()
        loop = AsyncLeaseLoop(self._app, client, keeper, self._options, self._queues)
        loop.marks.add(self._marks.all())
        self._loop, self._stop_async = asyncio.get_running_loop(), loop
        try:
            if not self._stopped.is_set():
                await self._run_with_grace(loop)
        finally:
            await self._app.aio_close()

    async def _run_with_grace(self, loop: AsyncLeaseLoop) -> None:
        work = asyncio.ensure_future(loop.run())
        while not (done := work.done()) and time.monotonic() < self._kill_at:
            await asyncio.wait([work], timeout=_LOOK_S)
        if not done:
            await loop.give_back_all()
            work.cancel()
        await asyncio.gather(work, return_exceptions=not done)

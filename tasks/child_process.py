"""A worker process: ``python -m weft.tasks.child_process OPTIONS``, started by the supervisor.

The process connects to the cluster itself, pops, runs and commits. The supervisor renews the
leases, kills the process at a hard time limit, and returns the tasks of a dead process. After the
death of the supervisor the kernel ends the process (Linux), or the process ends after the
running task.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import socket
import sys
import threading
from typing import Final

import msgspec

from weft.client.transport.blocking_link import run
from weft.client.worker.signals import restore_in_forks
from weft.errors import UsageError, WeftError
from weft.ids import MessageId

from .app import App
from .app_location import AppLocation, queues_of
from .async_lease_loop import AsyncLeaseLoop
from .cancellation import Marks
from .child_channel import (
    CancelFrame,
    ChildChannel,
    CountsFrame,
    FailedFrame,
    IdleFrame,
    ReadyFrame,
    RemoteKeeper,
    StopFrame,
)
from .gangs.gang_task import gang_queues
from .heartbeat import BEAT_S
from .lease_loop import LeaseLoop
from .run_marker import RunMarker
from .running_slots import RunningSlots
from .schedule import begin_schedules
from .worker_options import WorkerOptions

log = logging.getLogger("weft.tasks")

_PR_SET_PDEATHSIG: Final = 1
#: The exit code of a process after a FailedFrame.
EXIT_FAILED: Final = 3
EXIT_IDLE: Final = 4
LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"


class ChildSetup(msgspec.Struct, frozen=True):
    """The argument of a worker process."""

    app: AppLocation
    options: WorkerOptions
    parent: int
    channel: int
    marker: int
    log_level: str


class ChildWorker:
    def __init__(self, setup: ChildSetup) -> None:
        self._setup = setup
        self._channel = ChildChannel(socket.socket(fileno=setup.channel))
        self._marker = RunMarker(setup.marker)
        self._stop_requested = threading.Event()
        self._loop: LeaseLoop | None = None
        self._async_loop: tuple[asyncio.AbstractEventLoop, AsyncLeaseLoop] | None = None
        #: Cancelled tasks. The supervisor sends the known ones first: no process begins a task
        #: whose last process was killed because the task did not react.
        self._marks = Marks()
        self._marks_came = threading.Event()

    def run(self) -> int:
        """Works until a stop; returns the exit code."""
        try:
            app = self._setup.app.load()
            app.pickle_allowed = self._setup.options.allow_pickle
            queues = queues_of(app, self._setup.options.queues)
            # Else the supervisor would not see the end of this process as long as a fork lives.
            os.register_at_fork(after_in_child=self._channel.close)
            threading.Thread(target=self._listen, name="weft-stop", daemon=True).start()
            threading.Thread(target=self._report, name="weft-counts", daemon=True).start()
            self._work(app, queues)
        except WeftError as error:
            return self._fail(error.message)
        if self._stop_requested.is_set():
            return 0
        self._channel.send(IdleFrame())
        return EXIT_IDLE

    def _work(self, app: App, queues: list[str]) -> None:
        keeper = RemoteKeeper(self._channel)
        options = self._setup.options
        if app.is_sited(queues):
            app.blocks.settle(options.site, options.spill)
        if any(task.is_async and task.queue in queues for task in app.tasks.values()):
            asyncio.run(self._work_async(app, queues))
            return
        session = app.session  # connects
        run(begin_schedules(app, session, queues))
        self._marks_came.wait()
        self._loop = LeaseLoop(app, session, keeper, options, queues, self._marker)
        self._loop.marks.add(self._marks.all())
        if self._stop_requested.is_set():
            return
        self._ready(app, queues)
        self._loop.run()

    def _ready(self, app: App, queues: list[str]) -> None:
        gangs = gang_queues(app, queues)
        self._channel.send(ReadyFrame(queues, app.name, app.is_sited(queues), gangs))

    async def _work_async(self, app: App, queues: list[str]) -> None:
        client = await app.aio_client()
        await begin_schedules(app, client._session, queues)
        keeper = RemoteKeeper(self._channel)
        options = self._setup.options
        slots = RunningSlots(self._setup.marker, options.coroutines)
        loop = AsyncLeaseLoop(app, client, keeper, options, queues, slots)
        await asyncio.to_thread(self._marks_came.wait)
        self._async_loop = (asyncio.get_running_loop(), loop)
        loop.marks.add(self._marks.all())
        if self._stop_requested.is_set():
            return
        self._ready(app, queues)
        try:
            await loop.run()
        finally:
            await client.close()

    def _fail(self, text: str) -> int:
        self._channel.send(FailedFrame(text))
        return EXIT_FAILED

    def _report(self) -> None:
        """Sends the counts as often as the supervisor writes heartbeats."""
        while not self._stop_requested.wait(BEAT_S / 2):
            loop = self._loop or (self._async_loop and self._async_loop[1])
            if loop is not None:
                try:
                    self._channel.send(CountsFrame(loop.settlement.counts))
                except OSError:
                    return  # the supervisor has ended

    def _listen(self) -> None:
        """Waits for the supervisor's stop, or its end."""
        while True:
            frames = self._channel.receive()
            if frames is None:
                log.warning("the supervisor has ended: this worker process ends, too")
            for frame in frames or ():
                if isinstance(frame, CancelFrame):
                    self._cancel([int(MessageId.parse(each)) for each in frame.numbers])
            if frames is None or any(isinstance(frame, StopFrame) for frame in frames):
                self.stop()
                return

    def _cancel(self, numbers: list[int]) -> None:
        self._marks.add(numbers)
        self._marks_came.set()
        if self._loop is not None:
            self._loop.cancel(numbers)
        if self._async_loop is not None:
            loop, work = self._async_loop
            loop.call_soon_threadsafe(work.cancel, numbers)

    def stop(self) -> None:
        self._stop_requested.set()
        self._marks_came.set()
        if self._loop is not None:
            self._loop.stop()
        if self._async_loop is not None:
            loop, work = self._async_loop
            loop.call_soon_threadsafe(work.stop)


def main(text: str) -> int:
    setup = msgspec.json.decode(text, type=ChildSetup)
    end_with(setup.parent)
    logging.basicConfig(level=setup.log_level, format=LOG_FORMAT)
    # The supervisor decides: a Ctrl-C of the terminal reaches the whole group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = ChildWorker(setup)
    signal.signal(signal.SIGTERM, lambda number, frame: child.stop())
    restore_in_forks(dict.fromkeys((signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1)))
    restore_in_forks({signal.SIGINT: signal.default_int_handler})
    try:
        return child.run()
    except (BrokenPipeError, ConnectionError):
        return EXIT_FAILED  # the supervisor has ended


def end_with(parent: int) -> None:
    """Has the kernel end the process with the parent, on every end of the parent."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise UsageError("the supervisor has ended already")


if __name__ == "__main__":
    code = main(sys.argv[1])
    # Abandoned threads of tasks must not keep the process.
    logging.shutdown()
    os._exit(code)

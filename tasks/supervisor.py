"""The supervisor of worker processes: starts, renewal of leases, replacement.

| event | the supervisor |
|---|---|
| a process holds leases | renews the leases as long as the process lives |
| a task runs past its time limit | kills the process |
| a process dies | returns the tasks, running ones as failed attempts; replaces the process |
| processes die one after the other at once | waits longer and longer before the next start |
| the code cannot be imported | ends all, with one line; with `--reload` waits for a change |
| with `--reload` a source file changes | replaces the processes after their running tasks |
| the limit of life is over | stops, as after SIGTERM |
| SIGTERM, SIGINT | stops the processes; after the grace, kills the rest and returns the tasks |

The supervisor never imports the application's code: no task can harm it.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from weft.client.lease_ticket import LeaseTicket
from weft.client.sync_client import Client
from weft.client.worker.signals import stopping
from weft.errors import UsageError, WeftError
from weft.ids import MessageId

from .app_location import AppLocation
from .call import loss_key
from .cancellation import CANCEL_GRACE_S, Marks
from .child_channel import (
    AnyFrame,
    CancelFrame,
    ChildChannel,
    CountsFrame,
    DropFrame,
    FailedFrame,
    HoldFrame,
    IdleFrame,
    ReadyFrame,
    StopFrame,
)
from .child_death import OomWatch, cause_of, ending
from .child_process import ChildSetup
from .heartbeat import TaskCounts
from .lease_keeper import LeaseKeeper, RunningTask
from .metrics_endpoint import MetricsEndpoint
from .run_marker import RunMark, RunMarker
from .running_slots import RunningSlots, size_of_marks
from .source_watch import SourceWatch
from .worker_options import WorkerOptions
from .worker_services import WorkerServices

log = logging.getLogger("weft.tasks")

#: How often the supervisor looks at time limits and dead processes.
POLL_S: Final = 0.05
#: Receipts of frames between two looks.
_RECEIVES_MAX: Final = 256
#: A shorter life means a failed start: the next process waits, up to the longest
#: pause.
YOUNG_S: Final = 5.0
RESTART_S: Final = 0.5
RESTART_S_MAX: Final = 30.0
#: The pause before the next attempt of a task with a dead process.
LOST_DELAY_MS: Final = 1_000


class WorkerChild:
    """One worker process, from the supervisor's side."""

    def __init__(self, app: AppLocation, options: WorkerOptions) -> None:
        mine, theirs = socket.socketpair()
        self.channel = ChildChannel(mine)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._file.truncate(size_of_marks(options.coroutines))
        self.marker = RunMarker(self._file.fileno())
        self.slots = RunningSlots(self._file.fileno(), options.coroutines)
        setup = ChildSetup(
            app, options, os.getpid(), theirs.fileno(), self._file.fileno(),
            logging.getLevelName(log.getEffectiveLevel()),
        )  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "weft.tasks.child_process", msgspec.json.encode(setup).decode()],
            pass_fds=(theirs.fileno(), self._file.fileno()),
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self.started = time.monotonic()
        self.held: set[int] = set()
        self.ready = False
        self.stopped = False
        self.counts = TaskCounts()
        #: Leases by nonce, for the id of the running task.
        self.tickets: dict[int, LeaseTicket] = {}
        #: The cancelled task that runs, and the time of the kill.
        self.cancelled: tuple[RunMark, float] | None = None
        #: Why the supervisor has killed the process.
        self.killed = ""
        #: When a process that stops for new code is killed.
        self.kill_at = float("inf")

    def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            self.channel.post(StopFrame())

    def running(self) -> tuple[RunMark, MessageId] | None:
        """The running task."""
        mark = self.marker.read()
        number = None if mark is None else self.id_of(RunningTask(mark.nonce, mark.place))
        return None if mark is None or number is None else (mark, number)

    def begun(self) -> list[RunningTask]:
        """The tasks that a dead process was running: one, or those of an event loop."""
        mark = self.marker.read()
        marks = self.slots.read() if mark is None else [(mark.nonce, mark.place)]
        return [RunningTask(*each) for each in marks]

    def id_of(self, task: RunningTask) -> MessageId | None:
        """The id of a task of a held lease."""
        ticket = self.tickets.get(task.nonce)
        if ticket is None:
            return None
        lent = ticket.lent
        return MessageId.of(lent.partition, lent.producer, lent.batch, task.place)

    def cancel(self, numbers: Sequence[int]) -> None:
        self.channel.post(CancelFrame([str(MessageId(number)) for number in numbers]))

    def close(self) -> None:
        self.channel.close()
        self.marker.close()
        self.slots.close()
        self._file.close()


class Supervisor:
    """Belongs to the main thread: the kernel ends a process with the starting thread."""

    def __init__(self, app: AppLocation, options: WorkerOptions, client: Client) -> None:
        self._app = app
        self._options = options
        self._client = client
        self._keeper = LeaseKeeper(client._session)
        self._marks = Marks()
        self._app_name = ""
        self._services: WorkerServices | None = None
        self._oom = OomWatch()
        #: Ends of processes by cause.
        self._deaths: dict[str, int] = {}
        life_s = options.max_life_s or float("inf")
        self._stop_at = time.monotonic() + life_s
        self._sources = SourceWatch(os.getcwd()) if options.reload else None
        #: Counts of processes that have ended.
        self._counts = TaskCounts()
        #: Cancelled tasks, from the thread of the watch.
        self._new_marks: deque[list[int]] = deque()
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, WorkerChild] = {}
        self._stopping = False
        self._kill_at = float("inf")
        self._failure = ""
        self._pause_s = RESTART_S
        self._start_at = 0.0
        #: Idle processes, ended and not replaced.
        self._idle = 0

    def run(self) -> None:
        """Works until a signal, or until all processes are idle. Raises UsageError with one line
        if the processes cannot work."""
        endpoint = MetricsEndpoint.of(self._options.metrics or None, self._metrics)
        with endpoint, stopping(self.stop):
            try:
                self._loop()
            finally:
                for child in self._children.values():
                    child.process.kill()
                for child in list(self._children.values()):
                    child.process.wait()
                    self._over(child)
                if self._services is not None:
                    self._services.close()
                self._keeper.close()
                self._selector.close()
        if self._failure:
            raise UsageError(self._failure)

    def stop(self, now: bool = False) -> None:
        """Stops the processes; with `now` without grace. Called by signal handlers, too."""
        if not self._stopping:
            if self._services is not None:
                self._services.stop_gangs()
            log.info("stopping: running tasks have %.0f s", self._options.grace_s)
            self._kill_at = time.monotonic() + self._options.grace_s
        self._stopping = True
        if now:
            self._kill_at = 0.0

    def _loop(self) -> None:
        while True:
            self._start()
            time.sleep(POLL_S)
            self._receive()
            self._take_marks()
            for child in self._children.values():
                child.channel.flush()
            now = time.monotonic()
            if now >= self._stop_at and not self._stopping:
                log.info("the limit of %.0f s of life is over", self._options.max_life_s)
                self.stop()
            self._reload(now)
            for child in list(self._children.values()):
                if child.process.poll() is not None:
                    self._over(child)
                else:
                    self._check_limits(child, now)
            if self._stopping and not self._children:
                return
            if self._idle and not self._children and self._idle >= self._options.concurrency:
                log.info("no task has come for %.0f s", self._options.max_idle_s)
                return

    def _metrics(self) -> str:
        return self._services.metrics() if self._services is not None else ""

    def _reload(self, now: float) -> None:
        """Stops the processes when sources have changed; `_start` starts others."""
        changed = self._sources.changed() if self._sources is not None else []
        if not changed or self._stopping:
            return
        log.info("reload: %s", ", ".join(changed[:5]))
        self._start_at = 0.0
        for child in self._children.values():
            child.stop()
            child.kill_at = min(child.kill_at, now + self._options.grace_s)

    def _receive(self) -> None:
        """Takes all frames. No frame is urgent, and a wake-up for each would cost a short task more
        than its run: the leases of a dead process are in frames that the kernel keeps."""
        for _ in range(_RECEIVES_MAX):
            ready = self._selector.select(0)
            for key, _ in ready:
                child = key.data
                for frame in child.channel.drain():
                    self._take(child, frame)
                if child.channel.ended:
                    self._selector.unregister(child.channel)
            if not ready:
                return

    def _look(self) -> tuple[TaskCounts, dict[str, float]]:
        """For the heartbeat's thread: counts and running tasks."""
        counts, running = self._counts, {}
        ahead = time.time() - time.monotonic()
        for child in list(self._children.values()):
            counts = counts.plus(child.counts)
            try:
                task = child.running()
            except ValueError:  # the process has ended, and the mark's memory is closed
                continue
            if task is not None:
                running[str(task[1])] = round(task[0].started + ahead, 3)
        return counts, running

    def _take_marks(self) -> None:
        while self._new_marks:
            numbers = self._new_marks.popleft()
            self._marks.add(numbers)
            for child in self._children.values():
                child.cancel(numbers)

    def _start(self) -> None:
        wanted = self._options.concurrency - self._idle
        if self._stopping or time.monotonic() < self._start_at:
            return
        while len(self._children) < wanted:
            child = WorkerChild(self._app, self._options)
            self._children[child.process.pid] = child
            self._selector.register(child.channel, selectors.EVENT_READ, child)
            child.cancel(self._marks.all())  # the process waits for this frame

    def _take(self, child: WorkerChild, frame: AnyFrame) -> None:
        if isinstance(frame, HoldFrame):
            child.held.update(ticket.nonce for ticket in frame.held)
            child.tickets.update((ticket.nonce, ticket) for ticket in frame.held)
            self._keeper.hold(frame.held)
        elif isinstance(frame, DropFrame):
            child.held.difference_update(frame.nonces)
            for nonce in frame.nonces:
                child.tickets.pop(nonce, None)
            self._keeper.drop(frame.nonces)
        elif isinstance(frame, ReadyFrame):
            child.ready = True
            if self._services is None:
                self._begin_services(frame)
            log.info("worker process %d takes %s", child.process.pid, ", ".join(frame.queues))
        elif isinstance(frame, FailedFrame):
            if self._sources is not None:
                log.error("%s: waiting for a change", frame.text)
                self._start_at = float("inf")
                return
            self._failure = self._failure or frame.text
            self.stop()
        elif isinstance(frame, CountsFrame):
            child.counts = frame.counts
        elif isinstance(frame, IdleFrame):
            self._idle += 1

    def _begin_services(self, frame: ReadyFrame) -> None:
        """The first process works: the others of the cluster may know."""
        self._app_name = frame.app
        try:
            self._services = WorkerServices(
                self._client, frame.app, self._options, frame.queues, frame.gangs, frame.sited,
                self._new_marks.append, self._look, self._deaths,
            )  # fmt: skip
        except WeftError as error:
            self._failure = self._failure or error.message
            self.stop()

    def _check_limits(self, child: WorkerChild, now: float) -> None:
        if self._stopping:
            child.stop()
            if now >= self._kill_at:
                child.killed = "the grace of the worker was over"
                child.process.kill()
            return
        if now >= child.kill_at and not child.killed:
            child.killed = "the grace before a reload was over"
            child.process.kill()
        self._check_cancelled(child, now)
        mark = None if child.killed else child.marker.read()
        if mark is not None and 0 < mark.kill_at <= now:
            again = child.marker.read()
            if again == mark:
                child.killed = f"past its time limit after {now - mark.started:.1f} s"
                log.warning("worker process %d is killed: a task is %s", child.process.pid,
                            child.killed)  # fmt: skip
                child.process.kill()

    def _check_cancelled(self, child: WorkerChild, now: float) -> None:
        """Kills a process that still runs a cancelled task after the grace."""
        running = child.running() if self._marks and not child.killed else None
        if running is None or running[1] not in self._marks:
            child.cancelled = None
        elif child.cancelled is None or child.cancelled[0] != running[0]:
            child.cancelled = (running[0], now + CANCEL_GRACE_S)
        elif now >= child.cancelled[1]:
            child.killed = f"cancelled, and has not ended within {CANCEL_GRACE_S:.0f} s"
            log.warning("worker process %d is killed: a task was %s", child.process.pid,
                        child.killed)  # fmt: skip
            child.process.kill()

    def _over(self, child: WorkerChild) -> None:
        """A process has ended: takes the last frames, and returns the leases."""
        if self._children.pop(child.process.pid, None) is None:
            return
        for frame in child.channel.drain():  # not to the end of the stream: see `ChildChannel`
            self._take(child, frame)
        try:
            self._selector.unregister(child.channel)
        except KeyError:
            pass
        self._counts = self._counts.plus(child.counts)
        code = child.process.returncode
        stopped = self._stopping or child.stopped
        cause, why = cause_of(code, child.killed, self._oom.recent)
        if child.held:
            begun = [] if stopped else child.begun()
            numbers = [number for each in begun if (number := child.id_of(each)) is not None]
            keys = [loss_key(self._app_name, number) for number in numbers]
            self._keeper.give_back(list(child.held), begun, LOST_DELAY_MS, why, keys)
        child.close()
        if stopped or self._idle or self._start_at == float("inf"):
            return
        if code != 0:  # a process that got a SIGTERM of its own ends with 0
            self._deaths[cause] = self._deaths.get(cause, 0) + 1
            log.warning("worker process %d ended with %s: %s", child.process.pid, ending(code), why)
        if time.monotonic() - child.started < YOUNG_S and not child.killed:
            self._start_at = time.monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, RESTART_S_MAX)
        else:
            self._pause_s = RESTART_S

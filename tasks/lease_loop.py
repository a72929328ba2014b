"""The loop of a worker with one task at a time: pop, run, settle.

**How much to pop.** At most the work of `BUDGET_S` by the measured time of the tasks, so no
worker hoards the tasks of others; the first pop is small. One commit then carries all
results of a lease. If the tasks take longer than the ones before, the rest is given back.

**No pause between tasks.** While tasks run and more are expected, a second thread pops the next
ones (`pop_ahead`), and a third settles the results of the last ones (`settle_thread`). A lone task
needs neither: the loop itself pops, runs and settles it.

**A long task** must not delay the others of its lease. Another thread looks ten times a second:
once a task has run for `LONG_S`, the tasks that have waited behind the long one for as long are
given back, uncounted, and the results of the tasks before are settled.

**Ownership.** The waiting tasks and the ended ones are in deques; taking one out is atomic
under the interpreter's lock, so each task is run, given back or settled by exactly one thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Final

from weft.client.consumer.lease import ClientLease
from weft.client.consumer.message import BaseMessage
from weft.client.kv_core import KvCore
from weft.client.lease_ticket import give_back, nonce_of, tickets
from weft.client.queue_core import QueueCore
from weft.client.routing.session import ClientSession, pause_s
from weft.client.transport.blocking_link import run
from weft.errors import QueueNotFound, TaskCancelled, TaskTimedOut, VersionMismatch, WeftError

from .app import App
from .call import claim_key
from .column_runner import ColumnRunner
from .execution import TaskRun, execute, failed, lost_error, prepared
from .graph_ends import links_of
from .lease_keeper import Keeper
from .pop_ahead import PopAhead
from .run_column import RunColumn, columns_of
from .run_marker import RunMarker
from .settle_thread import SettleThread
from .settlement import TaskSettlement, log_unsettled
from .sites.worker_site import placements_of
from .submission import create_queue
from .task import START, AppTask
from .task_commit import EndedPart
from .task_context import ContextSlot, slot
from .task_interrupts import Interruptible, TaskInterrupts
from .worker_options import WorkerOptions

log = logging.getLogger("weft.tasks")

#: Work of one pop at most; ended tasks are settled after so much work. With the pop ahead, a worker
#: has at most twice as much.
BUDGET_S: Final = 0.025
#: Less work than this ends before a pop ahead is answered.
AHEAD_MIN_S: Final = 0.0005
#: A pop behind a longer task begins so long before the task's expected end.
AHEAD_S: Final = 0.015
#: Unexpectedly long tasks of one pop are given back after this time.
HOARD_S: Final = 0.15
POP_FIRST: Final = 1
POP_MAX: Final = 4_096
POP_GROWTH: Final = 8
#: The run of a long task.
LONG_S: Final = 0.1
POLL_S: Final = 0.1
#: The wait of one pop: the loop notices a stop after this time.
WAIT_MS: Final = 500
WAIT_MS_OF_MANY: Final = 50
#: A claim must outlive every delivery of its task.
CLAIM_TTL_MS: Final = 30 * 24 * 3600 * 1000


async def claim(session: ClientSession, app: str, run_: TaskRun) -> bool:
    """Writes the claim of a task with once="start"; False if there was a claim before."""
    try:
        key = claim_key(app, run_.message.id)
        await KvCore(session).insert(key, b"", ttl_ms=CLAIM_TTL_MS, if_version=0)
    except VersionMismatch:
        return False
    return True


class LeaseLoop:
    def __init__(
        self,
        app: App,
        session: ClientSession,
        keeper: Keeper,
        options: WorkerOptions,
        queues: Sequence[str],
        marker: RunMarker,
    ) -> None:
        self._app = app
        self._session = session
        self._keeper = keeper
        self._options = options
        self._queues = deque(queues)
        self._marker = marker
        self.settlement = TaskSettlement(session, app.name)
        self._placements = placements_of(app, session, BaseMessage, options.site, queues)
        self.settlement.placements = list(self._placements.values())
        self._slot = ContextSlot(session.router.partitions)
        self._limit = POP_FIRST
        #: The measured time of a task; 0 before the first.
        self._mean_s = 0.0
        self._waiting: deque[BaseMessage] = deque()
        #: When the waiting messages came.
        self._came = 0.0
        self._ended: deque[TaskRun] = deque()
        #: The columns of the last leases, with their unsettled ends.
        self._columns: dict[ClientLease, RunColumn] = {}
        #: Unsettled messages of each lease, and the lock of the counts.
        self._left: Counter[int] = Counter()
        self._counting = threading.Lock()
        self._settling = threading.Lock()
        self._ahead = PopAhead(lambda: self._pop(waits=False))
        self._settler = SettleThread(self.settle)
        self._interrupts = TaskInterrupts()
        #: Cancelled tasks.
        self.marks = self._interrupts.marks
        self._stopping = threading.Event()
        self._runner = ColumnRunner(
            self._waiting, self._ended, self._slot, marker, self._interrupts, self._stopping
        )
        self.idle_since = time.monotonic()

    @property
    def current(self) -> tuple[Interruptible, float] | None:
        """The running task with its start, by the monotonic clock."""
        return self._interrupts.current

    def stop(self) -> None:
        """Ends the loop after the running task; waiting tasks are given back."""
        self._stopping.set()

    def cancel(self, numbers: Sequence[int]) -> None:
        """Cancels tasks: the running one is interrupted, others end when their turn comes."""
        self._interrupts.cancel(numbers)

    def run(self) -> None:
        """Runs until `stop`, or until the worker has been idle for its limit."""
        self._interrupts.begin()
        token = slot.set(self._slot)
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(over,), name="weft-tasks", daemon=True)
        watch.start()
        failures = 0
        try:
            while not self._stopping.is_set():
                try:
                    messages = self._ahead.take() or self._pop()
                    failures = 0
                except WeftError as error:
                    log.warning("the worker waits for its queues: %s", error.message)
                    if not error.retriable and not isinstance(error, QueueNotFound):
                        raise
                    self._stopping.wait(pause_s(failures))
                    failures += 1
                    continue
                if messages:
                    self._work(messages)
                    self.idle_since = time.monotonic()
                elif 0 < self._options.max_idle_s < time.monotonic() - self.idle_since:
                    return
        finally:
            self._return(self._ahead.close())
            self._settler.close()
            self.settle()
            over.set()
            watch.join()
            slot.reset(token)

    # --- one batch ---

    def _pop(self, *, waits: bool = True) -> list[BaseMessage]:
        """Pops from the queues in turn; waits at one queue only if all are empty.

        The leases are renewed from here on.
        """
        several = len(self._queues) > 1
        messages: list[BaseMessage] = []
        for _ in range(len(self._queues) if several or not waits else 0):
            messages = self._pop_from(self._queues[0], 0)
            self._queues.rotate(-1)
            if messages:
                break
        if waits and not messages:
            messages = self._pop_from(self._queues[0], WAIT_MS_OF_MANY if several else WAIT_MS)
            self._queues.rotate(-1)
        if messages:
            held = tickets(messages)
            self._keeper.hold(held)
            with self._counting:
                if len(held) == 1:
                    self._left[held[0].nonce] += len(messages)
                else:
                    self._left.update(map(nonce_of, messages))
        return messages

    def _pop_from(self, queue: str, wait_ms: int) -> list[BaseMessage]:
        placement = self._placements.get(queue)
        core = QueueCore(self._session, queue, BaseMessage)
        try:
            if placement is not None:
                return run(placement.pop(self._limit, wait_ms))
            return run(core.pop_many(self._limit, wait_ms=wait_ms))
        except QueueNotFound:
            run(create_queue(self._session, queue))
            return []

    def _work(self, messages: list[BaseMessage]) -> None:
        self._columns.update(columns := self._new_columns(messages))
        waiting, ended, tasks = self._waiting, self._ended, self._app.tasks
        began = settled = self._came = time.monotonic()
        waiting.extend(messages)
        more = self._plan_ahead(len(messages), began)
        count = 0
        while not self._stopping.is_set():
            try:
                message = waiting.popleft()
            except IndexError:
                break
            now = time.monotonic()
            if now - began > HOARD_S:
                # The tasks are longer than the last ones: other workers may run the rest.
                waiting.appendleft(message)
                break
            if now - settled > BUDGET_S:
                self._settle_soon()
                settled = now
            column = columns.get(message._lease)
            if column is not None and not column.has_cancelled(self.marks):
                until = min(began + HOARD_S, settled + BUDGET_S)
                count += self._runner.run(column, message, until)
                continue
            one = prepared(message, tasks)
            if self.marks and message.id in self.marks:
                one.cancel()
            if one.ready:
                self._run_one(one, now)
                count += 1
            ended.append(one)
        self._marker.end()
        took_s = time.monotonic() - began
        self._size(count, took_s)
        self.settlement.busy_s += took_s
        if more:
            self._settle_soon()
        else:
            self.settle()
        self._give_back()

    def _new_columns(self, messages: list[BaseMessage]) -> dict[ClientLease, RunColumn]:
        """Columns need the main thread: elsewhere an interrupt takes a lock for each task."""
        return columns_of(messages, self._app.tasks) if self._interrupts.main else {}

    def _plan_ahead(self, count: int, now: float) -> bool:
        """Plans the next pop and returns True, if there are more tasks to expect."""
        expected = count * self._mean_s
        if (count < self._limit and expected < BUDGET_S / 2) or expected < AHEAD_MIN_S:
            return False
        self._ahead.begin(now if expected <= 2 * BUDGET_S else now + expected - AHEAD_S)
        return True

    def _size(self, count: int, took_s: float) -> None:
        """Sets the next pop's limit to the budget's work."""
        most = min(POP_MAX, self._limit * POP_GROWTH)
        if count > 0:
            self._mean_s = took_s / count
            self._limit = max(1, min(most, int(BUDGET_S / max(self._mean_s, 1e-9))))

    def _run_one(self, one: TaskRun, now: float) -> None:
        task, message = one.task, one.message
        assert task is not None
        if links_of(one) is not None and not run(self.settlement.inputs.ready(one)):
            return
        if task.options.once == START and not self._claimed(one, task):
            return
        limit = task.options.time_limit
        self._marker.begin(nonce_of(message), message._index, now, now + limit if limit else 0.0)
        interrupts = self._interrupts
        interrupts.current = (one, now)
        try:
            interrupts.limit(task.options.soft_time_limit)
            execute(one, self._slot)
        except (TaskTimedOut, TaskCancelled) as error:  # while the result was encoded
            failed(one, error)
        finally:
            interrupts.current = None
            interrupts.end_limit()

    def _claimed(self, one: TaskRun, task: AppTask[Any, Any]) -> bool:
        try:
            if run(claim(self._session, self._app.name, one)):
                return True
            one.outcome = lost_error(task, 1)
        except WeftError as error:
            # The claim may have been written. The task comes again, and then counts as lost.
            log.warning("task %s was not claimed: %s", one.message.id, error.message)
            one.give_up(error)
        return False

    def _settle_soon(self) -> None:
        """Settles in the background; here, if the background is behind."""
        if not self._settler.ask():
            self.settle()

    def settle(self) -> None:
        """Settles all runs that have ended; from any thread."""
        with self._settling:
            runs: list[TaskRun] = []
            while self._ended:
                runs.append(self._ended.popleft())
            parts = [
                EndedPart(column.task, column.lease, rows)
                for column in list(self._columns.values())
                if (rows := column.take())
            ]
            if not runs and not parts:
                return
            try:
                run(self.settlement.settle(runs, parts))
            except Exception as error:
                log_unsettled(len(runs) + sum(len(part.rows) for part in parts), error)
            settled = Counter(nonce_of(one.message) for one in runs)
            for part in parts:
                settled[part.lease.lent.nonce] += len(part.rows)
            self._drop(settled)

    def _drop(self, settled: Counter[int]) -> None:
        """Counts settled messages; ends the renewal of leases without others."""
        with self._counting:
            self._left.subtract(settled)
            over = {nonce for nonce in settled if self._left[nonce] <= 0}
            for nonce in over:
                del self._left[nonce]
        if over:
            for lease in [each for each in list(self._columns) if each.lent.nonce in over]:
                self._columns.pop(lease, None)
            self._keeper.drop(list(over))

    def _give_back(self) -> None:
        """Returns the waiting tasks."""
        messages: list[BaseMessage] = []
        while True:
            try:
                messages.append(self._waiting.pop())
            except IndexError:
                break
        self._return(messages)

    def _return(self, messages: Sequence[BaseMessage]) -> None:
        by_queue: dict[str, list[BaseMessage]] = {}
        for message in messages:
            by_queue.setdefault(message.queue, []).append(message)
        for queue, some in by_queue.items():
            try:
                run(give_back(QueueCore(self._session, queue, BaseMessage), some))
            except WeftError as error:
                log.warning("%d tasks come back later: %s", len(some), error.message)
        if messages:
            self._drop(Counter(map(nonce_of, messages)))

    # --- other threads ---

    def abandon(self) -> None:
        """The grace is over: returns the running task, uncounted. Its commit changes nothing."""
        self.settle()
        self._give_back()
        self._return(self._ahead.expire(time.monotonic()))
        if (current := self.current) is not None:
            self._return([current[0].message])

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(POLL_S):
            current = self._interrupts.current
            if current is None:
                continue
            started = current[1]
            took = time.monotonic() - started
            if took >= LONG_S:
                self._limit = 1
                waited = time.monotonic() - LONG_S
                if self._came < waited:
                    self._give_back()
                self._return(self._ahead.expire(waited))
                self.settle()
            self._interrupts.check_limit(current, took)

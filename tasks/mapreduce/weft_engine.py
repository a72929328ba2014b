"""A run on Weft: the driver submits map tasks, then reduce tasks, and waits for their results.

| event | the driver |
|---|---|
| a worker dies | does nothing: the queue delivers the task again |
| a reduce task reports lost map outputs | runs these maps again, then the reduce tasks |
| a task reports a problem, or fails at each attempt | ends the run |
| the driver is killed | the next run of the same command reads the results of the map tasks |
| a worker with a part of the output is lost | runs the reduce task again (`run_transfer`) |
| results have expired, or the cluster was replaced | submits the missing tasks again |

With its own workers a run has a queue of its own, because other workers may not share its files.
The queue is deleted at the end, and by the cluster a day after a driver's death.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from weft.errors import DeadlineExceeded, JobFailed, QueueNotFound, WeftError
from weft.ids import MessageId
from weft.tasks.call import queue_name
from weft.tasks.future import Future, as_completed
from weft.tasks.heartbeat import beats_of
from weft.tasks.submission import LEASE_MS
from weft.tasks.task import AppTask

from .job_plan import JobPlan, save_outputs
from .local_workers import LocalWorkers
from .output_folder import OutputFolder, UnfinishedRun
from .run_progress import MAP, REDUCE, StageTotals
from .run_transfer import MapPlace, RunTransfer
from .stage import MapResult, ReduceResult, check_problem

if TYPE_CHECKING:
    from .job import MapReduce

#: How often the driver looks after its workers while no task ends.
POLL_S: Final = 2.0
#: Looks at an empty queue before tasks without a result are submitted again.
EMPTY_POLLS: Final = 3
#: Rounds of maps that run again: a disk that damages files again and again is replaced, not waited
#: for.
REPAIRS_MAX: Final = 5
#: The first reduce tasks are pushed one by one, so that each waiting worker takes one. Workers pop
#: as many tasks as the last ones were short, and a reduce task is longer than a map: the worker
#: that comes first would take a whole batch of reduce tasks, and the others would have none.
SINGLE_PUSHES: Final = 32
OWN_QUEUE: Final = "run-"
QUEUE_IDLE_MS: Final = 24 * 3600 * 1000
RESUME_S_MAX: Final = 20 * 3600.0


class WeftEngine:
    """Runs on Weft. `workers` are the processes of the run; 0 for the running ones of the app."""

    def __init__(self, workers: int, block_address: str | None = None) -> None:
        self._workers = workers
        #: None: the workers share the files of this process.
        self._block_address = block_address

    def run(
        self,
        job: MapReduce,
        plan: JobPlan,
        saved: tuple[str, int],
        folder: OutputFolder,
        found: UnfinishedRun | None,
        totals: StageTotals,
    ) -> list[ReduceResult]:
        queue = self.queue_of(job, found)
        if found is None or found.queue != queue or self._block_address is not None:
            found = UnfinishedRun(plan, queue)  # the server of a dead driver is gone
        with ExitStack() as ends:
            driver = JobDriver(job, plan, saved, queue, totals)
            if self._block_address is not None:
                transfer = RunTransfer(job.app, plan, self._block_address)
                driver.transfer = ends.enter_context(transfer)
            if self._workers:
                driver.create_queue()
                ends.callback(driver.delete_queue)
            folder.note(found)
            # The map tasks are stored before the workers start: both take a while.
            driver.begin_maps(folder, found)
            workers = LocalWorkers(job.app, job.location, self._workers, queue)
            driver.workers = ends.enter_context(workers)
            return driver.finish()

    def queue_of(self, job: MapReduce, found: UnfinishedRun | None) -> str:
        """The queue of the app for this run; a run that continues keeps the queue of its own."""
        if not self._workers:
            return job.map_task.options.queue
        if found is not None and found.queue.startswith(OWN_QUEUE):
            return found.queue
        return f"{OWN_QUEUE}{secrets.token_hex(6)}"


class JobDriver:
    """The tasks of one run."""

    def __init__(
        self, job: MapReduce, plan: JobPlan, saved: tuple[str, int], queue: str, totals: StageTotals
    ) -> None:
        self._job = job
        self._plan = plan
        self._saved = {"plan": saved[0], "checksum": saved[1]}
        self._totals = totals
        self._queue = queue_name(job.app.name, queue)
        self._maps = _on_queue(job.map_task, queue)
        self._reduces = _on_queue(job.reduce_task, queue)
        self.workers: LocalWorkers | None = None
        self.transfer: RunTransfer | None = None
        #: The stores of the maps' outputs, if the workers share no files.
        self._stores = [""] * len(plan.splits)
        self._checksums = [0] * len(plan.splits)
        self._pending: dict[Future, int] = {}
        self._advised = False

    def create_queue(self) -> None:
        self._job.app.client.create_queue(
            self._queue, lease_ms=LEASE_MS, expire_idle_ms=QUEUE_IDLE_MS
        )

    def delete_queue(self) -> None:
        try:
            self._job.app.client.delete_queue(self._queue)
        except WeftError:
            pass  # the cluster deletes an idle queue

    # --- maps ---

    def begin_maps(self, folder: OutputFolder, found: UnfinishedRun) -> None:
        """Submits the map tasks, or takes those of the driver before."""
        numbers = range(len(self._plan.splits))
        if found.maps and time.time() - found.submitted < RESUME_S_MAX:
            self._pending = dict(zip(self._futures(found.maps), numbers, strict=True))
            return
        self._submit_maps(numbers)
        ids = [future.id for future in self._pending]
        folder.note(UnfinishedRun(self._plan, found.queue, ids, time.time()))

    def _submit_maps(self, numbers: Sequence[int]) -> None:
        futures = self._maps.map(numbers, **self._arguments())
        self._pending = dict(zip(futures, numbers, strict=True))

    def _arguments(self) -> dict[str, Any]:
        """What all tasks of the run are given."""
        if self.transfer is None:
            return self._saved
        return {**self._saved, "origin": self.transfer.origin}

    def _futures(self, ids: Sequence[str]) -> list[Future]:
        app = self._job.app
        numbers = [MessageId.parse(each) for each in ids]
        return [
            Future(app, batch, number)
            for batch, some in app.batches(numbers, self._maps.signature.result)
            for number in some
        ]

    def _finish_maps(self, *, again: bool = False) -> None:
        total, done = len(self._checksums), 0
        if not again:
            self._totals.show(MAP, 0, total)

        def take(number: int, result: MapResult) -> None:
            nonlocal done
            check_problem(result.problem)
            if again and self._checksums[number] != result.checksum:
                raise JobFailed(
                    f"map task {number} of {self._job.name} has another output at its second run: "
                    "the functions of a job must be deterministic"
                )
            self._checksums[number] = result.checksum
            self._stores[number] = result.store
            if not again:
                done += 1
                self._totals.input_lines += result.lines
                self._totals.spilled_bytes += result.spilled
                self._totals.show(MAP, done, total)

        self._wait(take, self._submit_maps)

    # --- reduces ---

    def finish(self) -> list[ReduceResult]:
        """Waits for the maps, runs the reduce tasks; returns their results in order."""
        self._finish_maps()
        results: dict[int, ReduceResult] = {}
        total = self._plan.reducers
        self._totals.show(REDUCE, 0, total)
        missing = list(range(total))
        for round_ in range(REPAIRS_MAX + 1):
            lost: set[int] = set()

            def take(number: int, result: ReduceResult, lost: set[int] = lost) -> None:
                check_problem(result.problem)
                if result.lost:
                    lost.update(result.lost)
                    return
                if self.transfer is not None and not self.transfer.collect(result):
                    return  # the worker is lost: the task runs again
                results[number] = result
                self._totals.output_lines += result.lines
                self._totals.output_bytes += result.size
                self._totals.show(REDUCE, len(results), total)

            outputs = self._save_outputs()

            def submit(numbers: Sequence[int], outputs: dict[str, Any] = outputs) -> None:
                given = {**self._arguments(), **outputs}
                first, rest = numbers[:SINGLE_PUSHES], numbers[SINGLE_PUSHES:]
                futures = [self._reduces.submit(number, **given) for number in first]
                futures += self._reduces.map(rest, **given)
                self._pending = dict(zip(futures, numbers, strict=True))

            submit(missing)
            self._wait(take, submit)
            missing = [number for number in range(total) if number not in results]
            if not missing:
                return [results[number] for number in range(total)]
            if round_ == REPAIRS_MAX:
                break
            self._totals.repaired += len(lost)
            if lost:
                self._submit_maps(sorted(lost))
                self._finish_maps(again=True)
        raise JobFailed(
            f"{len(lost)} outputs of map tasks are lost or damaged after {REPAIRS_MAX} repairs: "
            f"check the disk of the spill folder {self._plan.spill}"
        )

    def _save_outputs(self) -> dict[str, Any]:
        """Stores what the reduce tasks must know of the maps; returns their arguments."""
        if self.transfer is not None:
            places = map(MapPlace, self._checksums, self._stores)
            return {"outputs": self.transfer.save_outputs(list(places)), "outputs_checksum": 0}
        path, checksum = save_outputs(self._plan.spill, self._checksums)
        return {"outputs": path, "outputs_checksum": checksum}

    # --- both ---

    def _wait(
        self, take: Callable[[int, Any], None], submit: Callable[[Sequence[int]], None]
    ) -> None:
        """Takes the result of each pending task."""
        quiet = 0
        while self._pending:
            before = len(self._pending)
            try:
                for future in as_completed(list(self._pending), timeout=POLL_S):
                    number = self._pending[future]
                    take(number, future.result())
                    del self._pending[future]
            except DeadlineExceeded:
                pass
            if self.workers is not None:
                self.workers.check()
            quiet = quiet + 1 if len(self._pending) == before and self._is_empty() else 0
            if quiet >= EMPTY_POLLS:
                quiet = 0
                submit(sorted(self._pending.values()))

    def _is_empty(self) -> bool:
        """True if the queue has no task, so that no pending task can get a result."""
        try:
            stats = self._job.app.client.queue(self._queue).stats()
        except QueueNotFound:
            return True
        except WeftError:
            return False
        if self.workers is not None and self.workers.pid is None and not self._advised:
            self._advised = True
            self._check_running()
        return not (stats.ready or stats.delayed or stats.leased)

    def _check_running(self) -> None:
        """Without own workers: fails if no worker of the app is alive."""
        beats = beats_of(self._job.app.client, self._job.app.name)
        if not any(self._queue in beat.queues for beat in beats):
            where, _ = self._job.location.find()
            raise JobFailed(
                f"no worker of the app {self._job.app.name} runs: start one with `weft worker "
                f"{where}`, or let the run start workers"
            )


def _on_queue(task: AppTask[..., Any], queue: str) -> AppTask[..., Any]:
    """The same task, submitted to another queue of its app."""
    return AppTask(task.app, task.name, task.function, replace(task.options, queue=queue))

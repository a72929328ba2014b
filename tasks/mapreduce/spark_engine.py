"""A run as a PySpark job: the same plan, the same functions, Spark's scheduler and shuffle.

Spark calls `map_segments` for each split, sorts the segments by reducer and map task, and calls
`write_draft` for each reducer: exactly what the tasks of Weft call. So the output is equal byte by
byte. The executors need this version of weft, the module of the job, and the folders of input and
output.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from weft.errors import JobFailed, TaskFailed, UsageError

from .job_plan import JobPlan, load_plan
from .line_flow import LineFlow
from .local_workers import WorkerLocation
from .output_folder import OutputFolder, UnfinishedRun
from .run_progress import STAGES, StageTotals
from .stage import ReduceResult, StageProblem, check_problem, map_segments, reported, write_draft

if TYPE_CHECKING:
    from .job import MapReduce

MASTER: Final = "local[*]"
_POLL_S: Final = 0.2
#: From a map task to a reducer, under the key (reducer, map task): segment, lines of the task, and
#: a problem instead of both.
_Row = tuple[tuple[int, int], tuple[bytes, int, tuple[str, str] | None]]
_Result = tuple[int, str, int, int, int, int, tuple[str, str] | None]


class SparkEngine:
    """Runs in a session: the given one, the active one, or a new one that ends with the run."""

    def __init__(self, master: str | None, session: SparkSession | None) -> None:
        self._master = master
        self._given = session

    def run(
        self,
        job: MapReduce,
        plan: JobPlan,
        saved: tuple[str, int],
        folder: OutputFolder,
        found: UnfinishedRun | None,
        totals: StageTotals,
    ) -> list[ReduceResult]:
        folder.note(UnfinishedRun(plan, ""))
        with self._session(job) as session, _watched(session, plan, totals):
            context = session.sparkContext
            count = len(plan.splits)
            try:
                rows = (
                    context.parallelize(range(count), max(1, count))
                    .flatMap(partial(map_rows, flow=job.flow, saved=saved))
                    .repartitionAndSortWithinPartitions(plan.reducers, _reducer_of)
                    .mapPartitionsWithIndex(partial(reduce_rows, flow=job.flow, saved=saved))
                    .collect()
                )
            except (Py4JJavaError, PySparkException) as error:
                raise _failure(job.name, error) from None
        return _results(rows, totals)

    @contextmanager
    def _session(self, job: MapReduce) -> Iterator[SparkSession]:
        active = SparkSession.getActiveSession()
        if active is not None and self._given is None and self._master is not None:
            raise UsageError(
                "this process has an active session of Spark: pass spark=session, or leave master "
                "out to use the active session"
            )
        if (given := self._given or active) is not None:
            yield given
            return
        _environment(job.location)
        master = self._master or MASTER
        builder = SparkSession.builder.master(master).appName(f"weft run {job.name}")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        if master.startswith("local"):
            builder = builder.config("spark.driver.host", "127.0.0.1")
            builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
        try:
            session = builder.getOrCreate()
        except (PySparkException, Py4JJavaError) as error:
            raise UsageError(
                f"Spark cannot start with master {master}: {_first_line(str(error))}. Spark needs "
                "Java 17 or later"
            ) from None
        session.sparkContext.setLogLevel("OFF")
        try:
            yield session
        finally:
            session.stop()


def map_rows(number: int, *, flow: LineFlow, saved: tuple[str, int]) -> Iterator[_Row]:
    """A map task in an executor."""

    def work() -> list[_Row]:
        plan = load_plan(*saved)
        segments, lines = map_segments(plan, flow, number)
        counted = number % plan.reducers  # the reducer that gets the number of lines
        return [
            ((reducer, number), (segment, lines if reducer == counted else 0, None))
            for reducer, segment in enumerate(segments)
            if segment or reducer == counted
        ]

    def failed(problem: StageProblem) -> list[_Row]:
        return [((0, number), (b"", 0, (problem.code, problem.text)))]

    yield from reported(work, failed, saved[0])


def reduce_rows(
    number: int, rows: Iterator[_Row], *, flow: LineFlow, saved: tuple[str, int]
) -> Iterator[_Result]:
    """A reduce task in an executor."""
    lines = spilled = 0
    problems: list[tuple[str, str]] = []

    def segments() -> Iterator[bytes]:
        nonlocal lines, spilled
        for _, (segment, count, problem) in rows:
            lines += count
            spilled += len(segment)
            if problem is not None:
                problems.append(problem)
            if segment:
                yield segment

    def work() -> ReduceResult:
        plan = load_plan(*saved)
        return write_draft(plan, number, flow.merge(segments(), plan))

    result = reported(work, lambda problem: ReduceResult(problem=problem), saved[0])
    if result.problem is not None:
        problems.append((result.problem.code, result.problem.text))
    problem = problems[0] if problems else None
    yield number, result.draft, result.lines, result.size, lines, spilled, problem


def _reducer_of(key: tuple[int, int]) -> int:
    return key[0]


def _results(rows: list[_Result], totals: StageTotals) -> list[ReduceResult]:
    results = []
    for _, draft, lines, size, input_lines, spilled, problem in sorted(rows, key=lambda r: r[0]):
        if problem is not None:
            check_problem(StageProblem(*problem))
        results.append(ReduceResult(draft, lines, size))
        totals.input_lines += input_lines
        totals.spilled_bytes += spilled
        totals.output_lines += lines
        totals.output_bytes += size
    return results


def _environment(location: WorkerLocation) -> None:
    """What Python workers of this machine inherit: this Python, and the folder of the job."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = location.folder()
    paths = [path for path in (folder, os.environ.get("PYTHONPATH", "")) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


@contextmanager
def _watched(session: SparkSession, plan: JobPlan, totals: StageTotals) -> Iterator[None]:
    """Shows the progress of Spark's stages, from a thread."""
    over = threading.Event()
    tasks = dict(zip(STAGES, (len(plan.splits), plan.reducers), strict=True))
    tracker = session.sparkContext.statusTracker()

    def watch() -> None:
        seen: list[int] = []
        while not over.wait(_POLL_S):
            for stage in sorted(tracker.getActiveStageIds()):
                info = tracker.getStageInfo(stage)
                if stage not in seen:
                    seen.append(stage)
                if info is not None and seen.index(stage) < len(STAGES):
                    name = STAGES[seen.index(stage)]
                    totals.show(name, info.numCompletedTasks, tasks[name])

    thread = threading.Thread(target=watch, name="weft-spark-progress", daemon=True)
    thread.start()
    try:
        yield
        for name, count in tasks.items():
            totals.show(name, count, count)
    finally:
        over.set()
        thread.join()


_RAISED: Final = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Exit|Interrupt))\b:?\s*(.*)$")


def _failure(job: str, error: Exception) -> TaskFailed | JobFailed:
    """The exception of a function in an executor, or of Spark."""
    text = str(error)
    start = text.find("Traceback (most recent call last)")
    if start < 0:
        return JobFailed(f"Spark has ended the run: {_first_line(text)}")
    trace: list[str] = []
    name = what = ""
    for line in text[start:].splitlines():
        if line.startswith(("\tat ", "Driver stacktrace")):
            break
        trace.append(line)
        if found := _RAISED.match(line):
            name, what = found[1], found[2]
    return TaskFailed(
        f"a task of {job} failed in Spark: {name}: {what}", error=name, text=what,
        trace="\n".join(trace),
    )  # fmt: skip


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")

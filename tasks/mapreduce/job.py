"""A map-reduce job: its functions, its tasks, and its runs on Weft or on Spark."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

import msgspec

from weft.client import arguments
from weft.client.cli import extras
from weft.client.worker.retry_policy import expo
from weft.errors import InvalidArgument, JobFailed, WeftError
from weft.tasks.app import App
from weft.tasks.task import AppTask

from .byte_size import parse_size
from .input_split import InputChanged, check_unchanged, list_input, splits_of
from .job_plan import JobPlan, load_outputs, load_plan, range_bounds, save_plan
from .line_flow import LineFlow
from .local_workers import WorkerLocation
from .output_folder import OutputFolder, check_apart
from .pair_flow import MapFunction, PairFlow, ReduceFunction
from .run_progress import ProgressFunction, StageTotals, shown
from .run_transfer import RunOrigin, run_far_map, run_far_reduce
from .stage import MapResult, ReduceResult, reported, run_map, run_reduce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WEFT, SPARK = "weft", "spark"
ENGINES: Final = (WEFT, SPARK)
PARTITION_BYTES: Final = 4 << 20
PARTITION_BYTES_MIN: Final = 1 << 10
#: A partition is in the memory of its worker, several times.
PARTITION_BYTES_MAX: Final = 1 << 30
#: Input of one reducer by default, and the most reducers by default and at all.
REDUCER_BYTES: Final = 8 << 20
REDUCERS: Final = 256
REDUCERS_MAX: Final = 10_000
ATTEMPTS: Final = 4
#: How long results are kept: a killed run continues as long as they are.
RESULT_TTL_S: Final = 24 * 3600.0
NAME_MAX: Final = 100
WORKERS_MAX: Final = 1_000

#: Runs the tasks of a plan; returns the results of the reduce tasks in order.
RunFunction = Callable[..., list[ReduceResult]]


class RunOptions(TypedDict, total=False):
    """The options of a run."""

    #: Bytes of one map task's input, a number or a text such as "1M".
    partition_bytes: int | str
    #: Output files; by default one for each 8 MiB of input.
    reducers: int | None
    #: "weft" or "spark": a PySpark job makes the same output.
    engine: str
    #: Worker processes that the run starts on this machine, by default one for each core; 0: the
    #: workers of the app that run already.
    workers: int | None
    #: Spark's master, by default `local[*]`, or a session that exists.
    master: str | None
    spark: SparkSession | None
    #: A folder for files between map and reduce tasks, by default a part of the output folder. All
    #: workers must share input, output and spill folder.
    spill: str | os.PathLike[str] | None
    #: The workers share no files with this process: input, output and all between travel over
    #: block servers. Here the server of this process has the address `block_address`, HOST or
    #: HOST:PORT, by default the one on the way to the cluster.
    transfer: bool
    block_address: str
    #: Replaces the output of an earlier run, when the new one is complete.
    overwrite: bool
    #: True for progress bars on standard error, or a function of stage, ended tasks and tasks.
    progress: bool | ProgressFunction


@dataclass(frozen=True)
class RunSettings:
    """The options, checked."""

    partition_bytes: int | str = PARTITION_BYTES
    reducers: int | None = None
    engine: str = WEFT
    workers: int | None = None
    master: str | None = None
    spark: SparkSession | None = None
    spill: str | os.PathLike[str] | None = None
    transfer: bool = False
    block_address: str = ""
    overwrite: bool = False
    progress: bool | ProgressFunction = False

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise InvalidArgument(
                f"engine must be one of {', '.join(ENGINES)}, not {self.engine!r}"
            )
        _ = self.size
        if self.reducers is not None:
            arguments.check_integer("reducers", self.reducers, 1, REDUCERS_MAX)
        arguments.check_flag("overwrite", self.overwrite)
        arguments.check_flag("transfer", self.transfer)
        if self.engine == SPARK and self.transfer:
            raise InvalidArgument("transfer is for the engine weft: Spark moves the data itself")
        if self.workers is not None:
            arguments.check_integer("workers", self.workers, 0, WORKERS_MAX)
            if self.engine == SPARK:
                raise InvalidArgument("workers is for the engine weft: Spark has its executors")
        if self.engine == WEFT and (self.master is not None or self.spark is not None):
            raise InvalidArgument("master and spark are for the engine spark")

    @property
    def size(self) -> int:
        """The partition size in bytes."""
        return parse_size(
            "partition_bytes", self.partition_bytes, PARTITION_BYTES_MIN, PARTITION_BYTES_MAX
        )


class RunSummary(msgspec.Struct, frozen=True):
    """A finished run."""

    job: str
    engine: str
    output: str
    input_bytes: int
    input_lines: int
    partitions: int
    reducers: int
    #: Bytes between the map and the reduce tasks.
    spilled_bytes: int
    output_bytes: int
    output_lines: int
    #: Map tasks that ran again because their output was lost or damaged.
    repaired: int
    #: The run continued one whose driver was killed.
    resumed: bool
    seconds: float


class MapReduce:
    """A map-reduce job over the lines of files, with functions of yours.

    app = weft.tasks.App("counts")

    def lengths(line: bytes):
        yield len(line), 1

    def total(key, values):
        return sum(values)

    job = MapReduce(app, "lengths", map=lengths, reduce=total, combine=total)
    job.run("in", "out", partition_bytes="1M", workers=4)

    `map` gets a line without its newline and yields pairs. Keys are bytes, str or int, of one type;
    values are whatever msgpack carries. `reduce` gets a key and the list of its values, and returns
    the value of the output, or None to leave the key out. `combine` returns one value for some
    values of a key, and may run any number of times. All functions must be deterministic, because
    a task may run again. Define app and job at the level of a module: workers import it.

    The job registers two tasks on the app, `NAME.map` and `NAME.reduce`. Raises InvalidArgument.
    """

    def __init__(
        self,
        app: App,
        name: str,
        *,
        map: MapFunction,
        reduce: ReduceFunction,
        combine: ReduceFunction | None = None,
    ) -> None:
        arguments.check_function("map", map)
        arguments.check_function("reduce", reduce)
        if combine is not None:
            arguments.check_function("combine", combine)
        self._set(app, name, PairFlow(map, reduce, combine), sys._getframe(1).f_globals)

    def _set(self, app: App, name: str, flow: LineFlow, module: Mapping[str, Any]) -> None:
        arguments.check_text("name", name, 1, NAME_MAX)
        self.app = app
        self.name = name
        self.flow = flow
        self.location = WorkerLocation(app, str(module["__name__"]))
        options: dict[str, Any] = {
            "attempts": ATTEMPTS, "backoff": expo(0.2, 5), "result_ttl": RESULT_TTL_S,
        }  # fmt: skip

        app.reads_blocks = True

        def map_task(
            number: int, plan: str, checksum: int, origin: RunOrigin | None = None
        ) -> MapResult:
            return reported(
                lambda: (
                    run_map(load_plan(plan, checksum), flow, number)
                    if origin is None
                    else run_far_map(app, flow, number, origin)
                ),
                lambda problem: MapResult(problem=problem),
                plan if origin is None else app.blocks.store.folder,
            )

        def reduce_task(
            number: int,
            plan: str,
            checksum: int,
            outputs: str,
            outputs_checksum: int,
            origin: RunOrigin | None = None,
        ) -> ReduceResult:
            return reported(
                lambda: (
                    run_reduce(
                        load_plan(plan, checksum),
                        flow,
                        number,
                        load_outputs(outputs, outputs_checksum),
                    )
                    if origin is None
                    else run_far_reduce(app, flow, number, outputs, origin)
                ),
                lambda problem: ReduceResult(problem=problem),
                plan if origin is None else app.blocks.store.folder,
            )

        self.map_task: AppTask[..., Any] = app.task(name=f"{name}.map", **options)(map_task)
        self.reduce_task: AppTask[..., Any] = app.task(name=f"{name}.reduce", **options)(
            reduce_task
        )

    def __repr__(self) -> str:
        return f"<MapReduce {self.name} of {self.app.name}>"

    def run(
        self,
        source: str | os.PathLike[str],
        output: str | os.PathLike[str],
        **options: Unpack[RunOptions],
    ) -> RunSummary:
        """Runs the job over a folder or a file; returns when the output is complete.

            job.run("in", "out", partition_bytes="1M", workers=4)

        The output is files `part-NNNNN` and, when complete, `_SUCCESS`. `RunOptions` has the
        options. A run whose driver was killed continues when the same run is started again.

        Raises InvalidArgument for a missing input, an output that exists and for values out of
        range, TaskFailed if a function fails at each attempt, JobFailed for a full disk and an
        input that changes, MissingExtra, and the errors of a client.
        """
        return self._run(source, output, {}, options)

    def _run(
        self, source: Any, output: Any, params: dict[str, str], options: RunOptions
    ) -> RunSummary:
        began = time.monotonic()
        settings = RunSettings(**options)
        source, output = os.path.abspath(source), os.path.abspath(output)
        files = list_input(source)
        check_apart(source, output)
        total = sum(file.size for file in files)
        splits = splits_of(files, settings.size)
        reducers = settings.reducers
        if reducers is None:
            reducers = max(1, min(REDUCERS, -(-total // REDUCER_BYTES), len(splits)))
        bounds = range_bounds(files, reducers) if self.flow.ranges else []
        run_on = self._engine(settings)
        with OutputFolder(output, settings.overwrite) as folder:
            plan = JobPlan(
                self.name, params, files, settings.size, splits, reducers, bounds,
                _spill_folder(settings.spill, folder), folder.drafts,
            )  # fmt: skip
            totals, resumed = self._execute(folder, plan, run_on, settings.progress)
        return RunSummary(
            self.name, settings.engine, output, total, totals.input_lines, len(splits), reducers,
            totals.spilled_bytes, totals.output_bytes, totals.output_lines, totals.repaired,
            resumed, round(time.monotonic() - began, 3),
        )  # fmt: skip

    def _execute(
        self,
        folder: OutputFolder,
        plan: JobPlan,
        run_on: RunFunction,
        progress: bool | ProgressFunction,
    ) -> tuple[StageTotals, bool]:
        found = folder.unfinished()
        if found is not None and not found.plan.same_work(plan):
            folder.refuse_other(found)
            _remove_spill(found.plan.spill, folder)
            found = None
        if found is None:
            folder.clear_work()
        totals = StageTotals()
        try:
            _make_spill(plan.spill)
            with shown(progress, totals):
                results = run_on(self, plan, save_plan(plan), folder, found, totals)
            try:
                check_unchanged(plan.files)
            except InputChanged as error:
                raise JobFailed(f"the input has changed during the run: {error}") from None
            folder.commit([each.draft for each in results])
        except BaseException as error:
            if not (isinstance(error, WeftError) and error.retriable):
                shutil.rmtree(plan.spill, ignore_errors=True)
                folder.abandon()
            raise  # when the cluster is back, the same run continues
        shutil.rmtree(plan.spill, ignore_errors=True)
        return totals, found is not None

    def _engine(self, settings: RunSettings) -> RunFunction:
        if settings.engine == SPARK:
            engine = extras.load(f"{__package__}.spark_engine")
            run: RunFunction = engine.SparkEngine(settings.master, settings.spark).run
            return run
        from .weft_engine import WeftEngine

        _ = self.app.client  # no folder is made if there is no cluster
        workers = settings.workers
        count = os.cpu_count() or 1 if workers is None else workers
        return WeftEngine(count, settings.block_address if settings.transfer else None).run


class FlowJob(MapReduce):
    """A job that works on blocks of lines instead of pairs."""

    def __init__(self, app: App, name: str, flow: LineFlow) -> None:
        self._set(app, name, flow, sys._getframe(1).f_globals)


def _spill_folder(spill: Any, folder: OutputFolder) -> str:
    """The folder of this run: the same at each run of the same output."""
    if spill is None:
        return os.path.join(folder.work, "spill")
    return os.path.join(os.path.abspath(spill), _spill_name(folder))


def _spill_name(folder: OutputFolder) -> str:
    """Another name for each output: the end of a run removes the folder."""
    readable = re.sub(r"[^A-Za-z0-9._-]", "_", folder.path.strip(os.sep))[-60:]
    return f"weft-{readable}-{hashlib.sha256(os.fsencode(folder.path)).hexdigest()[:16]}"


def _remove_spill(path: str, folder: OutputFolder) -> None:
    """Removes the spill folder that the notes in an output name, if it is one: anyone may have
    written these notes."""
    if os.path.basename(path) == _spill_name(folder):
        shutil.rmtree(path, ignore_errors=True)


def _make_spill(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise InvalidArgument(f"the spill folder {path} cannot be made: {error.strerror}") from None

"""Map-reduce on Weft and on Spark, on the same input, in one run.

    python -m bench.mapreduce [--jobs sort,wordcount,grep,null,latency] [--sizes 100K,1M,10M]
        [--bytes 48M] [--rounds 3] [--json FILE] [--plot FILE] [--null-plot FILE]

The input is files of the partition size. Three programs do each job and write its output:

- Weft: `mapreduce.*.run` with two worker processes that run already, on one node that syncs each
  write to disk (the default). The output is synced as well.
- Spark, forced: a DataFrame query on local[2] with the same granularity: `maxPartitionBytes` is the
  partition size, `openCostInBytes` is 0, and there are as many shuffle partitions as Weft has
  reducers. JVM code only, no Python in the tasks.
- Spark, as used: the same query with Spark's defaults, which pack small files.

Spark's session runs and is warm, as are Weft's workers. Spark does not sync its output. Each round
runs the three in turn; the medians are compared. `null` is the rate of empty tasks, 4,000 at once,
and `latency` the time of one empty task from its submission to its result, one after the other; on
Spark both run in the JVM alone. Results are added to the file of --json; --plot draws all of that
file, like figures 59, 61 and 63 of paper 4, and --null-plot like figures 52 to 54.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft import tasks
from weft.tasks import mapreduce
from weft.tasks.mapreduce.byte_size import parse_size
from weft.tasks.mapreduce.input_split import list_input
from weft.tasks.testing import worker_process
from weft.testing import cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT: Final = Path(__file__).resolve().parents[1]
CORES: Final = 2
NULLS: Final = 4_000
#: Only about one line in 60 has this text: grep is a scan.
PATTERN: Final = "qz"
WEFT, FORCED, USED = "Weft", "Spark, same partitions", "Spark, as used"
PROGRAMS: Final = (WEFT, FORCED, USED)
JOBS: Final = ("sort", "wordcount", "grep", "null", "latency")
NULL, LATENCY = "null", "latency"
#: Empty tasks of one round of `latency`.
SINGLE: Final = 100
NULL_WANTED: Final = 10.0
WANTED: Final = 3.0
WANTED_BYTES_MAX: Final = 1 << 20
#: Results: job -> partition size -> program -> seconds; the bytes of the input are in the size.
Times = dict[str, dict[str, dict[str, list[float]]]]
#: The key of the input's bytes, beside the programs.
BYTES: Final = "bytes"

#: The app of empty tasks.
app = tasks.App("bench")


@app.task
def nothing(number: int) -> None:
    pass


class Bench:
    def __init__(self, spark: SparkSession, folder: Path, total: int) -> None:
        self._spark = spark
        self._folder = folder
        self.total = total
        self._base: dict[str, bytes] = {}

    def input(self, job: str, partition_bytes: int) -> Path:
        """The input as files of the partition size, cut at line ends."""
        kind = "records" if job == "sort" else "text"
        where = self._folder / f"{kind}-{partition_bytes}"
        if where.exists():
            return where
        if kind not in self._base:
            made = self._folder / kind
            mapreduce.generate(kind, made, size=self.total)
            self._base[kind] = b"".join(p.read_bytes() for p in sorted(made.glob("part-*")))
        where.mkdir()
        data, start, number = self._base[kind], 0, 0
        while start < len(data):
            end = min(len(data), start + partition_bytes)
            end = data.rfind(b"\n", start, end) + 1
            (where / f"part-{number:05d}").write_bytes(data[start:end])
            start, number = end, number + 1
        return where

    def weft(self, job: str, source: Path, partition_bytes: int, out: Path) -> None:
        pattern = (PATTERN,) if job == "grep" else ()
        getattr(mapreduce, job).run(
            source, out, *pattern, partition_bytes=partition_bytes, workers=0
        )

    def spark(self, job: str, source: Path, partition_bytes: int, out: Path) -> None:
        """One query; a partition size of 0 means Spark's defaults."""
        settings = {
            "spark.sql.files.maxPartitionBytes": str(partition_bytes or 128 << 20),
            "spark.sql.files.openCostInBytes": "0" if partition_bytes else str(4 << 20),
            "spark.sql.shuffle.partitions": str(-(-self.total // mapreduce.job.REDUCER_BYTES))
            if partition_bytes
            else "200",
        }
        for name, value in settings.items():
            self._spark.conf.set(name, value)
        frame = self._spark.read.text(str(source), lineSep="\n")
        if partition_bytes:
            count, wanted = frame.rdd.getNumPartitions(), len(list_input(str(source)))
            assert abs(count - wanted) <= 2, f"{count} partitions of {wanted} files"
        _QUERIES[job](frame).write.text(str(out))

    def null(self, program: str) -> None:
        if program == WEFT:
            tasks.gather(nothing.map(range(NULLS)), timeout=300)
        else:
            assert self._spark.range(0, NULLS, 1, NULLS).count() == NULLS

    def latencies(self, program: str) -> list[float]:
        """The time of each of some empty tasks, submitted one after the other."""
        found = []
        java = self._spark.sparkContext._jsc
        jvm: Any = self._spark._jvm
        numbers = jvm.java.util.ArrayList([0])
        for number in range(SINGLE):
            began = time.perf_counter()
            if program == WEFT:
                nothing.submit(number).result(timeout=60)
            else:
                assert java.parallelize(numbers, 1).count() == 1
            found.append(time.perf_counter() - began)
        return found

    def timed(self, job: str, program: str, partition_bytes: int) -> float:
        if job == NULL:
            began = time.perf_counter()
            self.null(program)
            return time.perf_counter() - began
        source = self.input(job, partition_bytes)
        out = self._folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        began = time.perf_counter()
        if program == WEFT:
            self.weft(job, source, partition_bytes, out)
        else:
            self.spark(job, source, partition_bytes if program == FORCED else 0, out)
        took = time.perf_counter() - began
        self._check(job, out)
        return took

    def _check(self, job: str, out: Path) -> None:
        """Each output has the right number of lines; a sort is validated as a whole."""
        paths = sorted(out.glob("part-*"))
        if job == "sort":
            kept = mapreduce.validate(out, against=self._folder / "records")
            assert kept.sorted, kept
            assert kept.complete, kept
            return
        found = sum(path.read_bytes().count(b"\n") for path in paths)
        data = self._base["text"]
        known = self._counts.get(job)
        if known is None:
            if job == "grep":
                known = sum(PATTERN.encode() in line for line in data.split(b"\n"))
            else:
                known = len(set(data.split()))
            self._counts[job] = known
        assert found == known, f"{job}: {found} lines instead of {known}"

    _counts: dict[str, int] = {}  # noqa: RUF012 - one input for the whole run


def _sort(frame: DataFrame) -> DataFrame:
    return frame.sort("value")


def _wordcount(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    words = frame.select(f.explode(f.split("value", " ")).alias("word")).where("word != ''")
    return words.groupBy("word").count().select(f.concat_ws("\t", "word", "count"))


def _grep(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return frame.where(f.col("value").contains(PATTERN))


_QUERIES: Final[dict[str, Callable[[Any], Any]]] = {
    "sort": _sort, "wordcount": _wordcount, "grep": _grep,
}  # fmt: skip


def session() -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("bench")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "4g",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def measure(asked: argparse.Namespace, times: Times) -> None:
    sizes = [(text, parse_size("sizes", text, 1 << 10, 1 << 30)) for text in asked.sizes.split(",")]
    with ExitStack() as ends:
        node = ends.enter_context(cluster(1))
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        spark = session()
        ends.callback(spark.stop)
        for each in (app, mapreduce.app):
            each.connect(node.servers)
            ends.callback(each.close)
        for name in ("weft.tasks.mapreduce:app", "bench.mapreduce:app"):
            wanted = {"bench": {NULL, LATENCY}, "weft": {*JOBS} - {NULL, LATENCY}}
            if wanted[name.partition(".")[0]] & set(asked.jobs.split(",")):
                worker = worker_process(name, node.servers, "-c", str(CORES), folder=ROOT)
                ends.enter_context(worker).logged("takes")
        bench = Bench(spark, folder, parse_size("bytes", asked.bytes, 1 << 20, 1 << 40))
        for job in asked.jobs.split(","):
            is_null = job in (NULL, LATENCY)
            rows = [("-", 0)] if is_null else sizes
            programs = [p for p in PROGRAMS if p != USED or not is_null]

            def once(job: str, program: str, size: int) -> list[float]:
                if job == LATENCY:
                    return bench.latencies(program)
                return [bench.timed(job, program, size)]

            for program in programs:  # warm-up: compilers and caches
                once(job, program, rows[-1][1])
            for text, size in rows:
                row = times.setdefault(job, {}).setdefault(text, {})
                row[BYTES] = [float(bench.total)]
                for _ in range(asked.rounds):
                    for program in programs:
                        row.setdefault(program, []).extend(once(job, program, size))
                show(job, text, row)
                if asked.json:  # a bench that is ended early has told what it measured
                    asked.json.write_text(json.dumps(times, indent=1) + "\n")


def show(job: str, size: str, row: dict[str, list[float]]) -> None:
    medians = {program: statistics.median(row[program]) for program in PROGRAMS if program in row}
    cells = []
    for program, took in medians.items():
        if job == LATENCY:
            tenth = statistics.quantiles(row[program], n=10)[-1]
            cells.append(f"{program} {took * 1e3:.1f} ms, 90 % within {tenth * 1e3:.1f} ms")
        elif job == NULL:
            cells.append(f"{program} {NULLS / took:,.0f}/s")
        else:
            cells.append(f"{program} {row[BYTES][0] / took / 1e6:,.1f} MB/s")
    ratio = medians[FORCED] / medians[WEFT]
    print(f"{job:<9} {size:>5}  {'  '.join(cells)}  {ratio:.1f} x", flush=True)


def plot(times: Times, path: Path) -> None:
    pyplot = _pyplot()
    jobs = [job for job in JOBS if job in times and job not in (NULL, LATENCY)]
    figure, axes = pyplot.subplots(
        1, len(jobs), figsize=(4 * len(jobs), 3.4), layout="constrained", squeeze=False
    )
    for axis, job in zip(axes[0], jobs, strict=True):
        rows = sorted(times[job].items(), key=lambda row: parse_size("size", row[0], 1, 1 << 40))
        for program, mark in zip(PROGRAMS, "os^", strict=True):
            rates = [row[BYTES][0] / statistics.median(row[program]) / 1e6 for _, row in rows]
            axis.plot([text for text, _ in rows], rates, marker=mark, label=program)
        axis.set_title(job)
        axis.set_xlabel("partition size")
        axis.set_ylim(bottom=0)
    axes[0][0].set_ylabel("MB/s")
    axes[0][0].legend(fontsize="small")
    figure.savefig(path, dpi=110)


def plot_nulls(times: Times, path: Path) -> None:
    """The distribution of the latency of an empty task, and the rate of many."""
    figure, (left, right) = _pyplot().subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    for program, name in ((WEFT, "Weft"), (FORCED, "Spark")):
        values = sorted(each * 1e3 for each in times[LATENCY]["-"][program])
        left.step(values, [(n + 1) / len(values) for n in range(len(values))], label=name)
        right.bar(name, NULLS / statistics.median(times[NULL]["-"][program]))
    left.set_xscale("log")
    left.set_xlabel("one empty task, ms")
    left.set_ylabel("share of the tasks")
    left.legend()
    right.set_yscale("log")
    right.set_ylabel("empty tasks/s")
    figure.savefig(path, dpi=110)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def main() -> int:
    asked = _arguments()
    times: Times = {}
    if asked.json and asked.json.exists():
        times = json.loads(asked.json.read_text())
    if asked.rounds:
        measure(asked, times)
    if asked.plot:
        plot(times, asked.plot)
    if asked.null_plot:
        plot_nulls(times, asked.null_plot)
    missed = [
        f"{job} {size}"
        for job, rows in times.items()
        for size, row in rows.items()
        if job not in (NULL, LATENCY)
        if parse_size("size", size, 1, 1 << 40) <= WANTED_BYTES_MAX
        if statistics.median(row[FORCED]) < WANTED * statistics.median(row[WEFT])
    ]
    print(f"below {WANTED:g} x at 1 MB and less: {', '.join(missed) or 'none'}")
    if NULL in times:
        medians = {name: statistics.median(times[NULL]["-"][name]) for name in (WEFT, FORCED)}
        ratio = medians[FORCED] / medians[WEFT]
        print(f"empty tasks: {ratio:.1f} x Spark's rate, at least {NULL_WANTED:g} x")
        missed += [NULL] if ratio < NULL_WANTED else []
    return 1 if missed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", default="sort,wordcount,grep")
    parser.add_argument("--sizes", default="100K,300K,1M,3M,10M")
    parser.add_argument("--bytes", default="48M", help="size of the input")
    parser.add_argument("--rounds", type=int, default=3, help="0: only plot what --json has")
    parser.add_argument("--json", type=Path, help="times are added to what this file has")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--null-plot", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

"""Monitoring through the queue: samples of all nodes, windowed by Spark, beside the model.

    python examples/monitor.py                        # starts two nodes, load and Spark here
    python examples/monitor.py --sweep FOLDER         # rows of `weft model sweep queue --out`

The nodes publish their figures into the queue `monitor` (`weft serve --monitor-queue`). A
structured stream reads the queue, and takes for each window of time and each node what the counters
of the queue `events` grew by. The windows are Parquet files. They are joined with a sweep of the
model of stochastic queues over the load: the model's row with the nearest number of probes for each
find names the load at which the queue runs. The plot has both.

Event time is the time of the sample, by the clock of its node. A window ends when a *later* batch
has a sample beyond the window and the watermark, so the stream runs while the nodes publish. It
must not read all samples in one batch (`availableNow`): no batch follows, and no window ends.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.window import Window

import weft
from weft.models.sweep import parse, rows_of, run_pool, summaries
from weft.models.sweep_spark import write_parquet
from weft.spark.examples.clicks import read, session
from weft.testing import Cluster, cluster

MONITOR, EVENTS = "monitor", "events"
#: Of a window, and how late a sample may be.
WINDOW_S, LATE_S = 4, 2
#: Settings of the queue, of its load and of the model.
BUFFERS, MAX_HOPS, CONSUMERS = 20, 2, 2
#: Pauses between the pushes of a producer, which alternate in phases of so many seconds.
FAST_S, SLOW_S, PHASE_S = 0.005, 0.1, 16.0
_COUNTERS: Final = ("pushed", "delivered", "probes", "empty_probes", "blocked_pops", "blocked_us")
_SAMPLE: Final = "at_ms LONG, node STRING, queue STRING, max_hops INT, ready LONG, " + ", ".join(
    f"{name} LONG" for name in _COUNTERS
)
#: Of the Parquet files: the first batches write files without a row, which tell no schema.
_WINDOW: Final = "start TIMESTAMP, node STRING, max_hops INT, samples LONG, ready DOUBLE, " + (
    ", ".join(f"{name} LONG" for name in _COUNTERS)
)
#: Only a hang takes longer.
PATIENCE_S: Final = 180.0


def windows(samples: DataFrame) -> DataFrame:
    """What each node's counters of the queue grew by in each window, once the window is over."""
    sample = f.from_json(f.col("value").cast("string"), _SAMPLE)
    parsed = samples.select(sample.alias("sample")).select("sample.*")
    timed = parsed.withColumn("at", f.timestamp_millis("at_ms")).withWatermark(
        "at", f"{LATE_S} seconds"
    )
    grown = [(f.max(name) - f.min(name)).alias(name) for name in _COUNTERS]
    return (
        timed.where(f.col("queue") == EVENTS)
        .groupBy(f.window("at", f"{WINDOW_S} seconds").alias("window"), "node", "max_hops")
        .agg(f.count("*").alias("samples"), f.avg("ready").alias("ready"), *grown)
        .select("window.start", "node", "max_hops", "samples", "ready", *_COUNTERS)
    )


def stream_windows(spark: SparkSession, servers: str, out: Path, wanted: int) -> None:
    """Runs the stream until `wanted` windows are over in which messages moved."""
    query = (
        windows(read(spark, servers, MONITOR, "windows"))
        .writeStream.format("parquet")
        .queryName("windows")
        .option("path", str(out / "windows"))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )
    try:
        until = time.monotonic() + PATIENCE_S
        while len(moved(spark, out)) < wanted:
            if query.awaitTermination(1):
                raise RuntimeError("the stream ended")
            if time.monotonic() > until:
                raise TimeoutError(f"no {wanted} windows in {PATIENCE_S:.0f} s")
    finally:
        query.stop()


def moved(spark: SparkSession, out: Path) -> list[Row]:
    """The windows of the cluster in which messages moved: probes for each find, and the wait."""
    # The stream's log of files, not the folder: a file without an entry is of a batch that failed.
    if not (out / "windows" / "_spark_metadata").exists():
        return []
    return list(per_window(stored(spark, out)).orderBy("start").collect())


def stored(spark: SparkSession, out: Path) -> DataFrame:
    return spark.read.schema(_WINDOW).parquet(str(out / "windows"))


def per_window(nodes: DataFrame) -> DataFrame:
    """The nodes of a window together, as `weft model compare` computes hops and wait."""
    summed = nodes.groupBy("start", "max_hops").agg(
        f.countDistinct("node").alias("nodes"),
        *[f.sum(name).alias(name) for name in ("ready", *_COUNTERS)],
    )
    walks = f.col("probes") - f.col("empty_probes") + f.col("blocked_pops")
    return (
        summed.withColumn("walks", walks)
        .where("walks > 0 AND delivered > 0")
        .withColumn("hops", f.col("probes") / f.col("walks"))
        .withColumn("blocked_ms", f.col("blocked_us") / 1000 / f.col("walks"))
    )


def sweep(folder: Path, nodes: int) -> Path:
    """The model of the queue over its load."""
    loads = ",".join(str(each / 10) for each in range(2, 31, 2))
    words = [f"producers={nodes}", f"load={loads}", f"buffers={BUFFERS}"]
    rows = run_pool("queue", rows_of("queue", parse("queue", [*words, f"max_hops={MAX_HOPS}"])))
    write_parquet(folder, "queue", rows, summaries("queue", rows))
    return folder


def joined(measured: DataFrame, model: DataFrame) -> DataFrame:
    """For each window the row of the sweep with the same bound of hops and the nearest hops."""
    rows = model.select("max_hops", "load", f.col("probes").alias("hops_model"), "wait")
    both = measured.join(rows, "max_hops")
    nearest = Window.partitionBy("start").orderBy(f.abs(f.col("hops") - f.col("hops_model")))
    return both.withColumn("rank", f.row_number().over(nearest)).where("rank = 1").drop("rank")


class Traffic:
    """A producer at each node and some consumers, until `close`."""

    def __init__(self, nodes: Cluster) -> None:
        self._servers = nodes.servers
        self._end = threading.Event()
        self._pool = ThreadPoolExecutor(len(self._servers) + CONSUMERS)
        self._running = [self._pool.submit(self._produce, server) for server in self._servers]
        self._running += [self._pool.submit(self._consume) for _ in range(CONSUMERS)]

    def close(self) -> None:
        self._end.set()
        for each in self._running:
            each.result()
        self._pool.shutdown()

    def _produce(self, server: str) -> None:
        with weft.connect([server]) as client:
            queue = client.queue(EVENTS)
            while not self._end.wait(_pause_s()):
                try:
                    queue.push(b"x", timeout_ms=1_000)
                except weft.QueueFull:
                    continue  # the consumers are slower

    def _consume(self) -> None:
        with weft.connect(self._servers) as client:
            while not self._end.is_set():
                message = client.queue(EVENTS).pop(wait_ms=500)
                if message is not None:
                    self._end.wait(0.01)
                    message.ack()


def _pause_s() -> float:
    """In the first half of each phase producers are faster than consumers, then slower."""
    return FAST_S if time.monotonic() % PHASE_S < PHASE_S / 2 else SLOW_S


def plot(rows: list[Row], file: Path) -> bool:
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(8, 6), sharex=True)
    seconds = [(row["start"] - rows[0]["start"]).total_seconds() for row in rows]
    above.plot(seconds, [row["hops"] for row in rows], "o-", label="measured")
    above.plot(
        seconds, [row["hops_model"] for row in rows], "x--", label="nearest row of the sweep"
    )
    above.set(ylabel="probes for each find", title="Samples of all nodes beside the model")
    above.legend()
    below.plot(seconds, [row["load"] for row in rows], "o-")
    below.set(xlabel=f"seconds since {rows[0]['start']:%H:%M:%S}", ylabel="load of that row")
    figure.savefig(file, dpi=120, bbox_inches="tight")
    return True


def report(spark: SparkSession, out: Path, model: Path) -> int:
    measured = per_window(stored(spark, out))
    both = joined(measured, spark.read.parquet(str(model / "summary"))).orderBy("start")
    both.write.parquet(str(out / "joined"))
    rows = spark.read.parquet(str(out / "joined")).orderBy("start").collect()
    print("window    nodes  delivered  probes/find  model  load")
    for row in rows:
        print(
            f"{row['start']:%H:%M:%S}  {row['nodes']:>5}  {row['delivered']:>9}  "
            f"{row['hops']:>11.3f}  {row['hops_model']:>5.3f}  {row['load']:>4.1f}"
        )
    drawn = plot(rows, out / "monitor.png")
    print(f"drawn: {out / 'monitor.png'}" if drawn else "not drawn: pip install matplotlib")
    return 0 if rows else 1


def main() -> int:
    asked = _arguments()
    out = asked.out or Path(tempfile.mkdtemp(prefix="monitor-"))
    model = asked.sweep or sweep(out / "sweep", asked.nodes)
    with ExitStack() as stack:
        print(f"starting {asked.nodes} nodes that publish into the queue {MONITOR}", flush=True)
        nodes = stack.enter_context(cluster(asked.nodes, monitor_queue=MONITOR))
        nodes.settled()
        client = stack.enter_context(weft.connect(nodes.servers))
        client.create_queue(
            EVENTS, kind="stochastic", buffers=BUFFERS, max_hops=MAX_HOPS, access="even"
        )
        spark = session(asked.master)
        stack.callback(spark.stop)
        stack.callback(Traffic(nodes).close)
        stream_windows(spark, ",".join(nodes.servers), out, asked.windows)
        return report(spark, out, model)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--master", default="local[2]", help="default local[2]")
    parser.add_argument("--nodes", type=int, default=2, help="how many to start; default 2")
    parser.add_argument("--windows", type=int, default=5, help="windows to wait for; default 5")
    parser.add_argument("--sweep", type=Path, help="folder of weft model sweep queue --out")
    parser.add_argument("--out", type=Path, help="for Parquet, the checkpoint and the plot")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

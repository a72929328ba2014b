"""Reads the samples with Spark in micro-batches, while the ranks still draw samples.

python stream.py --queue samples --samples 200000 --out convergence.png

Each task decodes messages in Arrow and returns three sums; the driver stores the sums by batch
number, so that a micro-batch repeated after a failure counts once.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from picture import draw, errors_of
from pyspark.sql import DataFrame, SparkSession

from weft.spark import register

#: Without a message for this long, the simulation is considered dead. The first micro-batch
#: includes the start of Spark's workers, which takes more than a minute on a busy machine.
IDLE_S = 300.0
SUMS = "samples LONG, total DOUBLE, squares DOUBLE"


def sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Number of samples, sum of samples and sum of squares."""
    for batch in batches:
        drawn = np.frombuffer(b"".join(batch.column("value").to_pylist()), "<f8")
        yield pa.RecordBatch.from_pydict(
            {
                "samples": pa.array([len(drawn)], pa.int64()),
                "total": pa.array([float(drawn.sum())]),
                "squares": pa.array([float((drawn**2).sum())]),
            }
        )


def session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("montecarlo").master("local[2]")
    for name, value in {
        "spark.python.daemon.module": "weft.spark.daemon",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)  # Needed in a clone; with an installed wheel Spark finds the source itself.
    return spark


def follow(spark: SparkSession, queue: str, wanted: int) -> dict[int, tuple[int, float, float]]:
    """Collects the sums of micro-batches until the given number of samples has arrived."""
    found: dict[int, tuple[int, float, float]] = {}

    def add(frame: DataFrame, number: int) -> None:
        row = frame.groupBy().sum().first()
        if row is not None and row[0]:
            found[number] = (row[0], row[1], row[2])
            print(f"batch {number}: {row[0]:,} samples", flush=True)

    events = (
        spark.readStream.format("weft")
        .option("servers", os.environ["WEFT_SERVERS"])
        .option("subscribe", queue)
        .option("subscription", "montecarlo")
        .load()
    )
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            events.mapInArrow(sums, SUMS)
            .writeStream.foreachBatch(add)
            .option("checkpointLocation", checkpoint)
            .start()
        )
        seen, since = 0, time.monotonic()
        while seen < wanted and time.monotonic() - since < IDLE_S:
            if query.awaitTermination(1):
                break
            count = sum(each[0] for each in list(found.values()))
            if count > seen:
                seen, since = count, time.monotonic()
        query.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queue", default="samples")
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--out", type=Path, default=Path("convergence.png"))
    options = parser.parse_args()
    spark = session()
    try:
        found = follow(spark, options.queue, options.samples)
    finally:
        spark.stop()
    if not found:
        raise SystemExit(f"no sample came to the queue {options.queue}: does the simulation run?")
    counts, totals, squares = np.cumsum(np.array([found[n] for n in sorted(found)]), axis=0).T
    means = totals / counts
    draw(counts, means, errors_of(counts, means, squares / counts), "Spark", options.out)


if __name__ == "__main__":
    main()

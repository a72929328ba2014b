"""A Spark driver that can be killed: `python -m tests.spark.faults.driver JOB.json`.

The driver runs two queries at once: `in-a` into the queue `out-a`, and `in-b` into Parquet. When
both have ended the driver writes the content of Parquet to a file. A failed query is reported in
its `failed` file.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.session import quick

from .faulty import FaultySource

#: What Spark says of a worker that did not start within its limit.
LATE_WORKER: Final = "Python worker failed to connect back"
#: Restarts of one query because of a late worker.
LATE_MAX: Final = 5


class Job(msgspec.Struct, kw_only=True):
    servers: str
    #: Checkpoints, Parquet and reports.
    folder: str
    trap: str
    #: Which query has the trap, "a" or "b", and where; none if empty.
    query: str = ""
    point: str = ""
    action: str = ""
    master: str = "local[2]"
    settings: dict[str, str] = {}
    per_batch: int = 1500
    #: End when all waiting messages are done; otherwise run for ever.
    available_now: bool = True


def session(job: Job) -> SparkSession:
    builder = quick(SparkSession.builder.master(job.master).appName("faults"))
    for name, value in job.settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    spark.dataSource.register(FaultySource)
    pids = f"{spark.sparkContext._gateway.proc.pid} {os.getpid()}"  # type: ignore[union-attr]
    (Path(job.trap) / "driver.new").write_text(pids)
    (Path(job.trap) / "driver.new").rename(Path(job.trap) / "driver")
    return spark


def read(spark: SparkSession, job: Job, name: str) -> DataFrame:
    options = {
        "servers": job.servers,
        "subscribe": f"in-{name}",
        "subscription": f"faults-{name}",
        "maxOffsetsPerTrigger": str(job.per_batch),
        "minPartitions": "3",
    }
    reader = spark.readStream.format("weft-faulty").options(**options)
    return reader.options(**_trap(job, name)).load()


def _trap(job: Job, name: str) -> dict[str, str]:
    if job.query != name:
        return {}
    return {"trap": job.trap, "point": job.point, "action": job.action}


def start(spark: SparkSession, job: Job, name: str) -> StreamingQuery:
    folder = Path(job.folder)
    rows = read(spark, job, name)
    if name == "a":
        # Through a shuffle: a repeated task may get its rows in another order.
        writer = rows.select("value").repartition(2).writeStream.format("weft-faulty")
        writer = writer.options(servers=job.servers, queue="out-a", **_trap(job, name))
    else:
        text = rows.selectExpr("CAST(value AS STRING) AS value", "message_id")
        writer = text.writeStream.format("parquet").option("path", str(folder / "parquet"))
    writer = writer.queryName(name)
    writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{name}"))
    if job.available_now:
        writer = writer.trigger(availableNow=True)
    return writer.start()


def failure(spark: SparkSession, job: Job, file: str, query: StreamingQuery) -> str:
    """Wait for the query's end; return its error, or an empty string."""
    name = query.name
    for restarts in range(LATE_MAX + 1):
        try:
            query.awaitTermination()
            return ""
        except StreamingQueryException as error:
            if LATE_WORKER not in str(error) or restarts == LATE_MAX:
                return str(error)
            Path(f"{file}.late-{name}").write_text(str(restarts + 1))
            query = start(spark, job, name)
    raise AssertionError("the last attempt returns")


def main(file: str) -> int:
    job = msgspec.json.decode(Path(file).read_bytes(), type=Job)
    spark = session(job)
    queries = [start(spark, job, name) for name in ("a", "b")]
    failed = 0
    for query in queries:
        if said := failure(spark, job, file, query):
            failed += 1
            Path(f"{file}.failed-{query.name}").write_text(said)
    if not failed:
        rows = spark.read.parquet(str(Path(job.folder) / "parquet")).collect()
        found = Counter(row["value"] for row in rows)
        (Path(job.folder) / "found.json").write_text(json.dumps(found))
    spark.stop()
    return 3 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""Weft's Spark source and sink compared with the fastest possible Python data source.

    python bench/spark.py [--rows 1000000] [--rounds 3] [--only source|sink] [--json FILE]

The reference source yields the same rows and columns from Arrow batches in memory; the reference
sink is an Arrow writer that only counts. The difference to these rates is the cost of Weft: the
node, the network path, and the conversion between messages and columns, all on this machine's
cores. One session runs on local[2] with one node (fsync before each answer, the default). Each
round measures all four queries in turn, and the medians of the rounds are compared. The rate of a
query is the number of rows over the time of the micro-batches that Spark reports: query start is
not included; planning, reserving and publishing are.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from weft.client.sync_client import Client  # noqa: E402
from weft.spark.arrow import Messages, Run, arrow_schema, record_batch  # noqa: E402
from weft.spark.schema import columns  # noqa: E402
from weft.testing import cluster  # noqa: E402

BODY: Final = b"x" * 128
BATCH_ROWS: Final = 10_000
PUSH: Final = 4000
TASKS: Final = 2
#: Reference query of each query in a round.
PAIRS: Final = {"source": "memory source", "sink": "counting sink"}
WANTED: Final = {"source": 0.60, "sink": 0.50}


class MemoryReader(DataSourceStreamReader):
    """Yields one Arrow batch repeatedly."""

    def __init__(self, schema: StructType, rows: int) -> None:
        self._schema = schema
        self._rows = rows

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        return {"n": self._rows}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition((end["n"] - start["n"]) // TASKS)] * TASKS

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        runs = [Run(7, 1 << 50, 1 << 30, 0, BATCH_ROWS, 0, time.time_ns() // 1_000_000)]
        messages = Messages(pa.array([BODY] * BATCH_ROWS, pa.binary()), runs)
        batch = record_batch("memory", messages, 0, arrow_schema(self._schema))
        for first in range(0, partition.value, BATCH_ROWS):
            yield batch.slice(0, min(BATCH_ROWS, partition.value - first))


class CountingWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        sum(batch.num_rows for batch in iterator)
        return WriterCommitMessage()


class MemorySource(DataSource):
    """`format("memory-arrow")`: a source of ready batches, a sink that counts."""

    @classmethod
    def name(cls) -> str:
        return "memory-arrow"

    def schema(self) -> StructType:
        return columns(include_headers=False)

    def streamReader(self, schema: StructType) -> MemoryReader:
        return MemoryReader(schema, int(self.options["rows"]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> CountingWriter:
        return CountingWriter()


class Bench:
    def __init__(self, spark: SparkSession, client: Client, servers: str, folder: Path) -> None:
        self._spark = spark
        self._client = client
        self._servers = servers
        self._folder = folder

    def queries(self) -> dict[str, Callable[[int], float]]:
        return {
            "memory source": self._memory_source,
            "source": self._source,
            "counting sink": self._counting_sink,
            "sink": self._sink,
        }

    def _memory(self, rows: int) -> DataFrame:
        return self._spark.readStream.format("memory-arrow").option("rows", rows).load()

    def _memory_source(self, rows: int) -> float:
        return self._rate(self._memory(rows).writeStream.format("noop"), rows)

    def _source(self, rows: int) -> float:
        queue = f"in-{uuid.uuid4().hex[:8]}"
        self._client.create_queue(queue)
        for first in range(0, rows, PUSH):
            self._client.queue(queue).push_many([BODY] * min(PUSH, rows - first))
        reader = self._spark.readStream.format("weft").option("servers", self._servers)
        reader = reader.option("subscribe", queue).option("subscription", "bench")
        frame = reader.option("maxOffsetsPerTrigger", rows).option("minPartitions", TASKS).load()
        rate = self._rate(frame.writeStream.format("noop"), rows)
        self._client.delete_queue(queue)
        return rate

    def _counting_sink(self, rows: int) -> float:
        return self._rate(self._values(rows).writeStream.format("memory-arrow"), rows)

    def _sink(self, rows: int) -> float:
        queue = f"out-{uuid.uuid4().hex[:8]}"
        self._client.create_queue(queue)
        writer = self._values(rows).writeStream.format("weft")
        rate = self._rate(writer.option("servers", self._servers).option("queue", queue), rows)
        found = self._client.queue(queue).stats().ready
        assert found == rows, f"{found} of {rows} rows are in the queue"
        self._client.delete_queue(queue)
        return rate

    def _values(self, rows: int) -> DataFrame:
        return self._memory(rows).select("value")

    def _rate(self, writer: DataStreamWriter, rows: int) -> float:
        checkpoint = self._folder / uuid.uuid4().hex
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        running = query.start()
        running.awaitTermination()
        spent_ms, done = 0, 0
        for progress in running.recentProgress:
            told: dict[str, Any] = json.loads(progress.json)
            if told["numInputRows"]:
                done += told["numInputRows"]
                spent_ms += told["durationMs"]["triggerExecution"]
        assert done == rows, f"{done} of {rows} rows went through"
        return rows / spent_ms * 1000


def session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.master(f"local[{TASKS}]").appName("bench")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.daemon.module": "weft.spark.daemon",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(MemorySource)
    return spark


def measured(asked: argparse.Namespace) -> dict[str, list[float]]:
    wanted = [name for pair in PAIRS.items() for name in pair if asked.only in (None, pair[0])]
    with ExitStack() as stack:
        made = stack.enter_context(cluster())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        spark = session()
        stack.callback(spark.stop)
        bench = Bench(spark, made.client(), made.servers[0], folder)
        queries = {name: run for name, run in bench.queries().items() if name in wanted}
        for run in queries.values():  # Warm-up: compilers and caches.
            run(asked.rows // 10)
        rates: dict[str, list[float]] = {}
        if asked.json and asked.json.exists():
            rates = json.loads(asked.json.read_text())
        for number in range(asked.rounds):
            fresh = {}
            for name, run in queries.items():
                fresh[name] = run(asked.rows)
                print(f"{number + 1}  {name:<15} {fresh[name]:>12,.0f} rows/s", flush=True)
            for name, rate in fresh.items():
                rates.setdefault(name, []).append(rate)
            if asked.json:
                asked.json.write_text(json.dumps(rates, indent=1) + "\n")
    return rates


def main() -> int:
    asked = _arguments()
    rates = measured(asked)
    ok = True
    for name, peer in PAIRS.items():
        if rates.get(name) and rates.get(peer):
            ours, best = statistics.median(rates[name]), statistics.median(rates[peer])
            share = ours / best
            ok = ok and share >= WANTED[name]
            print(
                f"{name}: {ours:,.0f} rows/s, {share:.0%} of the {peer}'s {best:,.0f} "
                f"(wanted: {WANTED[name]:.0%}; medians of {len(rates[name])})"
            )
    return 0 if ok else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="default 1000000")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--only", choices=sorted(PAIRS), help="only this one and its peer")
    parser.add_argument("--json", type=Path, help="rates are added to what this file has")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

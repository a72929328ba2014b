"""Whole queries in one Spark session: behaviour that needs Spark itself."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.spark.faults.faulty import FaultySource
from weft.client.sync_client import Client
from weft.spark import Lag, LagListener
from weft.testing import Cluster

pytestmark = pytest.mark.timeout(900)
COUNT = 2000


@pytest.fixture
def read(spark: SparkSession, node: Cluster, queue: str) -> Callable[..., DataFrame]:
    """A stream of this test's queue."""

    def made(kind: str = "weft", schema: str | None = None, **options: object) -> DataFrame:
        reader = spark.readStream.format(kind).option("servers", node.servers[0])
        reader = reader.option("subscribe", queue).option("subscription", "s")
        reader = reader.options(**{name: str(value) for name, value in options.items()})
        return (reader.schema(schema) if schema else reader).load()

    return made


@pytest.fixture
def out(client: Client) -> str:
    name = f"out-{uuid.uuid4().hex[:8]}"
    client.create_queue(name)
    return name


@pytest.fixture
def pushed(client: Client, queue: str) -> Counter[bytes]:
    bodies = [b"m-%05d" % number for number in range(COUNT)]
    for start in range(0, COUNT, 50):
        client.queue(queue).push_many(bodies[start : start + 50])
    return Counter(bodies)


def run(writer: DataStreamWriter, checkpoint: Path, **options: str) -> list[Any]:
    """Run to the end of the waiting messages; return the progress of the batches."""
    writer = writer.option("checkpointLocation", str(checkpoint)).options(**options)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return list(query.recentProgress)


def into(frame: DataFrame, node: Cluster, out: str, kind: str = "weft") -> DataStreamWriter:
    return frame.writeStream.format(kind).options(servers=node.servers[0], queue=out)


def drain(client: Client, queue: str) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    while popped := client.queue(queue).pop_many(5000):
        found.update(message.body for message in popped)
        client.queue(queue).ack_many(popped)
    return found


def is_clean(client: Client, *queues: str) -> bool:
    stats = [client.queue(name).stats() for name in queues]
    return not any(each.reserved or each.staged or each.ready for each in stats)


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died before writing the commit."""
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)


def test_queue_to_queue(
    read: Any, node: Cluster, client: Client, queue: str, out: str,
    pushed: Counter[bytes], tmp_path: Path,
) -> None:  # fmt: skip
    """`format("weft")` is found without registration, and every row is published once."""
    frame = read(maxOffsetsPerTrigger=COUNT // 2, minPartitions=3).select("value")
    progress = run(into(frame, node, out), tmp_path)
    assert [each.numInputRows for each in progress if each.numInputRows] == [COUNT // 2] * 2
    assert drain(client, out) == pushed
    assert is_clean(client, queue, out)


def test_a_driver_dies_before_its_commit_log(
    read: Any, node: Cluster, client: Client, queue: str, out: str,
    pushed: Counter[bytes], tmp_path: Path,
) -> None:  # fmt: skip
    """Published, and unknown to Spark: Spark repeats the batch, with another row order."""
    frame = read(maxOffsetsPerTrigger=COUNT).select("value").repartition(2)
    for _ in range(2):
        # A continuous query ends without having acked its last batch.
        query = into(frame, node, out).option("checkpointLocation", str(tmp_path)).start()
        end = time.monotonic() + 200
        while not list((tmp_path / "commits").glob("[0-9]*")):
            assert time.monotonic() < end
            assert query.exception() is None, query.exception()
            time.sleep(0.05)
        query.stop()
        forget_last_commit(tmp_path)
    run(into(frame, node, out), tmp_path)
    assert drain(client, out) == pushed
    assert is_clean(client, queue, out)


@pytest.mark.parametrize("point", ["mid-read", "mid-write"])
def test_first_attempts_fail(
    spark: SparkSession, read: Any, node: Cluster, client: Client, queue: str, out: str,
    pushed: Counter[bytes], tmp_path: Path, point: str,
) -> None:  # fmt: skip
    spark.dataSource.register(FaultySource)
    trap = {"trap": str(tmp_path), "point": point, "action": "fail"}
    frame = read("weft-faulty", maxOffsetsPerTrigger=COUNT // 2, minPartitions=2, **trap)
    writer = into(frame.select("value").repartition(2), node, out, "weft-faulty").options(**trap)
    run(writer, tmp_path / "checkpoint")
    assert (tmp_path / "sprung").exists()
    assert drain(client, out) == pushed
    assert is_clean(client, queue, out)


def test_parquet_and_a_watermark(
    spark: SparkSession, read: Any, client: Client, queue: str,
    pushed: Counter[bytes], tmp_path: Path,
) -> None:  # fmt: skip
    """Oldest first, so that no row is later than the watermark allows."""
    client.queue(queue).push(b"last")
    frame = read(maxOffsetsPerTrigger=500).withWatermark("timestamp", "0 seconds")
    counts = frame.groupBy(f.window("timestamp", "1 second")).agg(
        f.collect_list(f.col("value").cast("string")).alias("values")
    )
    writer = counts.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    progress = run(writer, tmp_path / "checkpoint")
    dropped = sum(
        operator["numRowsDroppedByWatermark"]
        for each in progress
        for operator in _json(each)["stateOperators"]
    )
    assert dropped == 0
    assert sum(each.numInputRows for each in progress) == COUNT + 1
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    found = Counter(value.encode() for row in rows for value in row["values"])
    assert found <= pushed, "the last second is still open"


def _json(progress: Any) -> dict[str, Any]:
    import json

    told: dict[str, Any] = json.loads(progress.json)
    return told


def test_lag_is_told(
    spark: SparkSession, read: Any, pushed: Counter[bytes], queue: str, tmp_path: Path
) -> None:
    told: list[Lag] = []
    listener = LagListener(told.append)
    spark.streams.addListener(listener)
    try:
        run(read(maxOffsetsPerTrigger=500).writeStream.format("noop"), tmp_path)
        end = time.monotonic() + 200  # another thread notifies listeners later
        while len(told) < 4 and time.monotonic() < end:
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(listener)
    assert [lag.messages for lag in told][:4] == [1500, 1000, 500, 0]
    assert {(lag.queue, lag.subscription) for lag in told} == {(queue, "s")}
    assert told[0].oldest_ms > 0
    assert "1,500 messages behind, the oldest" in str(told[0])


def test_fewer_columns(read: Any, pushed: Counter[bytes], tmp_path: Path) -> None:
    frame = read(schema="value BINARY, timestamp TIMESTAMP")
    assert frame.columns == ["value", "timestamp"]
    progress = run(frame.writeStream.format("noop"), tmp_path)
    assert sum(each.numInputRows for each in progress) == COUNT


def test_a_snapshot_takes_nothing(
    spark: SparkSession, node: Cluster, client: Client, queue: str, pushed: Counter[bytes]
) -> None:
    reader = spark.read.format("weft").options(servers=node.servers[0], subscribe=queue)
    rows = reader.load().select("value", "topic").collect()
    assert Counter(bytes(row["value"]) for row in rows) == pushed
    assert {row["topic"] for row in rows} == {queue}
    assert reader.option("maxMessages", "5").load().count() == 5
    assert client.queue(queue).stats().ready == COUNT


def test_a_frame_is_written(spark: SparkSession, node: Cluster, client: Client, out: str) -> None:
    frame = spark.range(1000).selectExpr("CAST(id AS STRING) AS value", "'k' AS key").repartition(3)
    writer = frame.write.format("weft").options(servers=node.servers[0], queue=out)
    writer.mode("append").save()
    assert drain(client, out) == Counter(b"%d" % number for number in range(1000))
    for _ in range(2):
        writer.options(txnAppId="job", txnVersion="3").mode("append").save()
    assert drain(client, out).total() == 1000
    with pytest.raises(AnalysisException, match="not overwritten"):
        writer.mode("overwrite").save()


def test_for_each_batch(
    read: Any, node: Cluster, client: Client, out: str, pushed: Counter[bytes], tmp_path: Path
) -> None:
    def write(frame: DataFrame, number: int) -> None:
        for _ in range(2):  # as if the first attempt had failed after its effect
            writer = frame.write.format("weft").options(servers=node.servers[0], queue=out)
            writer.options(txnAppId="each", txnVersion=str(number)).mode("append").save()

    frame = read(maxOffsetsPerTrigger=COUNT // 2).select("value")
    run(frame.writeStream.foreachBatch(write), tmp_path)
    assert drain(client, out) == pushed


def test_a_second_query_fences_the_first(
    read: Any, queue: str, pushed: Counter[bytes], tmp_path: Path
) -> None:
    writer = read().writeStream.format("noop")
    older = writer.option("checkpointLocation", str(tmp_path / "older")).start()
    older.processAllAvailable()
    run(read().writeStream.format("noop"), tmp_path / "younger")
    with pytest.raises(StreamingQueryException, match="Fenced"):
        older.awaitTermination(200)


def test_wrong_options_are_told(read: Any, spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="did you mean maxOffsetsPerTrigger"):
        read(maxOffsetPerTrigger=5)
    with pytest.raises(AnalysisException, match="a queue has no past to start from"):
        read(startingOffsets="latest")


@pytest.fixture(autouse=True)
def _no_query_is_left(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()

"""Results of tasks flow into a streaming query: `reply_to` names the queue that the query reads."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from weft import tasks
from weft.client.sync_client import Client
from weft.tasks.testing import thread_worker
from weft.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)
COUNT = 200

app = tasks.App("squares")


@app.task
def square(n: int) -> int:
    return n * n


@pytest.fixture
def worker(node: Cluster) -> Iterator[None]:
    with thread_worker(app, node.servers):
        yield


def test_results_of_tasks_are_the_rows_of_a_stream(
    spark: SparkSession, worker: None, node: Cluster, client: Client, queue: str, tmp_path: Path
) -> None:
    name = f"results_{uuid.uuid4().hex[:8]}"
    frame = spark.readStream.format("weft").option("servers", node.servers[0])
    frame = frame.option("subscribe", queue).option("subscription", "s")

    def read_all() -> list[int]:
        """Runs the query over what waits; the rows of all its runs, decoded."""
        writer = frame.load().select("value").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.option("path", str(tmp_path / name)).trigger(
            availableNow=True
        ).start().awaitTermination()
        rows = spark.read.parquet(str(tmp_path / name)).collect()
        return sorted(msgspec.msgpack.decode(bytes(row.value)) for row in rows)

    futures = square.with_options(reply_to=queue).map(range(COUNT))
    assert tasks.gather(futures, timeout=60) == [n * n for n in range(COUNT)]
    assert read_all() == [n * n for n in range(COUNT)]
    more = square.with_options(reply_to=queue).map(range(COUNT, COUNT + 10))
    tasks.gather(more, timeout=60)
    assert read_all() == [n * n for n in range(COUNT + 10)], "each result once"

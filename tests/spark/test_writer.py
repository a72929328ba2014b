"""The sinks against a real node, driven as Spark drives them, without a JVM."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructField, StructType

from weft.client.sync_client import Client
from weft.errors import InvalidArgument, QueueNotFound, UsageError
from weft.spark.batch_writer import WeftBatchWriter
from weft.spark.row_writer import Staged
from weft.spark.source import WeftDataSource
from weft.spark.stream_writer import WeftStreamWriter
from weft.testing import Cluster

VALUE = StructType([StructField("value", BinaryType())])


class Tasks:
    """Sets the identity of the current task, as for a Python worker."""

    def __init__(self) -> None:
        self.query: str | None = str(uuid.uuid4())

    def enter(self, partition: int, batch: int | None = None) -> None:
        context = TaskContext._getOrCreate()
        context._partitionId = partition
        context._localProperties = {}
        if batch is not None and self.query is not None:
            context._localProperties = {
                "sql.streaming.queryId": self.query,
                "streaming.sql.batchId": str(batch),
            }


@pytest.fixture
def tasks() -> Iterator[Tasks]:
    yield Tasks()
    TaskContext._setTaskContext(None)


def rows(*values: bytes) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch([pa.array(values, pa.binary())], names=["value"])


@pytest.fixture
def options(node: Cluster, queue: str) -> dict[str, str]:
    return {"servers": node.servers[0], "queue": queue}


def streaming(options: dict[str, str]) -> WeftStreamWriter:
    """A new writer: Spark makes another one for each step."""
    return WeftDataSource(options).streamWriter(schema=VALUE, overwrite=False)


def batch(options: dict[str, str]) -> WeftBatchWriter:
    return WeftDataSource(options).writer(schema=VALUE, overwrite=False)


def drain(client: Client, queue: str) -> list[bytes]:
    found = client.queue(queue).pop_many(1000)
    client.queue(queue).ack_many(found)
    return sorted(message.body for message in found)


def nothing_staged(client: Client, queue: str) -> bool:
    return client.queue(queue).stats().staged == 0


def test_nothing_is_seen_before_the_commit(
    options: dict[str, str], client: Client, queue: str, tasks: Tasks
) -> None:
    messages = []
    for partition in range(3):
        tasks.enter(partition, 0)
        messages.append(streaming(options).write(rows(b"%d" % partition)))
    assert client.queue(queue).stats().ready == 0
    streaming(options).commit(messages, 0)
    assert drain(client, queue) == [b"0", b"1", b"2"]
    assert nothing_staged(client, queue)


def test_only_the_winning_attempt_counts(
    options: dict[str, str], client: Client, queue: str, tasks: Tasks
) -> None:
    tasks.enter(0, 0)
    streaming(options).write(rows(b"loser"))
    winner = streaming(options).write(rows(b"winner"))
    streaming(options).write(rows(b"late loser"))
    streaming(options).commit([winner], 0)
    assert drain(client, queue) == [b"winner"]
    assert nothing_staged(client, queue)


def test_an_attempt_that_breaks_off_leaves_nothing(
    options: dict[str, str], client: Client, queue: str, tasks: Tasks
) -> None:
    def breaking() -> Iterator[pa.RecordBatch]:
        yield from rows(b"half")
        raise OSError("a disk")

    tasks.enter(0, 0)
    with pytest.raises(OSError, match="a disk"):
        streaming(options).write(breaking())
    streaming(options).abort([None], 0)
    again = streaming(options).write(rows(b"whole"))
    streaming(options).commit([again], 0)
    assert drain(client, queue) == [b"whole"]
    assert nothing_staged(client, queue)


def test_a_repeated_batch_is_written_once(
    options: dict[str, str], client: Client, queue: str, tasks: Tasks
) -> None:
    """The driver died after publishing; the next one repeats the batch."""
    tasks.enter(0, 0)
    first = streaming(options).write(rows(b"a", b"b"))
    streaming(options).commit([first], 0)
    again = streaming(options).write(rows(b"b", b"a"))
    assert isinstance(again, Staged)
    assert again.winner is None, "published: nothing is staged again"
    streaming(options).commit([again], 0)
    # A writer that staged before the other published is too late as well.
    tasks.enter(0, 1)
    late = streaming(options).write(rows(b"late"))
    quick = streaming(options).write(rows(b"quick"))
    streaming(options).commit([quick], 1)
    streaming(options).commit([late], 1)
    assert drain(client, queue) == [b"a", b"b", b"quick"]
    assert nothing_staged(client, queue)


def test_a_checkpoint_from_the_past_is_refused(
    options: dict[str, str], client: Client, queue: str, tasks: Tasks
) -> None:
    """Taking its batches for repeated ones would lose their rows."""
    for number in (0, 1):
        tasks.enter(0, number)
        streaming(options).commit([streaming(options).write(rows(b"x"))], number)
    tasks.enter(0, 0)
    with pytest.raises(UsageError, match=r"batch 1 of .* is published: the checkpoint is new"):
        streaming(options).write(rows(b"y"))
    assert drain(client, queue) == [b"x", b"x"]


def test_empty_tasks_and_batches(
    options: dict[str, str], client: Client, queue: str, tasks: Tasks
) -> None:
    tasks.enter(0, 0)
    empty = streaming(options).write(iter(()))
    streaming(options).commit([empty, streaming(options).write(rows())], 0)
    assert client.queue(queue).stats().ready == 0
    tasks.enter(0, 1)
    streaming(options).commit([empty_of(1, tasks), streaming(options).write(rows(b"x"))], 1)
    streaming(options).commit([], 2)
    assert drain(client, queue) == [b"x"]


def empty_of(number: int, tasks: Tasks) -> Staged:
    assert tasks.query is not None
    return Staged(tasks.query, number, None)


def test_a_name_of_ones_own(
    options: dict[str, str], client: Client, queue: str, tasks: Tasks
) -> None:
    named = options | {"txnAppId": "pipeline"}
    tasks.enter(0, 0)
    streaming(named).commit([streaming(named).write(rows(b"x"))], 0)
    assert client.last_published(queue, "pipeline") == 0


def test_a_spark_that_tells_nothing(options: dict[str, str], tasks: Tasks) -> None:
    tasks.enter(0)
    with pytest.raises(UsageError, match="set the option txnAppId"):
        streaming(options).write(rows(b"x"))
    with pytest.raises(UsageError, match="use delivery=at-least-once"):
        streaming(options | {"txnAppId": "a"}).write(rows(b"x"))


def test_at_least_once_is_seen_at_once(
    options: dict[str, str], client: Client, queue: str, tasks: Tasks
) -> None:
    for write in (streaming, batch):
        write(options | {"delivery": "at-least-once"}).write(rows(b"x", b"y"))
        assert drain(client, queue) == [b"x", b"y"]


def test_a_batch_write_is_all_or_nothing(
    options: dict[str, str], client: Client, queue: str, tasks: Tasks
) -> None:
    writer = batch(options)
    messages = []
    for partition in range(2):
        tasks.enter(partition)
        messages.append(writer.write(rows(b"%d" % partition)))
    assert client.queue(queue).stats().ready == 0
    writer.commit(messages)
    assert drain(client, queue) == [b"0", b"1"]
    failing = batch(options)
    failing.write(rows(b"x"))
    failing.abort([None])
    assert client.queue(queue).stats().ready == 0
    assert nothing_staged(client, queue)


def test_a_named_batch_write_is_done_once(
    options: dict[str, str], client: Client, queue: str, tasks: Tasks
) -> None:
    for version, body in ((1, b"one"), (1, b"one again"), (0, b"older"), (2, b"two")):
        writer = batch(options | {"txnAppId": "job", "txnVersion": str(version)})
        tasks.enter(0)
        writer.commit([writer.write(rows(body))])
    assert drain(client, queue) == [b"one", b"two"]


def test_what_a_queue_cannot_do(options: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match="not overwritten"):
        WeftDataSource(options).writer(schema=VALUE, overwrite=True)
    with pytest.raises(InvalidArgument, match="the column value is missing"):
        WeftDataSource(options).streamWriter(schema=StructType([]), overwrite=False)


def test_a_topic_feeds_its_queues(
    options: dict[str, str], client: Client, queue: str, tasks: Tasks
) -> None:
    topic = f"{queue}.topic"
    client.create_topic(topic)
    client.bind(topic, queue)
    del options["queue"]
    options |= {"topic": topic, "delivery": "at-least-once"}
    tasks.enter(0)
    batch(options).commit([batch(options).write(rows(b"0", b"1"))])
    assert drain(client, queue) == [b"0", b"1"]
    options |= {"topic": queue}  # the option names a queue, too
    batch(options).commit([batch(options).write(rows(b"2"))])
    assert drain(client, queue) == [b"2"]


def test_rows_are_not_staged_for_a_topic(
    options: dict[str, str], client: Client, queue: str, tasks: Tasks
) -> None:
    topic = f"{queue}.topic"
    client.create_topic(topic)
    del options["queue"]
    options["topic"] = topic
    tasks.enter(0)
    with pytest.raises(QueueNotFound, match="is a topic"):
        batch(options).write(rows(b"0"))

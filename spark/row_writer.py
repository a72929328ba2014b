"""The tasks of both sinks: stage the rows, or push them at once.

Staged rows are durable and invisible. A task that is repeated, or runs twice at once, stages under
another attempt. The driver then publishes one attempt of each partition, all together, once.
(Recognizing a repeated row by its position would be wrong: after a shuffle, a repeated task may see
its rows in another order.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from weft.client.producer.sync_topic import Topic
from weft.client.sync_queue import Queue
from weft.errors import TopicNotFound, UsageError

from .arrow import written
from .options import Write
from .task import Task


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The report of a task to the driver: the stage, if any rows were staged."""

    app: str
    batch: int
    #: Identifies this try: partition, attempt, token. None if no rows were staged.
    winner: tuple[int, int, int] | None
    messages: int = 0


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """Rows that are already in the queue: delivery is at-least-once."""

    messages: int


def push(write: Write, rows: Iterable[pa.RecordBatch]) -> StagedRows:
    target = _target(write)
    count = 0
    for batch in rows:
        if batch.num_rows:
            columns = written(batch)
            target.push_many(columns.bodies, headers=columns.headers, keys=columns.keys)
            count += batch.num_rows
    return StagedRows(count)


def _target(write: Write) -> Queue | Topic:
    """The queue or the topic; no queue has the name of a topic."""
    client = write.access.client()
    if write.by_topic:
        topic = client.topic(write.queue)
        try:
            topic.describe()
        except TopicNotFound:
            pass
        else:
            return topic
    return client.queue(write.queue)


def stage(
    write: Write, app: str, number: int, task: Task, rows: Iterator[pa.RecordBatch]
) -> Staged:
    """Stages all rows of a task under the batch `number` of `app`."""
    client = write.access.client()
    stage = None
    for batch in rows:
        if batch.num_rows:
            if stage is None:
                stage = client.stage(write.queue, app, number, task.partition, task.attempt)
            columns = written(batch)
            stage.push_many(columns.bodies, headers=columns.headers, keys=columns.keys)
    if stage is None:
        return Staged(app, number, None)
    return Staged(app, number, stage.winner, stage.close())


def skip(app: str, number: int, rows: Iterable[pa.RecordBatch]) -> Staged:
    """The batch is already published: only reads its rows, as Spark expects."""
    for _ in rows:
        pass
    return Staged(app, number, None)


def publish(write: Write, staged: Sequence[Staged]) -> None:
    """Makes the messages staged by these tasks visible: all or none, and once."""
    app, number = staged[0].app, staged[0].batch
    if any((each.app, each.batch) != (app, number) for each in staged):
        raise UsageError(f"the tasks of one batch wrote as {sorted({each.app for each in staged})}")
    winners = [each.winner for each in staged if each.winner is not None]
    if not winners:
        return
    done = write.access.client().publish(write.queue, app, number, winners)
    count = sum(each.messages for each in staged)
    if not done.already and done.messages != count:
        raise UsageError(
            f"batch {number} of {app} has {count} messages and {done.messages} were published: "
            "another process has changed the stages of the batch"
        )

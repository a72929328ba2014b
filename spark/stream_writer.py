"""`writeStream.format("weft")`: the rows of each micro-batch become messages, exactly once.

Tasks stage, the driver publishes (see `row_writer`). Batches are published under the id of the
query, which is stored in its checkpoint, and under Spark's batch numbers. A driver that dies after
the publish and before the entry in its commit log repeats the batch, and finds it published.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from weft.errors import UsageError

from .options import Write
from .row_writer import Staged, publish, push, skip, stage
from .schema import check_written
from .task import Task


class WeftStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Write, schema: StructType) -> None:
        check_written(schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        options = self._options
        if not options.exactly_once:
            return push(options, iterator)
        task = Task.here()
        app = options.app or task.query
        if app is None or task.batch is None:
            missing = "batch" if app else "query"
            raise UsageError(
                f"this version of Spark does not pass the id of the {missing} to tasks: "
                + ("use delivery=at-least-once" if app else "set the option txnAppId")
            )
        last = options.access.client().last_published(options.queue, app)
        if last is None or last < task.batch:
            return stage(options, app, task.batch, task, iterator)
        if last > task.batch:
            raise _rewound(options.queue, app, last, task.batch)
        return skip(app, task.batch, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        staged = [each for each in messages if isinstance(each, Staged)]
        if staged:
            publish(self._options, staged)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Leaves the staged messages hidden.

        The cluster drops them when the batch is repeated and published, or when they expire. A drop
        here could hit the driver that has taken over.
        """


def _rewound(queue: str, app: str, last: int, batch: int) -> UsageError:
    """Error for an older batch: Spark repeats only its last batch; skipping would lose rows."""
    return UsageError(
        f"batch {batch} cannot be written to {queue}, because batch {last} of {app} is published: "
        "the checkpoint is new, or older than the last publish. Use another txnAppId for a new "
        "checkpoint, or restore the newest checkpoint"
    )

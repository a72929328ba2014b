"""`df.write.format("weft")`: all rows become messages together, or none does.

A repeated write stores the rows twice, as with any sink, unless the write has a name and a number
(`txnAppId`, `txnVersion`): then a write with the same or a smaller number is skipped. With the
batch id as the number, `foreachBatch` writes exactly once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from weft.errors import InvalidArgument

from .options import Write
from .row_writer import Staged, publish, push, skip, stage
from .schema import check_written
from .task import Task


class WeftBatchWriter(DataSourceArrowWriter):
    def __init__(self, options: Write, schema: StructType, overwrite: bool) -> None:
        check_written(schema)
        if overwrite:
            raise InvalidArgument(
                "a queue is not overwritten: use mode append, and purge the queue if you must"
            )
        self._options = options
        # Created once, on the driver: the tasks and the commit have copies of this object.
        self._app = options.app or f"spark-{uuid.uuid4()}"
        self._number = options.version or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        options = self._options
        if not options.exactly_once:
            return push(options, iterator)
        task = Task.here()
        if options.app is not None:
            last = options.access.client().last_published(options.queue, options.app)
            if last is not None and last >= self._number:
                return skip(self._app, self._number, iterator)
        return stage(options, self._app, self._number, task, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        staged = [each for each in messages if isinstance(each, Staged)]
        if staged:
            publish(self._options, staged)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        options = self._options
        if options.exactly_once:
            options.access.client().abort(options.queue, self._app, self._number)

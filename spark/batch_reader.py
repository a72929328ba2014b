"""`spark.read.format("weft")`: a snapshot of the waiting messages, without consuming them.

A snapshot is one peek and has the limits of a peek. If a snapshot cannot show all waiting messages,
the read fails with an error, because a sum over half a queue looks like a sum. To read only the
next messages, use `maxMessages`. To consume the messages, read them as a stream with
`availableNow`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from weft import limits
from weft.client.consumer.sync_message import Message
from weft.errors import TooLarge

from .arrow import Messages, Run, arrow_schema, record_batch
from .options import BatchRead
from .schema import check_read


class WeftBatchReader(DataSourceReader):
    def __init__(self, options: BatchRead, schema: StructType) -> None:
        check_read(schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        # One partition: one answer shows one moment; several answers would show several moments.
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self._options
        queue = options.access.client().queue(options.queue)
        before = queue.stats().ready
        found = queue.peek(options.messages or limits.POP_COUNT_MAX)
        # Other clients push and pop meanwhile: the result must have the messages present before and
        # after.
        waiting = min(before, queue.stats().ready)
        if len(found) < min(waiting, options.messages or waiting):
            raise TooLarge(
                f"{waiting} messages of {options.queue} wait, and a snapshot has at most "
                f"{len(found)} of them: set the option maxMessages={len(found)} to read that many, "
                "or read all of them as a stream with trigger(availableNow=True)"
            )
        if found:
            yield record_batch(options.queue, _columns(found), 0, arrow_schema(self._schema))


def _columns(found: list[Message]) -> Messages:
    return Messages(
        pa.array([message.body for message in found], pa.binary()),
        list(_runs(found)),
        [message.headers for message in found],
        [message.key for message in found],
    )


def _runs(found: list[Message]) -> Iterator[Run]:
    start = 0
    for end in range(1, len(found) + 1):
        first, last = found[start], found[end - 1]
        if end < len(found) and found[end].id == last.id + 1:  # the index is an id's lowest part
            continue
        place = first.id
        yield Run(
            place.partition, place.producer, place.batch, place.index, end - start,
            first.deliveries, round(first.pushed_at * 1000),
        )  # fmt: skip
        start = end

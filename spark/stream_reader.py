"""`readStream.format("weft")`: micro-batches of numbered reservations.

Spark requires that once its checkpoint names a batch, every read of the batch returns the same rows
until the batch is committed: from any executor, after any restart, at any time. So a batch is one
or a few reservations of a subscription, which last until they are acked. The offset is the last
number.

- A driver that died before it wrote its checkpoint asks for the same number again, and gets the
  existing reservation.
- `latestOffset(start)` acks `start`: when Spark asks for the next batch, the previous batch is in
  its commit log. (`commit` alone is not enough: Spark never calls it for the last batch.)
- Opening the subscription raises its epoch, so a replaced driver that still runs is fenced.

On the driver one reader lives as long as its query runs; each task has a copy that only reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from weft.errors import Unavailable

from .arrow import arrow_schema
from .driver import Driver
from .input_partitions import Share, shares
from .offset import Offset
from .options import StreamRead
from .partition_reader import read_share
from .schema import check_read


class WeftStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: StreamRead, schema: StructType) -> None:
        check_read(schema)
        self._options = options
        self._schema = schema
        self._driver: Driver | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_driver": None}

    # --- on the driver --------------------------------------------------------------------

    @property
    def driver(self) -> Driver:
        """The subscription, opened by Spark's first request."""
        if self._driver is None:
            self._driver = Driver(self._options)
        return self._driver

    def initialOffset(self) -> dict[str, int]:
        return Offset(self.driver.acked_through).json()

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark accepts one limit; the other applies as well, see latestOffset.
        if self._options.by_bytes and not self._options.by_messages:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadMaxRows(self._options.messages_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        end = self.driver.advance(Offset.parse(start), isinstance(limit, ReadAllAvailable))
        return start if end is None else end.json()

    def prepareForTriggerAvailableNow(self) -> None:
        self.driver.only_what_waits()

    def reportLatestOffset(self) -> dict[str, int | str] | None:
        """Reports the backlog, because Python sources have no metrics of their own; see `lag`."""
        try:
            stats = self.driver.subscription.stats()
        except Unavailable:  # no reason to stop a query
            return None
        return {
            "r": stats.reserved_through,
            "queue": stats.queue,
            "subscription": stats.subscription,
            "backlog": stats.backlog_messages,
            "backlogBytes": stats.backlog_bytes,
            "oldestMs": stats.oldest_ms,
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        numbers = Offset.parse(end).numbers(Offset.parse(start))
        return shares(self.driver.reservations(numbers), self._options.partitions_min)

    def commit(self, end: dict[str, Any]) -> None:
        self.driver.ack(Offset.parse(end))

    # --- in a task ------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share), "made by partitions()"
        options = self._options
        subscription = options.access.client().subscription(options.queue, options.subscription)
        return read_share(subscription, options.queue, partition, arrow_schema(self._schema))

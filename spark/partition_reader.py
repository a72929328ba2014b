"""Reads the share of a task: slice after slice, as Arrow batches of a size that suits Spark.

A slice holds the messages of a reservation on one partition of the cluster, often only a few; one
Arrow batch combines several slices. Reading changes nothing, so a task may run again, or twice at
once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from weft import limits
from weft.errors import ReservationLost

from .arrow import Messages, Run, record_batch
from .input_partitions import Piece, Share
from .payload import even_bodies

if TYPE_CHECKING:
    from weft.client.pipeline.reservation import ReservedBatch
    from weft.client.pipeline.sync_subscription import Subscription

#: Rows or bytes that complete an Arrow batch: then Spark's cost per batch is small compared to the
#: cost of its rows, and the task's memory stays small too.
ROWS: Final = 16_384
BYTES: Final = 8 * limits.MIB


class Gathered:
    """Consecutive messages that do not fill a batch yet."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self._parts: list[Messages] = []
        self._rows = self._bytes = 0

    @property
    def end(self) -> int:
        return self.offset + self._rows

    @property
    def enough(self) -> bool:
        return self._rows >= ROWS or self._bytes >= BYTES

    def add(self, part: Messages) -> None:
        self._parts.append(part)
        self._rows += len(part)
        self._bytes += part.bodies.nbytes

    def batch(self, queue: str, schema: pa.Schema) -> pa.RecordBatch:
        return record_batch(queue, Messages.joined(self._parts), self.offset, schema)


def read_share(
    subscription: Subscription, queue: str, share: Share, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    gathered: Gathered | None = None
    for offset, part in _read(subscription, share):
        if gathered is not None and (gathered.enough or gathered.end != offset):
            yield gathered.batch(queue, schema)
            gathered = None
        if gathered is None:
            gathered = Gathered(offset)
        gathered.add(part)
    if gathered is not None:
        yield gathered.batch(queue, schema)


def _read(subscription: Subscription, share: Share) -> Iterator[tuple[int, Messages]]:
    """Yields the messages of the share in order, with the offset of the first of each part."""
    for piece in share.pieces:
        start = piece.start
        while start < piece.stop:
            batch = subscription.read(
                piece.number,
                piece.slice,
                start,
                limit=min(piece.stop - start, limits.POP_COUNT_MAX),
            )
            if not len(batch):
                raise _short(piece, start)
            yield piece.base + start, _messages(batch)
            start = batch.end


def _messages(batch: ReservedBatch) -> Messages:
    return Messages.joined([_frame(batch, index) for index in range(len(batch.frames))])


def _frame(batch: ReservedBatch, index: int) -> Messages:
    lent = batch.runs[index]
    run = Run(
        lent.partition, lent.producer, lent.batch, lent.first, lent.count,
        lent.deliveries, lent.pushed_ms,
    )  # fmt: skip
    bodies = even_bodies(batch.frames[index], run.count)
    if bodies is not None:
        return Messages(bodies, [run])
    columns = batch.payload(index)
    return Messages(pa.array(columns.bodies, pa.binary()), [run], columns.headers, columns.keys)


def _short(piece: Piece, start: int) -> ReservationLost:
    return ReservationLost(
        f"reservation {piece.number} has {piece.slice.messages} messages on partition "
        f"{piece.slice.partition}, and none after the first {start} can be read"
    )

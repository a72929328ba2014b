"""Conversion of messages to Arrow and back, one column at a time.

A Python step per message would cost more than all other work, so whole columns go to functions that
loop in C. Runs describe the common properties of the messages of one stored batch: a time stamp,
and all but the last four digits of the ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, chain
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from weft.errors import InvalidArgument
from weft.ids import INDEX_BITS

_INDEXES: Final = 1 << INDEX_BITS
_INDEX_DIGITS, _ID_DIGITS = 4, 32

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive messages of one stored batch."""

    partition: int
    producer: int
    batch: int
    first: int
    count: int
    deliveries: int
    pushed_ms: int


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of one queue by column; `headers` and `keys` are None or as long as the bodies."""

    #: A binary array.
    bodies: pa.Array
    runs: Sequence[Run]
    headers: list[dict[str, str] | None] | None = None
    keys: list[str | None] | None = None

    def __len__(self) -> int:
        return len(self.bodies)

    @classmethod
    def joined(cls, parts: Sequence[Messages]) -> Messages:
        if len(parts) == 1:
            return parts[0]
        return cls(
            pa.concat_arrays([part.bodies for part in parts]),
            list(chain.from_iterable(part.runs for part in parts)),
            _joined([part.headers for part in parts], parts),
            _joined([part.keys for part in parts], parts),
        )


def _joined(
    columns: list[list[T | None] | None], parts: Sequence[Messages]
) -> list[T | None] | None:
    """Joins columns; a part without the column contributes None values."""
    if all(column is None for column in columns):
        return None
    return list(
        chain.from_iterable(
            [None] * len(part) if column is None else column
            for column, part in zip(columns, parts, strict=True)
        )
    )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns the Arrow schema that Spark requires of a source, exactly."""
    return to_arrow_schema(schema, timezone="UTC")


def record_batch(queue: str, messages: Messages, offset: int, schema: pa.Schema) -> pa.RecordBatch:
    """Builds the columns of `schema`; `offset` is the offset of the first message."""
    arrays = [_column(field, queue, messages, offset) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(field: pa.Field, queue: str, messages: Messages, offset: int) -> pa.Array:
    count = len(messages)
    match field.name:
        case "value":
            return messages.bodies
        case "key":
            keys = messages.keys
            return pa.nulls(count, field.type) if keys is None else _utf8(keys).cast(field.type)
        case "topic":
            return pa.repeat(pa.scalar(queue, field.type), count)
        case "partition":
            return _by_run(messages.runs, [run.partition for run in messages.runs], field.type)
        case "offset":
            return pc.add(_counted(count), offset)
        case "timestamp":
            stamps = [run.pushed_ms * 1000 for run in messages.runs]
            return _by_run(messages.runs, stamps, pa.int64()).cast(field.type)
        case "message_id":
            return _ids(messages.runs)
        case "delivery_count":
            return _by_run(messages.runs, [run.deliveries for run in messages.runs], field.type)
        case "headers":
            return _headers(messages.headers, count, field.type)
    raise AssertionError(f"no column {field.name}")


def _utf8(texts: list[str | None]) -> pa.Array:
    return pa.array(texts, pa.string())


def _by_run(runs: Sequence[Run], values: list[int], kind: pa.DataType) -> pa.Array:
    """Repeats the value of each run for each of its messages."""
    return pa.array(np.repeat(values, _counts(runs)), kind)


def _counts(runs: Sequence[Run]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([run.count for run in runs], np.int64)


def _counted(count: int) -> pa.Array:
    """Returns 0 to count - 1."""
    return pa.array(np.arange(count))


@cache
def _last_digits() -> Bytes:
    """Returns every index as four hexadecimal digits, one row each."""
    text = "".join(f"{index:04x}" for index in range(_INDEXES))
    return np.frombuffer(text.encode(), np.uint8).reshape(_INDEXES, _INDEX_DIGITS)


def _ids(runs: Sequence[Run]) -> pa.Array:
    """All ids have one length, so they are written into one block, by columns of digits."""
    counts = _counts(runs)
    total = int(counts.sum())
    # The text of a `MessageId` without its index.
    first_digits = "".join(
        f"{run.partition:04x}{run.producer:014x}{run.batch:010x}" for run in runs
    )
    # The index of a message: the first index of its run plus its position in the run.
    begins = np.array([run.first for run in runs]) - (np.cumsum(counts) - counts)
    text = np.empty((total, _ID_DIGITS), np.uint8)
    rows = np.frombuffer(first_digits.encode(), np.uint8).reshape(len(runs), -1)
    text[:, :-_INDEX_DIGITS] = rows if len(runs) == 1 else np.repeat(rows, counts, axis=0)
    text[:, -_INDEX_DIGITS:] = _last_digits()[np.arange(total) + np.repeat(begins, counts)]
    return pa.StringArray.from_buffers(
        total, pa.py_buffer(ends(total, _ID_DIGITS)), pa.py_buffer(text)
    )


def ends(count: int, width: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Returns the offsets of `count` values of one width."""
    return np.arange(0, (count + 1) * width, width, dtype=np.int32)


def _headers(column: list[dict[str, str] | None] | None, count: int, kind: pa.DataType) -> pa.Array:
    """Converts to Kafka's form: a list of names and values; null without headers."""
    if column is None:
        return pa.nulls(count, kind)
    present = [each or {} for each in column]
    names = pa.array(chain.from_iterable(present), pa.string())
    values = pa.array(chain.from_iterable(each.values() for each in present), pa.string())
    pairs = pa.StructArray.from_arrays(
        [names, values.cast(pa.binary())], fields=list(kind.value_type)
    )
    # A message without headers has null, not an empty list: null at the start of its list.
    starts: list[int | None] = [0, *accumulate(map(len, present))]
    for index, each in enumerate(column):
        if not each:
            starts[index] = None
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pairs, type=kind)


@dataclass(frozen=True, slots=True)
class Written:
    """Rows to write as messages."""

    bodies: list[bytes]
    headers: list[dict[str, str] | None] | None
    keys: list[str | None] | None


def written(batch: pa.RecordBatch) -> Written:
    """Returns the columns that a sink accepts; see `schema.check_written`."""
    names = batch.schema.names
    value = batch.column(names.index("value"))
    if value.null_count:
        raise InvalidArgument(
            f"{value.null_count} of {len(value)} values are null: a message has a body. "
            "Filter them out, or coalesce them to an empty one"
        )
    return Written(
        _plain(value).to_pylist(),
        _written_headers(batch.column(names.index("headers"))) if "headers" in names else None,
        _keys(batch.column(names.index("key"))) if "key" in names else None,
    )


def _plain(column: pa.Array) -> pa.Array:
    """Converts to binary; text becomes UTF-8."""
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _keys(column: pa.Array) -> list[str | None] | None:
    if column.null_count == len(column):
        return None
    try:
        keys: list[str | None] = column.cast(pa.string()).to_pylist()
    except pa.ArrowInvalid:
        raise InvalidArgument("a key that is not UTF-8: a message's key is a text") from None
    return keys


def _written_headers(column: pa.Array) -> list[dict[str, str] | None] | None:
    if column.null_count == len(column):
        return None
    rows: list[Any] = column.to_pylist()
    try:
        if pa.types.is_map(column.type):
            return [dict(row) if row else None for row in rows]
        return [_texts(row) if row else None for row in rows]
    except UnicodeDecodeError:
        raise InvalidArgument("a header that is not UTF-8: its value is a text") from None


def _texts(pairs: list[dict[str, Any]]) -> dict[str, str]:
    texts = {}
    for pair in pairs:
        value = pair["value"]
        texts[pair["key"]] = value.decode() if isinstance(value, bytes) else value
    return texts

"""Messages as Arrow columns and back, and which schemas are accepted."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from weft.client.producer.batch import Columns, encode
from weft.errors import InvalidArgument
from weft.ids import MessageId
from weft.spark.arrow import Messages, Run, arrow_schema, record_batch, written
from weft.spark.payload import even_bodies
from weft.spark.schema import HEADERS, check_read, check_written, columns

ALL = arrow_schema(columns(include_headers=True))
MESSAGES = Messages(
    pa.array([b"a", b"b", b""], pa.binary()),
    [Run(3, 7, 9, 65_000, 2, 0, 1_700_000_000_123), Run(255, 8, 1, 0, 1, 4, 1_700_000_000_999)],
    [{"k": "v", "z": "é"}, None, {}],
    ["one", None, "é"],
)


def struct(**fields: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])  # type: ignore[arg-type]


def test_every_column() -> None:
    batch = record_batch("clicks", MESSAGES, 5 << 32, ALL)
    batch.validate(full=True)
    assert batch.schema == ALL
    first, second, third = batch.to_pylist()
    assert first == {
        "key": b"one",
        "value": b"a",
        "topic": "clicks",
        "partition": 3,
        "offset": 5 << 32,
        "timestamp": datetime.fromtimestamp(1_700_000_000.123, UTC),
        "message_id": str(MessageId.of(3, 7, 9, 65_000)),
        "delivery_count": 0,
        "headers": [{"key": "k", "value": b"v"}, {"key": "z", "value": "é".encode()}],
    }
    assert second["message_id"] == str(MessageId.of(3, 7, 9, 65_001))
    assert (second["key"], second["headers"], second["offset"]) == (None, None, (5 << 32) + 1)
    assert (third["value"], third["headers"], third["partition"]) == (b"", None, 255)
    assert third["message_id"] == str(MessageId.of(255, 8, 1, 0))


def test_only_the_columns_that_are_asked_for() -> None:
    asked = StructType([field for field in columns(False) if field.name in {"value", "offset"}])
    batch = record_batch("clicks", MESSAGES, 0, arrow_schema(asked))
    assert batch.schema.names == ["value", "offset"]


def test_without_keys_and_headers() -> None:
    plain = Messages(pa.array([b"a", b"b"], pa.binary()), [Run(1, 1, 1, 0, 2, 0, 0)])
    batch = record_batch("clicks", plain, 0, ALL)
    batch.validate(full=True)
    assert batch.column("key").null_count == batch.column("headers").null_count == 2


def test_what_was_read_can_be_written() -> None:
    batch = record_batch("clicks", MESSAGES, 0, ALL).select(["value", "key", "headers"])
    rows = written(batch)
    assert rows.bodies == MESSAGES.bodies.to_pylist()
    assert rows.keys == MESSAGES.keys
    assert rows.headers == [{"k": "v", "z": "é"}, None, None]


def test_text_and_maps_are_written_too() -> None:
    headers = pa.array([[("k", "v")], None], pa.map_(pa.string(), pa.string()))
    batch = pa.record_batch([pa.array(["é", "b"]), headers], names=["value", "headers"])
    rows = written(batch)
    assert rows.bodies == ["é".encode(), b"b"]
    assert (rows.headers, rows.keys) == ([{"k": "v"}, None], None)


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (pa.record_batch([pa.array([b"a", None])], names=["value"]), "1 of 2 values are null"),
        (
            pa.record_batch([pa.array([b"a"]), pa.array([b"\xff"])], names=["value", "key"]),
            "a key that is not UTF-8",
        ),
        (
            pa.record_batch(
                [pa.array([b"a"]), pa.array([[{"key": "k", "value": b"\xff"}]])],
                names=["value", "headers"],
            ),
            "a header that is not UTF-8",
        ),
    ],
)
def test_rows_that_are_no_messages(batch: pa.RecordBatch, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        written(batch)


def test_schemas_that_can_be_read() -> None:
    check_read(columns(include_headers=True))
    check_read(struct(value=BinaryType()))
    with pytest.raises(InvalidArgument, match="no column body"):
        check_read(struct(body=BinaryType()))
    with pytest.raises(InvalidArgument, match="column value is binary, not string"):
        check_read(struct(value=StringType()))
    with pytest.raises(InvalidArgument, match="no column"):
        check_read(StructType([]))


def test_schemas_that_can_be_written() -> None:
    check_written(struct(value=StringType(), key=BinaryType(), headers=HEADERS))
    check_written(struct(value=BinaryType(), headers=MapType(StringType(), StringType())))
    with pytest.raises(InvalidArgument, match="the column value is missing"):
        check_written(struct(key=StringType()))
    with pytest.raises(InvalidArgument, match="column user cannot be written"):
        check_written(struct(value=StringType(), user=LongType()))
    with pytest.raises(InvalidArgument, match="column value must be binary or string, not double"):
        check_written(struct(value=DoubleType()))
    with pytest.raises(InvalidArgument, match="column headers must be"):
        check_written(struct(value=StringType(), headers=ArrayType(StringType())))


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20), st.booleans())
def test_bodies_of_one_length_are_seen_in_their_frame(bodies: list[bytes], cut: bool) -> None:
    if cut:
        shortest = min(map(len, bodies))
        bodies = [body[:shortest] for body in bodies]
    found = even_bodies(encode(Columns(bodies)), len(bodies))
    even = len(set(map(len, bodies))) == 1 and bodies[0] != b""
    assert (found is not None) == even
    if found is not None:
        found.validate(full=True)
        assert found.to_pylist() == bodies


@pytest.mark.parametrize(("count", "size"), [(1, 70_000), (15, 1), (16, 255), (4096, 256)])
def test_frames_of_all_sizes(count: int, size: int) -> None:
    bodies = [index.to_bytes(2, "big") + bytes(size) for index in range(count)]
    found = even_bodies(encode(Columns(bodies)), count)
    assert found is not None
    assert found.to_pylist() == bodies


def test_frames_that_have_to_be_decoded() -> None:
    """Frames with headers or keys, and invalid frames."""
    bodies = [b"aa", b"bb"]
    for frame in (
        encode(Columns(bodies, headers=[{"k": "v"}, None])),
        encode(Columns(bodies, keys=["k", None])),
        encode(Columns(bodies))[:-1],
        encode(Columns(bodies)) + b"\xc0",
        b"",
        b"\x93",
        bytes(20),
    ):
        assert even_bodies(frame, 2) is None
    assert even_bodies(encode(Columns(bodies)), 3) is None

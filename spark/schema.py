"""The columns of a message, with Kafka's names, and the columns that a sink accepts.

A query may select fewer columns with `.schema(...)`: other columns are neither built nor sent to
the JVM.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from weft.errors import InvalidArgument

#: Kafka's type of headers; names are texts, values are UTF-8.
HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_COLUMNS: Final = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("message_id", StringType()),
    StructField("delivery_count", IntegerType()),
)


def columns(include_headers: bool) -> StructType:
    """Returns the default columns of a source."""
    return StructType([*_COLUMNS, *([StructField("headers", HEADERS)] * include_headers)])


def check_read(asked: StructType) -> None:
    """Accepts any of the columns in any order, with their own types."""
    known = {field.name: field.dataType for field in columns(True)}
    for field in asked:
        if field.name not in known:
            raise InvalidArgument(
                f"a message has no column {field.name}; it has {', '.join(known)}"
            )
        if field.dataType != known[field.name]:
            raise InvalidArgument(
                f"column {field.name} is {known[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}: cast it after reading"
            )
    if not asked.fields:
        raise InvalidArgument("the schema has no column: select at least one")


def check_written(schema: StructType) -> None:
    """Accepts `value`, and optionally `key` and `headers`."""
    texts: tuple[type[DataType], ...] = (BinaryType, StringType)
    for field in schema:
        if field.name in {"value", "key"}:
            fits = isinstance(field.dataType, texts)
            wanted = "binary or string"
        elif field.name == "headers":
            fits = _are_headers(field.dataType)
            wanted = "array<struct<key string, value binary or string>> or map<string, string>"
        else:
            raise InvalidArgument(
                f"column {field.name} cannot be written: a message has value, key and headers. "
                "Select those, as in .selectExpr('to_json(struct(*)) AS value')"
            )
        if not fits:
            raise InvalidArgument(
                f"column {field.name} must be {wanted}, not {field.dataType.simpleString()}"
            )
    if "value" not in schema.names:
        raise InvalidArgument(
            "the column value is missing: it becomes the body, as in "
            ".selectExpr('to_json(struct(*)) AS value')"
        )


def _are_headers(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return (
        [field.name for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, (BinaryType, StringType))
    )

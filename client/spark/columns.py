"""The columns of Spark's Kafka connector: those that are read, and those that may be written."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.client.spark.batch_decoder import HEADER_TYPE, DecodedRecords
from odradek.client.spark.offsets import OffsetRange
from odradek.client.spark.varints import Int64s

HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
US_PER_MS: Final = 1000
TIME_MAX_MS: Final = ((1 << 63) - 1) // US_PER_MS
"""The latest time that Spark's microseconds can hold, in milliseconds since 1970."""


class ColumnError(ValueError):
    """The columns cannot be written or read. The message has the required columns."""


def read_schema(*, include_headers: bool) -> StructType:
    """Return the columns of a read, in the connector's order."""
    schema = (
        StructType()
        .add("key", BinaryType())
        .add("value", BinaryType())
        .add("topic", StringType())
        .add("partition", IntegerType())
        .add("offset", LongType())
        .add("timestamp", TimestampType())
        .add("timestampType", IntegerType())
    )
    return schema.add("headers", HEADERS) if include_headers else schema


def check_read_schema(given: StructType, *, include_headers: bool) -> None:
    """Raise `ColumnError` if a user's schema is not that of this source."""
    ours = read_schema(include_headers=include_headers)
    if [(field.name, field.dataType) for field in given] != [
        (field.name, field.dataType) for field in ours
    ]:
        raise ColumnError(
            f"The columns of this source are always {ours.simpleString()}: leave out schema(...) "
            "and convert key and value in the query."
        )


def arrow_schema(*, include_headers: bool) -> Any:
    """Return the exact `pa.Schema` that Spark requires of a read."""
    fields = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
    return pa.schema([*fields, ("headers", pa.list_(HEADER_TYPE))] if include_headers else fields)


def to_arrow(records: DecodedRecords, source: OffsetRange, schema: Any) -> Any:
    """Return decoded records of one partition as the `pa.RecordBatch` for Spark."""
    count = len(records)
    columns = [
        records.keys,
        records.values,
        pa.repeat(pa.scalar(source.topic, pa.string()), count),
        pa.array(np.full(count, source.partition, dtype=np.int32)),
        pa.array(records.offsets),
        _timestamps(records.timestamps_ms, schema.field("timestamp").type),
        pa.array(records.timestamp_types.astype(np.int32)),
    ]
    if records.headers is not None:
        columns.append(records.headers)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _timestamps(times_ms: Int64s, as_type: Any) -> Any:
    """Return times for Spark. One that its microseconds cannot hold is null.

    A producer may have written nanoseconds. Multiplied, they would become any other time.
    """
    is_too_far = (times_ms > TIME_MAX_MS) | (times_ms < -TIME_MAX_MS)
    times_us = np.where(is_too_far, 0, times_ms) * US_PER_MS
    return pa.array(times_us, mask=is_too_far if is_too_far.any() else None).cast(as_type)


TEXT_OR_BYTES: Final = (StringType, BinaryType)
WRITE_COLUMNS: Final[dict[str, tuple[tuple[type[DataType], ...], str]]] = {
    "key": (TEXT_OR_BYTES, "string or binary"),
    "value": (TEXT_OR_BYTES, "string or binary"),
    "topic": ((StringType,), "string"),
    "partition": ((IntegerType,), "int"),
}


def check_write_schema(schema: StructType, *, has_topic_option: bool) -> None:
    """Raise `ColumnError` for columns that cannot be written. Other columns are ignored."""
    columns = {field.name: field.dataType for field in schema}
    given = [field.name for field in schema]
    for name in (*WRITE_COLUMNS, "headers"):
        if given.count(name) > 1:
            raise ColumnError(f"There are {given.count(name)} columns {name}: rename or drop one.")
    if "value" not in columns:
        raise ColumnError(
            f"A row needs a column value (string or binary), and has {', '.join(columns)}: make "
            "one, for example with to_json(struct(*)) AS value."
        )
    if not has_topic_option and "topic" not in columns:
        raise ColumnError("No topic is given: set the option topic, or give rows a column topic.")
    for name, (types, words) in WRITE_COLUMNS.items():
        if name in columns and not isinstance(columns[name], types):
            found = columns[name].simpleString()
            raise ColumnError(f"The column {name} has to be {words}, and is {found}: cast it.")
    if "headers" in columns and not _are_headers(columns["headers"]):
        raise ColumnError(
            f"The column headers has to be {HEADERS.simpleString()}, and is "
            f"{columns['headers'].simpleString()}: rename it if it is something else."
        )


def _are_headers(column: DataType) -> bool:
    return column.simpleString() == HEADERS.simpleString()

"""A task's rows go where they should, and what cannot go anywhere is said in words."""

from typing import Any

import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2

from odradek.client.config import MIB
from odradek.client.spark.batch_decoder import decode, records_section
from odradek.client.spark.messages import TopicBatch
from odradek.client.spark.options import WriteOptions
from odradek.client.spark.refused_rows import WrongRow
from odradek.client.spark.task_encoder import COLLECT_BYTES, encode_rows
from odradek.protocol.batch import read_header

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
PARTITIONS = {"out": 4, "one": 1, "a": 2, "b": 3}


def write_options(topic: str | None = "out", **more: Any) -> WriteOptions:
    return WriteOptions(bootstrap="nowhere:1", topic=topic, **more)


def encode_all(
    *batches: dict[str, Any],
    options: WriteOptions | None = None,
    first_partition: int = 0,
    task: int = 0,
) -> tuple[TopicBatch, ...]:
    encoded = encode_rows(
        [pa.record_batch(columns) for columns in batches],
        options or write_options(),
        count_partitions=PARTITIONS.__getitem__,
        first_partition=first_partition,
        task=task,
    )
    return tuple(encoded)


def rows_of(batches: tuple[TopicBatch, ...]) -> list[tuple[str, int, bytes | None, bytes | None]]:
    """Topic, partition, key and value of every record, in the order of the batches."""
    rows = []
    for batch in batches:
        header = read_header(batch.data)
        assert header.record_count == batch.record_count
        section = records_section(header, batch.data)
        (found,) = decode(
            [(header, section)], start_offset=0, end_offset=1 << 40, with_headers=False
        )
        rows += [
            (batch.topic, batch.partition, key, value)
            for key, value in zip(found.keys.to_pylist(), found.values.to_pylist(), strict=True)
        ]
    return rows


def test_rows_go_by_their_key_in_their_order() -> None:
    keys = [f"k{number % 7}" for number in range(100)]
    values = [b"%d" % number for number in range(100)]
    rows = rows_of(encode_all({"key": pa.array(keys), "value": pa.array(values)}))
    assert sorted(rows, key=lambda row: int(row[3] or b"")) == [
        ("out", (murmur2(key.encode()) & 0x7FFFFFFF) % 4, key.encode(), value)
        for key, value in zip(keys, values, strict=True)
    ]
    for partition in range(4):
        numbers = [int(row[3] or b"") for row in rows if row[1] == partition]
        assert numbers == sorted(numbers)


def test_a_rows_own_topic_and_partition_win() -> None:
    rows = rows_of(
        encode_all(
            {
                "value": pa.array(["1", "2", "3", "4"]),
                "topic": pa.array(["b", "a", "b", "a"]),
                "key": pa.array([b"k", None, b"k", b"k"]),
                "partition": pa.array([2, 1, None, 0], pa.int32()),
            },
            options=write_options(topic=None),
        )
    )
    by_key = (murmur2(b"k") & 0x7FFFFFFF) % 3
    assert sorted(rows, key=lambda row: row[3] or b"") == [
        ("b", 2, b"k", b"1"),
        ("a", 1, None, b"2"),
        ("b", by_key, b"k", b"3"),
        ("a", 0, b"k", b"4"),
    ]


def test_the_option_topic_wins_over_the_column() -> None:
    rows = rows_of(encode_all({"value": pa.array(["1"]), "topic": pa.array(["a"])}))
    assert rows[0][0] == "out"


def test_rows_without_keys_stay_together_and_begin_where_they_are_told() -> None:
    values = pa.array([b"x" * 1000] * 1000)
    small = rows_of(encode_all({"value": values.slice(0, 10)}, first_partition=6))
    assert {row[1] for row in small} == {2}
    large = rows_of(encode_all({"value": values}, first_partition=0))
    assert {row[1] for row in large} == {0, 1, 2, 3}


def test_columns_that_are_not_the_sinks_are_left_alone() -> None:
    rows = rows_of(encode_all({"value": pa.array([None], pa.binary()), "offset": pa.array([7])}))
    assert rows == [("out", 0, None, None)]


def test_no_rows_make_no_batches() -> None:
    assert encode_all() == ()
    assert encode_all({"value": pa.array([], pa.string())}) == ()


def test_rows_of_several_arrow_batches_share_record_batches() -> None:
    piece = {"value": pa.array(["v"] * 10)}
    assert [batch.record_count for batch in encode_all(piece, piece, piece)] == [30]
    large = {"value": pa.array([b"x" * (COLLECT_BYTES // 16)] * 12)}
    options = write_options("one", batch_max_bytes=COLLECT_BYTES)
    assert [batch.record_count for batch in encode_all(large, large, options=options)] == [12, 12]


def test_rows_are_numbered_over_all_parts_of_a_task() -> None:
    count = 3 * COLLECT_BYTES // 1_000
    parts = [
        {"key": pa.array([b"%d" % row for row in rows]), "value": pa.array([b"v" * 1_000] * 5_000)}
        for rows in (range(start, start + 5_000) for start in range(0, count, 5_000))
    ]
    batches = encode_all(*parts)
    keys = [row[2] for row in rows_of(batches)]
    numbers = [int(number) for batch in batches for number in batch.rows]
    wrong = [each for each in zip(keys, numbers, strict=True) if each[0] != b"%d" % each[1]]
    assert not wrong[:10]
    assert len(set(numbers)) == len(numbers) == 5_000 * len(parts)


def test_batches_keep_within_their_size() -> None:
    values = pa.array([b"x" * 100] * 5000)
    batches = encode_all({"value": values}, options=write_options(batch_max_bytes=10_000))
    assert max(len(batch.data) for batch in batches) <= 10_000
    assert sum(batch.record_count for batch in batches) == 5000


@pytest.mark.parametrize(
    ("columns", "topic", "sentence"),
    [
        (
            {"topic": pa.array([None], pa.string())},
            None,
            "Row 0 of task 7 .key 'k'. has no topic: set the option",
        ),
        (
            {"partition": pa.array([4], pa.int32())},
            "out",
            r"Row 0 of task 7 \(key 'k'\) goes to partition 4 of topic out, which",
        ),
        ({"partition": pa.array([-1], pa.int32())}, "out", "goes to partition -1 of topic out"),
        (
            {"headers": pa.array([[{"key": None, "value": b"x"}]], HEADERS_TYPE)},
            "out",
            r"Row 0 of task 7 \(key 'k'\) has a header without a key: give every header a key",
        ),
        (
            {"value": pa.array([b"x" * MIB])},
            "out",
            r"Row 0 of task 7 \(key 'k'\) is too large for topic out, a record takes .* make it sm",
        ),
    ],
)
def test_a_row_that_cannot_be_written_is_one_sentence(
    columns: dict[str, Any], topic: str | None, sentence: str
) -> None:
    with pytest.raises(WrongRow, match=sentence):
        encode_all(
            {"value": pa.array(["v"]), "key": pa.array(["k"])} | columns,
            options=write_options(topic=topic),
            task=7,
        )

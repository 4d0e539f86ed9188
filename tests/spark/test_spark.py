"""A real local Spark reads and writes: by name, as tables and as streams."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, struct
from pyspark.sql.functions import max as greatest
from pyspark.sql.streaming.query import StreamingQuery

from odradek.client.blocking import Admin, Producer
from odradek.client.spark.progress import offsets_behind_latest
from tests.spark.conftest import CreateTopic, ReadTopic

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

ReadFrame = Callable[..., DataFrame]
WriteFrame = Callable[..., None]
StartQuery = Callable[..., StreamingQuery]


@pytest.fixture
def read(spark: SparkSession, bootstrap: str) -> ReadFrame:
    """A batch read with some options."""

    def load(**options: Any) -> DataFrame:
        reader = spark.read.format("odradek").option("kafka.bootstrap.servers", bootstrap)
        return reader.options(**options).load()

    return load


@pytest.fixture
def write(bootstrap: str) -> WriteFrame:
    """A batch write with some options."""

    def save(frame: DataFrame, **options: Any) -> None:
        writer = frame.write.format("odradek").mode("append")
        writer.option("kafka.bootstrap.servers", bootstrap).options(**options).save()

    return save


@pytest.fixture
def run_query(spark: SparkSession, bootstrap: str) -> StartQuery:
    """A streaming query from topic to topic, as far as there is something, to its end."""

    def run(source: str, target: str, checkpoint: Path, **options: Any) -> StreamingQuery:
        query = (
            spark.readStream.format("odradek")
            .option("kafka.bootstrap.servers", bootstrap)
            .options(**{"subscribe": source, "startingOffsets": "earliest"} | options)
            .load()
            .select("key", "value")
            .writeStream.format("odradek")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", target)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    return run


def send_numbers(producer: Producer, topic: str, numbers: range) -> None:
    for number in numbers:
        producer.send(topic, b"%d" % number, key=b"k%d" % (number % 5))
    producer.flush()


def forget_commits(checkpoint: Path) -> None:
    """Let Spark run the latest batch again."""
    for done in checkpoint.glob("commits/*"):  # the hidden ones, too
        done.unlink()


def numbers_in(read_topic: ReadTopic, topic: str) -> list[int]:
    return sorted(int(record.value or b"") for record in read_topic(topic))


def test_what_is_written_is_read_again(
    spark: SparkSession,
    read: ReadFrame,
    write: WriteFrame,
    create_topic: CreateTopic,
    read_topic: ReadTopic,
) -> None:
    topic = create_topic(partitions=4)
    rows = spark.range(5000).selectExpr(
        "concat('key-', id % 100) AS key",
        "cast(concat('value-', id) AS binary) AS value",
        "array(named_struct('key', 'number', 'value', cast(string(id) AS binary))) AS headers",
    )
    write(rows, topic=topic, **{"kafka.compression.type": "lz4"})
    found = read(subscribe=topic, includeHeaders="true")
    assert found.columns == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ]
    back = found.selectExpr("string(key)", "value", "transform(headers, h -> h) AS headers")
    assert back.exceptAll(rows).count() == rows.exceptAll(back).count() == 0
    records = read_topic(topic)
    assert len(records) == 5000
    assert all(record.headers[0][0] == "number" for record in records)
    per_key = {
        record.key: {other.partition for other in records if other.key == record.key}
        for record in records[:20]
    }
    assert {len(partitions) for partitions in per_key.values()} == {1}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_headers_are_read_again_whatever_the_codec(
    spark: SparkSession, read: ReadFrame, write: WriteFrame, create_topic: CreateTopic, codec: str
) -> None:
    topic = create_topic(partitions=2)
    rows = spark.range(500).selectExpr(
        "IF(id % 3 = 0, NULL, cast(string(id) AS binary)) AS key",
        "cast(repeat(string(id), 20) AS binary) AS value",
        "IF(id % 5 = 0, NULL, transform(sequence(1, cast(id % 4 AS int) + 1), n -> named_struct("
        "'key', concat('h', n), 'value', IF(n = 2, NULL, cast(string(id) AS binary))))) AS headers",
    )
    write(rows, topic=topic, **{"kafka.compression.type": codec})
    back = read(subscribe=topic, includeHeaders="true").select("key", "value", "headers")
    shown = {str(row.value): row for row in back.collect()}
    assert len(shown) == 500
    for row in rows.collect():
        assert shown[str(row.value)] == row


def test_rows_choose_their_topics_in_one_transaction(
    spark: SparkSession, write: WriteFrame, create_topic: CreateTopic, read_topic: ReadTopic
) -> None:
    first, second = create_topic(), create_topic(partitions=2)
    rows = [(first, None, "a"), (second, 1, "b"), (second, 0, "c"), (first, 0, "d")]
    write(spark.createDataFrame(rows, "topic string, partition int, value string").coalesce(1))
    assert [record.value for record in read_topic(first)] == [b"a", b"d"]
    assert [(record.partition, record.value) for record in read_topic(second)] == [
        (0, b"c"),
        (1, b"b"),
    ]
    ends = [record.offset for record in read_topic(first)]
    assert ends == [0, 1]


def test_an_application_writes_a_version_once(
    spark: SparkSession,
    write: WriteFrame,
    create_topic: CreateTopic,
    read_topic: ReadTopic,
    unique: Callable[[str], str],
) -> None:
    topic, application = create_topic(), unique("app")
    rows = spark.createDataFrame([("x",)], "value string")
    for version in (1, 1, 2, 2):
        write(rows, topic=topic, txnAppId=application, txnVersion=version)
    assert len(read_topic(topic)) == 2
    with pytest.raises(PySparkException, match=r"Batch 1 of app-.* is out of date"):
        write(rows, topic=topic, txnAppId=application, txnVersion=1)
    write(rows, topic=topic)
    write(rows, topic=topic)
    assert len(read_topic(topic)) == 4


def test_too_much_for_a_relay_is_refused_with_advice(
    spark: SparkSession, write: WriteFrame, create_topic: CreateTopic, read_topic: ReadTopic
) -> None:
    topic = create_topic()
    rows = spark.range(2000).selectExpr("repeat('x', 100) AS value")
    with pytest.raises(PySparkException, match=r"relay\.max\.bytes is 50000: nothing is written"):
        write(rows, topic=topic, **{"relay.max.bytes": 50_000})
    assert read_topic(topic) == []


def test_wrong_options_and_columns_are_sentences(
    spark: SparkSession, read: ReadFrame, write: WriteFrame
) -> None:
    rows = spark.createDataFrame([("x",)], "value string")
    with pytest.raises(AnalysisException, match=r"kafka.transactional.id is not served: the"):
        write(rows, topic="t", **{"kafka.transactional.id": "mine"})
    with pytest.raises(AnalysisException, match="No topic is given: set the option topic"):
        write(rows)
    with pytest.raises(AnalysisException, match="The column value has to be string or binary, and"):
        write(spark.range(1).selectExpr("id AS value"), topic="t")
    with pytest.raises(AnalysisException, match=r"A row needs a column value .* to_json"):
        write(spark.range(1), topic="t")
    with pytest.raises(PySparkException, match="did you mean startingOffsets"):
        read(subscribe="t", startingOffset="earliest").count()
    with pytest.raises(PySparkException, match="There is no topic not-there: create it"):
        read(subscribe="not-there").count()


def test_a_stream_runs_in_steps_and_goes_on_after_a_restart(
    run_query: StartQuery,
    create_topic: CreateTopic,
    read_topic: ReadTopic,
    producer: Producer,
    tmp_path: Path,
    bootstrap: str,
) -> None:
    source, target = create_topic(partitions=2), create_topic(partitions=3)
    send_numbers(producer, source, range(500))
    first = run_query(source, target, tmp_path, maxOffsetsPerTrigger=200)
    assert [progress.numInputRows for progress in first.recentProgress] == [200, 200, 100]
    behind = [offsets_behind_latest(progress)[0] for progress in first.recentProgress]
    assert [each["topics"] for each in behind] == [[source]] * 3
    assert [2 * each["avgOffsetsBehindLatest"] for each in behind] == [300, 100, 0]
    assert numbers_in(read_topic, target) == list(range(500))

    with Admin(bootstrap) as admin:
        admin.create_partitions(source, 3)
    send_numbers(producer, source, range(500, 700))
    run_query(source, target, tmp_path)
    assert numbers_in(read_topic, target) == list(range(700))
    for partition in range(3):
        by_key: dict[bytes | None, list[int]] = {}
        for record in read_topic(target):
            if record.partition == partition:
                by_key.setdefault(record.key, []).append(int(record.value or b""))
        assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_a_batch_that_spark_replays_is_skipped(
    run_query: StartQuery,
    create_topic: CreateTopic,
    read_topic: ReadTopic,
    producer: Producer,
    tmp_path: Path,
) -> None:
    source, target = create_topic(partitions=2), create_topic(partitions=2)
    send_numbers(producer, source, range(100))
    run_query(source, target, tmp_path)
    forget_commits(tmp_path)
    send_numbers(producer, source, range(100, 150))
    run_query(source, target, tmp_path)
    assert numbers_in(read_topic, target) == list(range(150))


def test_a_copied_checkpoint_that_writes_elsewhere_loses_no_batch(
    run_query: StartQuery,
    create_topic: CreateTopic,
    read_topic: ReadTopic,
    producer: Producer,
    tmp_path: Path,
) -> None:
    source, target, elsewhere = create_topic(), create_topic(), create_topic()
    send_numbers(producer, source, range(20))
    run_query(source, target, tmp_path / "original")
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    forget_commits(tmp_path / "copy")
    run_query(source, elsewhere, tmp_path / "copy")
    assert numbers_in(read_topic, elsewhere) == list(range(20))
    assert numbers_in(read_topic, target) == list(range(20))


def test_each_batch_may_be_written_by_hand(
    spark: SparkSession,
    bootstrap: str,
    write: WriteFrame,
    create_topic: CreateTopic,
    read_topic: ReadTopic,
    producer: Producer,
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    source, target, application = create_topic(), create_topic(), unique("app")
    send_numbers(producer, source, range(50))

    def write_newest(frame: DataFrame, batch_id: int) -> None:
        newest = frame.groupBy("key").agg(greatest(struct("offset", "value")).alias("newest"))
        rows = newest.select("key", col("newest.value").alias("value"))
        for _ in range(2):
            write(rows, topic=target, txnAppId=application, txnVersion=batch_id)

    query = (
        spark.readStream.format("odradek")
        .option("kafka.bootstrap.servers", bootstrap)
        .options(subscribe=source, startingOffsets="earliest")
        .load()
        .writeStream.foreachBatch(write_newest)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert numbers_in(read_topic, target) == [45, 46, 47, 48, 49]


def test_one_application_writes_each_batch_to_two_topics_once_for_each_checkpoint(
    spark: SparkSession,
    bootstrap: str,
    write: WriteFrame,
    create_topic: CreateTopic,
    read_topic: ReadTopic,
    producer: Producer,
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    source, targets, application = create_topic(), [create_topic(), create_topic()], unique("app")
    send_numbers(producer, source, range(20))

    def write_both(frame: DataFrame, batch_id: int) -> None:
        for topic in targets:
            write(frame.select("value"), topic=topic, txnAppId=application, txnVersion=batch_id)

    def run(checkpoint: Path) -> list[list[int]]:
        reader = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
        frame = reader.options(subscribe=source, startingOffsets="earliest").load()
        writer = frame.writeStream.foreachBatch(write_both).trigger(availableNow=True)
        writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
        return [numbers_in(read_topic, topic) for topic in targets]

    once = list(range(20))
    assert run(tmp_path / "first") == [once, once]
    (tmp_path / "first").rename(tmp_path / "moved")
    forget_commits(tmp_path / "moved")
    assert run(tmp_path / "moved") == [once, once]
    assert run(tmp_path / "new") == [sorted(once * 2)] * 2


def test_a_read_begins_and_ends_at_times(
    read: ReadFrame, producer: Producer, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=2)
    for number in range(10):
        for partition in range(2):
            time_ms = 1_700_000_000_000 + 1000 * number
            producer.send(topic, b"%d" % number, partition=partition, timestamp_ms=time_ms)
    producer.flush()

    def numbers(**options: Any) -> list[int]:
        rows = read(subscribe=topic, **options).selectExpr("int(string(value)) AS n").collect()
        return sorted(row.n for row in rows)

    from_six = 1_700_000_005_500
    assert numbers(startingTimestamp=from_six) == [6, 6, 7, 7, 8, 8, 9, 9]
    assert numbers(endingTimestamp=from_six) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    each = f'{{"{topic}": {{"0": {from_six}, "1": {from_six + 3000}}}}}'
    assert numbers(startingOffsetsByTimestamp=each) == [6, 7, 8, 9, 9]
    late = from_six + 100_000
    with pytest.raises(PySparkException, match="has no record at or after"):
        numbers(startingTimestamp=late)
    assert numbers(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest") == []


def test_a_partition_is_read_by_several_tasks(
    read: ReadFrame, producer: Producer, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=2)
    send_numbers(producer, topic, range(500))
    for options in ({"minPartitions": 7}, {"maxRecordsPerPartition": 60}):
        frame = read(subscribe=topic, **options)
        assert frame.rdd.getNumPartitions() >= 7
        rows = frame.selectExpr("int(string(value)) AS n").collect()
        assert sorted(row.n for row in rows) == list(range(500))

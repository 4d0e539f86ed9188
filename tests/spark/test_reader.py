"""What a read plans and what its tasks find, against a broker and without Spark."""

import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from odradek.client.blocking import Admin, Producer
from odradek.client.spark import reader as reader_module
from odradek.client.spark.columns import ColumnError, arrow_schema, read_schema
from odradek.client.spark.offsets import (
    IDS,
    INITIAL,
    DataLossError,
    OffsetError,
    OffsetRange,
    from_json,
)
from odradek.client.spark.options import ReadOptions, Topics, read_options
from odradek.client.spark.reader import (
    BatchReader,
    RangePartition,
    TopicMissing,
    chunks,
    fetch_range,
)
from odradek.client.spark.stream_reader import JsonOffsets, StreamReader
from odradek.client.types import EARLIEST, FetchedBatch, TopicPartition
from tests.spark.conftest import CreateTopic
from tests.stories.looking import Onlooker


def parse(bootstrap: str, **options: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap} | options


def batch_reader(bootstrap: str, **options: str) -> BatchReader:
    parsed = read_options(parse(bootstrap, **options), "batch")
    return BatchReader(parsed, read_schema(include_headers=parsed.include_headers))


def stream_reader(bootstrap: str, **options: str) -> StreamReader:
    parsed = read_options(parse(bootstrap, **options), "stream")
    return StreamReader(parsed, read_schema(include_headers=parsed.include_headers))


def ranges(partitions: list[InputPartition]) -> list[tuple[int, int, int]]:
    found = []
    for partition in partitions:
        assert isinstance(partition, RangePartition)
        found.append(
            (
                partition.offset_range.partition,
                partition.offset_range.start,
                partition.offset_range.end,
            )
        )
    return found


def rows(reader: BatchReader | StreamReader, partitions: list[InputPartition]) -> list[Any]:
    found = []
    for partition in partitions:
        for batch in reader.read(partition):
            found += batch.to_pylist()
    return found


def send(producer: Producer, topic: str, *values: str, partition: int = 0) -> None:
    for value in values:
        producer.send(topic, value.encode(), partition=partition)
    producer.flush()


def id_of(bootstrap: str, topic: str) -> UUID:
    with Admin(bootstrap) as admin:
        return admin.describe_topics(topic)[0].topic_id


def make_anew(bootstrap: str, topic: str) -> None:
    with Admin(bootstrap) as admin:
        admin.delete_topics(topic)
        admin.create_topic(topic, partitions=1)


def abort(bootstrap: str, topic: str, value: bytes) -> None:
    with (
        Producer(bootstrap, transactional_id=f"{topic}-abort") as producer,
        producer.transaction() as transaction,
    ):
        transaction.send(topic, value, partition=0)
        transaction.flush()
        transaction.abort()
    Onlooker(bootstrap).wait_until_settled(topic)  # the marker follows the answer


def test_all_columns_are_read(
    bootstrap: str, create_topic: CreateTopic, producer: Producer
) -> None:
    topic = create_topic()
    now_ms = int(time.time() * 1000)  # retention would delete records of 1970
    producer.send(topic, b"v", key=b"k", headers=[("h", b"x"), ("n", None)], timestamp_ms=now_ms)
    producer.send(topic, None, timestamp_ms=now_ms + 1)
    producer.flush()
    reader = batch_reader(bootstrap, subscribe=topic, includeHeaders="true")
    [partition] = reader.partitions()
    [batch] = reader.read(partition)
    assert batch.schema.equals(arrow_schema(include_headers=True))
    first, second = batch.to_pylist()
    assert round(first["timestamp"].timestamp() * 1000) == now_ms
    assert first | {"timestamp": None} == {
        "key": b"k",
        "value": b"v",
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": None,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"x"}, {"key": "n", "value": None}],
    }
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)


@pytest.mark.parametrize("include_headers", [False, True])
def test_the_arrow_schema_is_the_one_that_spark_demands(include_headers: bool) -> None:
    demanded = to_arrow_schema(read_schema(include_headers=include_headers), timezone="UTC")
    assert demanded.equals(arrow_schema(include_headers=include_headers))


def test_offsets_in_json_bound_a_read(
    bootstrap: str, create_topic: CreateTopic, producer: Producer
) -> None:
    topic = create_topic(partitions=2)
    send(producer, topic, "a", "b", "c", "d")
    send(producer, topic, "e", partition=1)
    reader = batch_reader(
        bootstrap,
        subscribe=topic,
        startingOffsets=f'{{"{topic}":{{"0":1,"1":-2}}}}',
        endingOffsets=f'{{"{topic}":{{"0":3,"1":-1}}}}',
    )
    planned = reader.partitions()
    assert ranges(planned) == [(0, 1, 3), (1, 0, 1)]
    assert [row["value"] for row in rows(reader, planned)] == [b"b", b"c", b"e"]
    with pytest.raises(OffsetError, match=f"startingOffsets must name .* and lacks {topic}-1"):
        batch_reader(
            bootstrap, subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":1}}}}'
        ).partitions()


def test_partitions_are_assigned_or_matched_by_a_pattern(
    bootstrap: str, create_topic: CreateTopic, producer: Producer
) -> None:
    topic = create_topic(partitions=3)
    for partition in range(3):
        send(producer, topic, "v", partition=partition)
    assigned = batch_reader(bootstrap, assign=f'{{"{topic}":[2,0]}}')
    assert ranges(assigned.partitions()) == [(0, 0, 1), (2, 0, 1)]
    matched = batch_reader(bootstrap, subscribePattern=topic[:-3] + "...")
    assert ranges(matched.partitions()) == [(0, 0, 1), (1, 0, 1), (2, 0, 1)]
    nothing = batch_reader(bootstrap, subscribePattern=topic[:-3])
    assert nothing.partitions() == []
    with pytest.raises(TopicMissing, match=f"There is no topic {topic}-not: create it, or"):
        batch_reader(bootstrap, subscribe=f"{topic},{topic}-not").partitions()


def test_only_what_is_committed_is_read_and_only_up_to_an_open_transaction(
    bootstrap: str, create_topic: CreateTopic, producer: Producer
) -> None:
    topic = create_topic()
    send(producer, topic, "first")
    abort(bootstrap, topic, b"aborted")
    send(producer, topic, "second")
    with (
        Producer(bootstrap, transactional_id=topic) as transactional,
        transactional.transaction() as transaction,
    ):
        transaction.send(topic, b"open", partition=0)
        transaction.flush()
        send(producer, topic, "behind it")
        committed = batch_reader(bootstrap, subscribe=topic)
        planned = committed.partitions()
        assert ranges(planned) == [(0, 0, 4)]
        assert [row["value"] for row in rows(committed, planned)] == [b"first", b"second"]
        uncommitted = {"subscribe": topic, "kafka.isolation.level": "read_uncommitted"}
        reader = batch_reader(bootstrap, **uncommitted)
        values = [row["value"] for row in rows(reader, reader.partitions())]
        assert values == [b"first", b"aborted", b"second", b"open", b"behind it"]


def test_a_range_of_nothing_but_invisible_records_ends(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    abort(bootstrap, topic, b"aborted")
    reader = batch_reader(bootstrap, subscribe=topic)
    planned = reader.partitions()
    assert ranges(planned) == [(0, 0, 2)]
    assert rows(reader, planned) == []


def test_small_batches_are_decoded_together(
    bootstrap: str, create_topic: CreateTopic, producer: Producer
) -> None:
    topic = create_topic()
    for number in range(50):
        send(producer, topic, str(number))
    options = ReadOptions(bootstrap=bootstrap, topics=Topics(), starting_offsets=EARLIEST)
    wanted = OffsetRange(topic=topic, partition=0, start=10, end=40)
    fetched = list(fetch_range(options, wanted))
    assert [batch.header.base_offset for batch in fetched] == list(range(10, 40))
    assert [len(chunk) for chunk in chunks(fetched)] == [30]


def test_offsets_that_are_gone_are_a_loss_or_left_out(
    bootstrap: str, create_topic: CreateTopic, producer: Producer
) -> None:
    topic = create_topic()
    send(producer, topic, "a", "b")
    beyond = {"subscribe": topic, "endingOffsets": f'{{"{topic}":{{"0":9}}}}'}
    reader = batch_reader(bootstrap, **beyond)
    with pytest.raises(DataLossError, match=f"{topic}-0 ends at offset 2 .* failOnDataLoss"):
        rows(reader, reader.partitions())
    reader = batch_reader(bootstrap, **beyond, failOnDataLoss="false")
    assert [row["value"] for row in rows(reader, reader.partitions())] == [b"a", b"b"]


def test_a_range_behind_the_end_of_a_partition_is_a_loss(
    bootstrap: str, create_topic: CreateTopic, producer: Producer
) -> None:
    topic = create_topic()
    send(producer, topic, "a")
    lost = RangePartition(OffsetRange(topic=topic, partition=0, start=5, end=9))
    with pytest.raises(DataLossError, match=f"{topic}-0 lost offsets 5 to 8 meanwhile"):
        rows(batch_reader(bootstrap, subscribe=topic), [lost])
    allowed = batch_reader(bootstrap, subscribe=topic, failOnDataLoss="false")
    assert rows(allowed, [lost]) == []


def test_another_schema_is_refused(bootstrap: str) -> None:
    with pytest.raises(
        ColumnError, match="The columns of this source are always struct<key:binary"
    ):
        BatchReader(
            read_options(parse(bootstrap, subscribe="t"), "batch"),
            read_schema(include_headers=True),
        )


def test_a_stream_goes_on_in_steps_to_where_it_was_told(
    bootstrap: str, create_topic: CreateTopic, producer: Producer
) -> None:
    topic = create_topic()
    send(producer, topic, *"abcde")
    reader = stream_reader(
        bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="2"
    )
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(2)
    start = reader.initialOffset()
    assert from_json(start) == {TopicPartition(topic, 0): 0}
    reader.prepareForTriggerAvailableNow()
    send(producer, topic, "later")
    ends = []
    values = []
    while (end := reader.latestOffset(start, limit)) != start:
        values += [row["value"] for row in rows(reader, reader.partitions(start, end))]
        ends.append(end[topic]["0"])
        reader.commit(end)
        start = end
    assert ends == [2, 4, 5]
    assert values == [b"a", b"b", b"c", b"d", b"e"]
    reader.stop()


def test_without_a_limit_a_stream_takes_what_there_is(
    bootstrap: str, create_topic: CreateTopic, producer: Producer
) -> None:
    topic = create_topic()
    reader = stream_reader(bootstrap, subscribe=topic)
    assert reader.getDefaultReadLimit() == ReadAllAvailable()
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    send(producer, topic, *"abc")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end[topic] == {"0": 3}
    reader.stop()


def test_a_stream_waits_for_enough_records(
    bootstrap: str, create_topic: CreateTopic, producer: Producer
) -> None:
    topic = create_topic()
    reader = stream_reader(
        bootstrap, subscribe=topic, minOffsetsPerTrigger="3", maxTriggerDelay="1h"
    )
    start = reader.initialOffset()
    send(producer, topic, "a")
    first = reader.latestOffset(start, ReadAllAvailable())
    assert first[topic] == {"0": 1}  # the first batch does not wait
    send(producer, topic, *"bc")
    assert reader.latestOffset(first, ReadAllAvailable()) == first
    assert reader.reportLatestOffset() == {topic: {"0": 3}}
    send(producer, topic, "d")
    assert reader.latestOffset(first, ReadAllAvailable())[topic] == {"0": 4}
    reader.stop()


def test_a_stream_does_not_wait_for_ever(
    bootstrap: str, create_topic: CreateTopic, producer: Producer
) -> None:
    topic = create_topic()
    reader = stream_reader(
        bootstrap, subscribe=topic, minOffsetsPerTrigger="3", maxTriggerDelay="1ms"
    )
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    send(producer, topic, "a")
    assert reader.latestOffset(start, ReadAllAvailable())[topic] == {"0": 1}
    reader.stop()


def test_a_batch_of_another_sources_rows_reads_nothing_again(
    bootstrap: str, create_topic: CreateTopic, producer: Producer
) -> None:
    topic = create_topic()
    reader = stream_reader(bootstrap, subscribe=topic)
    start = reader.initialOffset()
    send(producer, topic, "a")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert reader.partitions(end, end) == []

    again = stream_reader(bootstrap, subscribe=topic)
    assert again.partitions(again.initialOffset(), start) == []
    reader.stop()
    again.stop()


def test_a_first_batch_that_runs_again_begins_where_it_began(
    bootstrap: str, create_topic: CreateTopic, producer: Producer
) -> None:
    topic = create_topic()
    send(producer, topic, "before")
    reader = stream_reader(bootstrap, subscribe=topic, startingOffsets="latest")
    start = reader.initialOffset()
    send(producer, topic, "first", "second")
    end = reader.latestOffset(start, ReadAllAvailable())
    ids = {IDS: {topic: str(id_of(bootstrap, topic))}}
    assert end == {topic: {"0": 3}, INITIAL: {topic: {"0": 1}} | ids} | ids
    send(producer, topic, "third")
    assert reader.initialOffset() == start

    again = stream_reader(bootstrap, subscribe=topic, startingOffsets="latest")
    late_start = again.initialOffset()
    assert late_start[topic] == {"0": 4}
    planned = again.partitions(late_start, end)
    assert [row["value"] for row in rows(again, planned)] == [b"first", b"second"]
    following = again.latestOffset(end, ReadAllAvailable())
    assert following == {topic: {"0": 4}} | ids
    assert ranges(again.partitions(end, following)) == [(0, 3, 4)]
    reader.stop()
    again.stop()


def test_new_partitions_are_found_and_read_from_their_beginning(
    bootstrap: str, create_topic: CreateTopic, producer: Producer
) -> None:
    topic = create_topic()
    reader = stream_reader(bootstrap, subscribe=topic, startingOffsets="latest")
    start = reader.initialOffset()
    with Admin(bootstrap) as admin:
        admin.create_partitions(topic, 2)
    with Producer(bootstrap) as aware:
        send(aware, topic, "new", partition=1)
    end = reader.latestOffset(start, ReadMaxRows(100))
    ids = {IDS: {topic: str(id_of(bootstrap, topic))}}
    assert end == {topic: {"0": 0, "1": 1}, INITIAL: {topic: {"0": 0}} | ids} | ids
    assert ranges(reader.partitions(start, end)) == [(1, 0, 1)]
    reader.stop()


def test_a_topic_that_was_deleted_is_a_loss(
    bootstrap: str, create_topic: CreateTopic, producer: Producer
) -> None:
    kept, deleted = create_topic(), create_topic()
    send(producer, kept, "a")
    send(producer, deleted, "b")
    subscribed = {"subscribe": f"{kept},{deleted}", "startingOffsets": "earliest"}
    reader = stream_reader(bootstrap, **subscribed)
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    send(producer, kept, "c")
    with Admin(bootstrap) as admin:
        admin.delete_topics(deleted)
    end = reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLossError, match=f"{deleted}-0 is gone"):
        reader.partitions(start, end)
    reader.stop()
    tolerant = stream_reader(bootstrap, **subscribed, failOnDataLoss="false")
    assert [row["value"] for row in rows(tolerant, tolerant.partitions(start, end))] == [b"c"]
    tolerant.stop()


OLD, NEW = ("old0", "old1", "old2"), tuple(f"new{number}" for number in range(5))


def test_a_topic_that_was_made_anew_is_not_read_from_the_old_offset(
    bootstrap: str,
    create_topic: CreateTopic,
    producer: Producer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = create_topic()
    send(producer, topic, *OLD)
    reader = stream_reader(bootstrap, subscribe=topic, startingOffsets="earliest")
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    make_anew(bootstrap, topic)
    with Producer(bootstrap) as after:
        send(after, topic, *NEW)
    end = reader.latestOffset(start, ReadAllAvailable())
    sentence = f"the topic {topic} was deleted and made anew after offset 3 of partition 0 was read"
    with pytest.raises(DataLossError, match=sentence + ". Set failOnDataLoss to false"):
        reader.partitions(start, end)
    reader.stop()
    # The query is started again with the same checkpoint, which has the end already.
    tolerant = stream_reader(bootstrap, subscribe=topic, failOnDataLoss="false")
    values = [row["value"].decode() for row in rows(tolerant, tolerant.partitions(start, end))]
    assert values == list(NEW)
    assert sentence in caplog.text
    assert tolerant.latestOffset(end, ReadAllAvailable()) == end
    tolerant.stop()


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(100)])
def test_a_topic_that_was_made_anew_with_as_many_records_is_noticed(
    bootstrap: str,
    create_topic: CreateTopic,
    producer: Producer,
    limit: ReadAllAvailable | ReadMaxRows,
) -> None:
    topic = create_topic()
    send(producer, topic, *OLD)
    reader = stream_reader(bootstrap, subscribe=topic, startingOffsets="earliest")
    start = reader.latestOffset(reader.initialOffset(), limit)
    make_anew(bootstrap, topic)
    with Producer(bootstrap) as after:
        send(after, topic, *NEW[:3])
    end = reader.latestOffset(start, limit)
    assert end != start
    with pytest.raises(DataLossError, match="was deleted and made anew"):
        reader.partitions(start, end)
    reader.stop()


def planned(reader: StreamReader) -> tuple[JsonOffsets, JsonOffsets]:
    start = reader.initialOffset()
    return start, reader.latestOffset(start, ReadAllAvailable())


def test_a_planned_batch_does_not_read_its_offsets_from_a_topic_that_was_made_anew(
    bootstrap: str,
    create_topic: CreateTopic,
    producer: Producer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = create_topic()
    send(producer, topic, *OLD)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    reader = stream_reader(bootstrap, **options)
    tolerant = stream_reader(bootstrap, **options, failOnDataLoss="false")
    start, end = planned(reader)
    tasks, tolerant_tasks = reader.partitions(start, end), tolerant.partitions(start, end)
    make_anew(bootstrap, topic)
    with Producer(bootstrap) as after:
        send(after, topic, *NEW)
    with pytest.raises(DataLossError, match="and offsets 0 to 2 of its partition 0 are gone"):
        rows(reader, tasks)
    assert rows(tolerant, tolerant_tasks) == []
    assert "and offsets 0 to 2 of its partition 0 are gone" in caplog.text
    # The same if Spark runs the batch again, and plans it anew.
    with pytest.raises(DataLossError, match="and what this batch had of it is gone"):
        reader.partitions(start, end)
    assert tolerant.partitions(start, end) == []
    following = tolerant.latestOffset(end, ReadAllAvailable())
    values = [row["value"].decode() for row in rows(tolerant, tolerant.partitions(end, following))]
    assert values == list(NEW)
    reader.stop()
    tolerant.stop()


def test_a_topic_that_is_made_anew_while_a_task_reads_it_fails_the_task(
    bootstrap: str,
    create_topic: CreateTopic,
    producer: Producer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = create_topic()
    send(producer, topic, *OLD)
    reader = batch_reader(bootstrap, subscribe=topic, failOnDataLoss="false")
    tasks = reader.partitions()
    fetch = reader_module._fetch_range

    def slow(options: ReadOptions, wanted: OffsetRange) -> Iterator[FetchedBatch]:
        make_anew(bootstrap, topic)
        with Producer(bootstrap) as after:
            send(after, topic, *NEW)
        yield from fetch(options, wanted)

    monkeypatch.setattr(reader_module, "_fetch_range", slow)
    with pytest.raises(DataLossError, match="are gone, while a task read them"):
        rows(reader, tasks)


def test_a_checkpoint_without_ids_is_read_on(
    bootstrap: str, create_topic: CreateTopic, producer: Producer
) -> None:
    topic = create_topic()
    send(producer, topic, *OLD)
    reader = stream_reader(bootstrap, subscribe=topic)
    start = {topic: {"0": 1}}  # as an earlier version wrote it
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {topic: {"0": 3}, IDS: {topic: str(id_of(bootstrap, topic))}}
    assert ranges(reader.partitions(start, end)) == [(0, 1, 3)]
    assert ranges(reader.partitions(start, {topic: {"0": 3}})) == [(0, 1, 3)]
    assert reader.latestOffset({topic: {"0": 3}}, ReadAllAvailable()) == {topic: {"0": 3}}
    reader.stop()

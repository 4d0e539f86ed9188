"""What a read plans and what its tasks find, against a broker and without Spark."""

import time

import pytest
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
    UnreadableRecords,
    chunks,
    fetch_range,
)
from odradek.client.types import EARLIEST, TopicPartition
from tests.spark.conftest import CreateTopic
from tests.spark.reading import abort, batch_reader, id_of, parse, ranges, rows, send, stream_reader


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
    with pytest.raises(
        DataLossError, match=f"{topic}-0 ends at offset 2, and this read ends at 9. Set fail"
    ):
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


def test_a_damaged_batch_is_named_by_its_partition_and_offsets(
    bootstrap: str, create_topic: CreateTopic, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create_topic()
    send(producer, topic, "a", "b")
    reader = batch_reader(bootstrap, subscribe=topic)
    [task] = reader.partitions()
    assert isinstance(task, RangePartition)
    batches = list(fetch_range(reader._options, task.offset_range))
    # The value of the last record is longer than the record: brokers do not look at that.
    last = batches[-1]
    damaged = [
        *batches[:-1],
        last._replace(data=memoryview(bytes(last.data).replace(b"\2b", b"\x08b"))),
    ]
    monkeypatch.setattr(reader_module, "fetch_range", lambda *_: iter(damaged))
    with pytest.raises(UnreadableRecords, match=f"^{topic}-0 .* offsets 0 to 1 .*startingOffsets"):
        rows(reader, [task])


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

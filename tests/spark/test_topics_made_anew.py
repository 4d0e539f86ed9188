"""A topic that is deleted and made anew while a stream reads it, without Spark."""

from collections.abc import Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from odradek.client.blocking import Producer
from odradek.client.spark import reader as reader_module
from odradek.client.spark.offsets import IDS, DataLossError, OffsetRange
from odradek.client.spark.options import ReadOptions
from odradek.client.spark.stream_reader import JsonOffsets, StreamReader
from odradek.client.types import FetchedBatch
from tests.spark.conftest import CreateTopic
from tests.spark.reading import batch_reader, id_of, make_anew, ranges, rows, send, stream_reader

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


def test_a_topic_that_was_made_anew_before_the_first_batch_is_read_once(
    bootstrap: str, create_topic: CreateTopic, producer: Producer
) -> None:
    topic = create_topic()
    send(producer, topic, *OLD)
    reader = stream_reader(bootstrap, subscribe=topic, failOnDataLoss="false")
    start = reader.initialOffset()
    make_anew(bootstrap, topic)
    found: list[str] = []
    with Producer(bootstrap) as after:
        for values in (NEW[:3], NEW[3:]):  # the first batch ends at the offset of the query's start
            send(after, topic, *values)
            end = reader.latestOffset(start, ReadAllAvailable())
            found += [row["value"].decode() for row in rows(reader, reader.partitions(start, end))]
            start = end
    assert found == list(NEW)
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

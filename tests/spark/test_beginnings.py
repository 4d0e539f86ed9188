"""What is told when a read or a write begins: a mode that is not there, a host that is wrong."""

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from odradek.client.errors import Disconnected, TimedOut
from odradek.client.spark import reader, task_writer
from odradek.client.spark.commit import BatchCommit
from odradek.client.spark.decisions import decisions_topic
from odradek.client.spark.members import Attempt
from odradek.client.spark.options import (
    PREFIX_DEFAULT,
    OptionError,
    Topics,
    read_options,
    write_options,
)
from odradek.client.spark.reader import PartitionOffsets, choose_topics
from odradek.client.spark.source import OdradekSource
from odradek.client.spark.task_writer import TaskWriter
from odradek.client.types import DECISIONS_DEFAULT

NOWHERE = {"kafka.bootstrap.servers": "127.0.0.1:1"}
VALUES = StructType([StructField("value", BinaryType())])


def test_a_batch_that_would_overwrite_a_topic_is_refused_as_the_connector_does() -> None:
    source = OdradekSource({**NOWHERE, "topic": "t"})
    with pytest.raises(OptionError, match=r"^Save mode Overwrite not allowed for Kafka\. Allowed"):
        source.writer(VALUES, True)
    assert source.writer(VALUES, False) is not None


def test_a_read_from_a_wrong_host_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "FIRST_CONNECT_MS", 1_000)  # time to hear why it is refused
    options = read_options({**NOWHERE, "subscribe": "t"}, "batch")
    with (
        PartitionOffsets(options) as broker,
        pytest.raises(Disconnected, match=r"127\.0\.0\.1:1 .*no broker was reached within 1000 ms"),
    ):
        broker.partitions()


@pytest.mark.parametrize("batch_id", [None, 0])
def test_a_write_to_a_wrong_host_is_told_soon(
    monkeypatch: pytest.MonkeyPatch, batch_id: int | None
) -> None:
    monkeypatch.setattr(task_writer, "FIRST_CONNECT_MS", 30)
    options = write_options({**NOWHERE, "topic": "t"}, "batch")
    attempt = Attempt(write_id="w", batch_id=batch_id, run="r", partition=0, attempt=0)
    rows = iter([pa.record_batch({"value": [b"v"]})])
    with pytest.raises(Disconnected, match="no broker was reached within 30 ms"):
        TaskWriter(options, attempt, begins=True).write(rows)


def test_what_has_begun_waits_for_a_broker_as_long_as_a_call_may_take() -> None:
    """The broker restarts between two micro-batches, each of which opens its connections."""
    options = write_options({**NOWHERE, "topic": "t", "kafka.max.block.ms": "50"}, "stream")
    attempt = Attempt(write_id="w", batch_id=5, run="r", partition=0, attempt=0)
    assert TaskWriter(options, attempt, begins=True)._client["first_connect_ms"] == 7_000
    assert TaskWriter(options, attempt, begins=False)._client["first_connect_ms"] is None
    read = read_options({**NOWHERE, "subscribe": "t"}, "stream")
    assert read.client["first_connect_ms"] is options.client["first_connect_ms"] is None
    with pytest.raises(TimedOut, match=r"not done within 50 ms \(.*127.0.0.1:1"):
        BatchCommit(options, "w").commit(5, [])


def test_a_pattern_does_not_read_the_decisions_of_the_sink() -> None:
    everything = read_options({**NOWHERE, "subscribePattern": ".*"}, "batch").topics
    there = ["flights", DECISIONS_DEFAULT]
    assert choose_topics(everything, there, allow_missing=False) == ["flights"]
    named = Topics(subscribed=(DECISIONS_DEFAULT,))
    assert choose_topics(named, there, allow_missing=False) == [DECISIONS_DEFAULT]


def test_the_topic_that_counts_as_internal_is_the_one_that_the_sink_writes() -> None:
    options = write_options({**NOWHERE, "topic": "t"}, "batch")
    assert options.prefix == PREFIX_DEFAULT
    assert decisions_topic(options.prefix) == DECISIONS_DEFAULT

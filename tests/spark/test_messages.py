"""Only what every task has finished is committed, and only what this driver understands."""

import pickle

import pytest
from pyspark.sql.types import StructType

from odradek.client.spark.errors import CommitRefused
from odradek.client.spark.messages import MESSAGE_VERSION, TaskMessage, TopicBatch, checked
from odradek.client.spark.options import WriteOptions
from odradek.client.spark.writer import Committer

BATCH = TopicBatch(topic="t", partition=0, record_count=2, data=b"x" * 100)


def message(
    *,
    write_id: str = "query",
    batch_id: int | None = 3,
    query_id: str | None = None,
    version: int = MESSAGE_VERSION,
) -> TaskMessage:
    return TaskMessage(
        write_id=write_id, batch_id=batch_id, query_id=query_id, batches=(BATCH,), version=version
    )


def committer(relay_max_bytes: int) -> Committer:
    options = WriteOptions(bootstrap="nowhere:1", topic="t", relay_max_bytes=relay_max_bytes)
    return Committer(options, StructType().add("value", "string"))


def test_a_message_travels_as_spark_sends_it() -> None:
    assert pickle.loads(pickle.dumps(message())) == message()
    assert checked([message(), message()])[1].size_bytes == 100


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([message(), None], "Task 1 of 2 has no result to commit: nothing is written."),
        ([message(version=9)], "version 9 of the message, and this driver knows version 3: inst"),
        ([message(), message(batch_id=4)], "The tasks belong to different writes"),
        ([message(), message(write_id="other")], "The tasks belong to different writes"),
        ([message(), message(query_id="other")], "The tasks belong to different writes"),
    ],
)
def test_what_is_not_complete_or_not_understood_is_refused(
    messages: list[TaskMessage | None], sentence: str
) -> None:
    with pytest.raises(CommitRefused, match=sentence):
        checked(messages)


def test_another_batch_than_sparks_is_refused() -> None:
    with pytest.raises(CommitRefused, match="Spark commits batch 5, and tasks wrote 3"):
        committer(relay_max_bytes=1000).commit_messages([message()], 5)


def test_more_than_a_driver_may_relay_is_refused_before_anything_is_written() -> None:
    with pytest.raises(CommitRefused, match=r"has 200 bytes .* is 199: nothing is written"):
        committer(relay_max_bytes=199).commit_messages([message(), message()], 3)

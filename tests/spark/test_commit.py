"""The commit protocol against a broker, without Spark: who may commit, and what is skipped."""

import time
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from odradek.client.blocking import Aborted, Admin, Consumer, Fenced, Producer, Transaction
from odradek.client.errors import TimedOut
from odradek.client.spark import decisions as decisions_module
from odradek.client.spark.batch_encoder import RecordColumns, encode
from odradek.client.spark.commit import BatchCommit, StaleDriver
from odradek.client.spark.decisions import UNDECIDED, Decision
from odradek.client.spark.errors import CommitRefused
from odradek.client.spark.members import transactional_id
from odradek.client.spark.messages import TaskMessage, TopicBatch
from odradek.client.spark.options import Application, WriteOptions
from odradek.client.types import OffsetAndMetadata
from tests.peers.kafka import RealKafka
from tests.spark.conftest import CreateTopic, ReadTopic


def batches_of(topic: str, *values: bytes, partition: int = 0) -> list[TopicBatch]:
    column = pa.array(list(values), pa.binary())
    now_ms = int(time.time() * 1000)  # retention would delete records of 1970
    encoded = encode(RecordColumns(value=column), timestamp_ms=now_ms, batch_max_bytes=1 << 20)
    return [
        TopicBatch(
            topic=topic, partition=partition, record_count=batch.record_count, data=batch.data
        )
        for batch in encoded
    ]


def commit(batch_commit: BatchCommit, batch_id: int | None, batches: list[TopicBatch]) -> bool:
    """Commit the records of one task, which were relayed."""
    message = TaskMessage(write_id="any", batch_id=batch_id, batches=tuple(batches))
    return batch_commit.commit(batch_id, [message])


@pytest.fixture
def options(bootstrap: str, unique: Callable[[str], str]) -> WriteOptions:
    return WriteOptions(bootstrap=bootstrap, prefix=unique("sink"))


@pytest.fixture
def topic(create_topic: CreateTopic) -> str:
    return create_topic(partitions=2)


def test_a_batch_is_written_once_however_often_it_is_committed(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    first = batches_of(topic, b"a", b"b") + batches_of(topic, b"c", partition=1)
    assert commit(BatchCommit(options, "query"), 0, first)
    assert not commit(
        BatchCommit(options, "query"), 0, batches_of(topic, b"another order of the rows")
    )
    assert commit(BatchCommit(options, "query"), 1, batches_of(topic, b"d"))
    assert not commit(BatchCommit(options, "query"), 1, batches_of(topic, b"d"))
    assert [(record.partition, record.value) for record in read_topic(topic)] == [
        (0, b"a"),
        (0, b"b"),
        (0, b"d"),
        (1, b"c"),
    ]


def test_queries_do_not_see_each_others_decisions(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    for query in ("one", "two", "three"):
        assert commit(BatchCommit(options, query), 5, batches_of(topic, query.encode()))
    assert [record.value for record in read_topic(topic)] == [b"one", b"two", b"three"]


def test_an_empty_batch_is_decided_as_well(options: WriteOptions) -> None:
    assert commit(BatchCommit(options, "query"), 0, [])
    assert not commit(BatchCommit(options, "query"), 0, [])


def test_a_driver_behind_the_decision_must_stop(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    commit(BatchCommit(options, "query"), 7, batches_of(topic, b"seven"))
    with pytest.raises(StaleDriver, match="Batch 3 of query is out of date, for batch 7 has been"):
        commit(BatchCommit(options, "query"), 3, batches_of(topic, b"three"))
    assert [record.value for record in read_topic(topic)] == [b"seven"]


def test_an_application_whose_version_is_lower_than_before_is_told_so(
    options: WriteOptions, topic: str
) -> None:
    to_topic = replace(options, topic=topic, application=APPLICATION)
    written(BatchCommit(to_topic, "app"), topic, 7, b"seven")
    with pytest.raises(StaleDriver, match="a write with a higher txnVersion") as caught:
        written(BatchCommit(to_topic, "app"), topic, 3, b"three")
    assert "checkpoint" not in str(caught.value)
    written(BatchCommit(to_topic, "app", "query"), topic, 8, b"eight")
    with pytest.raises(StaleDriver, match="or begin with a new checkpoint"):
        written(BatchCommit(to_topic, "app", "query"), topic, 3, b"three")


def test_without_a_batch_id_every_commit_writes(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    assert commit(BatchCommit(options, "job"), None, batches_of(topic, b"x"))
    assert commit(BatchCommit(options, "job"), None, batches_of(topic, b"x"))
    assert [record.value for record in read_topic(topic)] == [b"x", b"x"]


APPLICATION = Application(application_id="app", version=0)


def made_anew(options: WriteOptions, topic: str) -> None:
    with Admin(options.bootstrap) as admin:
        admin.delete_topics(topic)
        admin.create_topic(topic, partitions=2)


def written(batch_commit: BatchCommit, topic: str, batch_id: int, value: bytes) -> bool:
    return commit(batch_commit, batch_id, batches_of(topic, value))


def test_a_batch_for_two_topics_is_not_lost_for_the_second_one(
    options: WriteOptions, create_topic: CreateTopic, read_topic: ReadTopic
) -> None:
    topics = [create_topic(), create_topic()]
    for batch_id in range(3):
        for topic in topics:
            to_topic = replace(
                options,
                topic=topic,
                application=APPLICATION,
            )
            assert written(BatchCommit(to_topic, "app"), topic, batch_id, b"%d" % batch_id)
            assert not written(BatchCommit(to_topic, "app"), topic, batch_id, b"again")
    for topic in topics:
        assert [record.value for record in read_topic(topic)] == [b"0", b"1", b"2"]


def test_two_targets_are_written_at_the_same_time(
    options: WriteOptions, create_topic: CreateTopic, read_topic: ReadTopic
) -> None:
    one, two = create_topic(), create_topic()
    other = BatchCommit(replace(options, topic=two), "query")

    class WithAnother(BatchCommit):
        def is_decided(self, batch_id: int, hint: Decision, offset: int) -> bool:
            assert written(other, two, batch_id, b"two")
            return super().is_decided(batch_id, hint, offset)

    assert written(WithAnother(replace(options, topic=one), "query"), one, 0, b"one")
    assert [record.value for record in read_topic(one)] == [b"one"]
    assert [record.value for record in read_topic(two)] == [b"two"]


def test_a_topic_that_was_made_anew_is_written_again(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    to_topic = replace(options, topic=topic)
    assert written(BatchCommit(to_topic, "query"), topic, 4, b"old")
    made_anew(options, topic)
    assert written(BatchCommit(to_topic, "query"), topic, 4, b"new")
    assert not written(BatchCommit(to_topic, "query"), topic, 4, b"again")
    assert [record.value for record in read_topic(topic)] == [b"new"]


def test_a_topic_that_is_made_anew_while_a_batch_is_written_does_not_get_half_of_it(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    to_topic = replace(options, topic=topic)

    class MadeAnewMeanwhile(BatchCommit):
        def is_decided(self, batch_id: int, hint: Decision, offset: int) -> bool:
            made_anew(options, topic)
            return super().is_decided(batch_id, hint, offset)

    with pytest.raises(CommitRefused, match="was deleted or made anew while query wrote to it"):
        written(MadeAnewMeanwhile(to_topic, "query"), topic, 0, b"half")
    assert written(BatchCommit(to_topic, "query"), topic, 0, b"whole")
    assert [record.value for record in read_topic(topic)] == [b"whole"]


def test_a_write_by_rows_and_one_with_a_topic_share_no_decision(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    assert written(BatchCommit(options, "app"), topic, 3, b"by rows")
    assert written(BatchCommit(replace(options, topic=topic), "app"), topic, 3, b"by option")
    assert not written(BatchCommit(options, "app"), topic, 3, b"again")
    assert len(read_topic(topic)) == 2


def test_a_new_checkpoint_of_the_same_application_is_not_taken_for_the_old_one(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    to_topic = replace(options, topic=topic, application=APPLICATION)
    for query in ("old", "new"):
        for batch_id in range(2):
            value = f"{query} {batch_id}".encode()
            assert written(BatchCommit(to_topic, "app", query), topic, batch_id, value)
            # The checkpoint was moved or restored: it has the same id.
            assert not written(BatchCommit(to_topic, "app", query), topic, batch_id, b"again")
    assert len(read_topic(topic)) == 4


def test_what_is_skipped_is_a_line_that_says_what_it_was_taken_for(
    options: WriteOptions, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    to_topic = replace(options, topic=topic, application=APPLICATION)
    assert written(BatchCommit(to_topic, "app", "query"), topic, 1, b"one")
    assert caplog.records == []
    assert not written(BatchCommit(to_topic, "app", "query"), topic, 1, b"one")
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"Batch 1 of app is not written to the topic {topic} (id ")
    assert "taken for a repetition: the decision at offset" in line
    assert "retry" not in line
    caplog.clear()
    assert not written(BatchCommit(to_topic, "app"), topic, 1, b"by hand")
    (line,) = [record.getMessage() for record in caplog.records]
    assert "This write has no query id (it ran outside foreachBatch), so it cannot be told" in line


def decided_by_an_earlier_version(options: WriteOptions, write_id: str, batch_id: int) -> None:
    """Write a decision without a target."""
    decisions = BatchCommit(options, write_id).decisions
    decisions.ensure_topic()
    with Producer(options.bootstrap) as producer:
        value = b'{"version": 1, "batch": %d, "records": 1, "members": 0}' % batch_id
        place = decisions.place
        producer.send(place.topic, value, key=write_id.encode(), partition=place.partition).result()


def test_a_decision_of_an_earlier_version_counts_for_the_batch_after_the_upgrade(
    options: WriteOptions,
    create_topic: CreateTopic,
    read_topic: ReadTopic,
    caplog: pytest.LogCaptureFixture,
) -> None:
    decided_by_an_earlier_version(options, "query", 7)
    topics = [create_topic(), create_topic()]
    for topic in topics:
        to_topic = replace(options, topic=topic)
        assert not written(BatchCommit(to_topic, "query"), topic, 7, b"seven")
        assert "is of an earlier version, which did not note the target" in caplog.text
        caplog.clear()
        with pytest.raises(StaleDriver, match=r"batch 7 has been .* of an earlier version"):
            written(BatchCommit(to_topic, "query"), topic, 6, b"six")
        assert written(BatchCommit(to_topic, "query"), topic, 8, b"eight")
        assert not written(BatchCommit(to_topic, "query"), topic, 8, b"again")
        assert [record.value for record in read_topic(topic)] == [b"eight"]


def test_a_driver_of_an_earlier_version_that_was_given_up_is_fenced(
    options: WriteOptions, topic: str
) -> None:
    earlier = transactional_id(f"{options.prefix}.query", "driver")
    with Producer(options.bootstrap, transactional_id=earlier) as old:
        assert written(BatchCommit(replace(options, topic=topic), "query"), topic, 0, b"new")
        with pytest.raises((Fenced, Aborted)), old.transaction() as transaction:
            transaction.send(topic, b"old").result()


class Overtaken(BatchCommit):
    """While it commits, another driver of the same query does the same batch."""

    def __init__(self, options: WriteOptions, write_id: str, other: list[TopicBatch]) -> None:
        super().__init__(options, write_id)
        self._other = other

    def is_decided(self, batch_id: int, hint: Decision, offset: int) -> bool:
        is_decided = super().is_decided(batch_id, hint, offset)
        assert commit(BatchCommit(self._options, self._write_id), batch_id, self._other)
        return is_decided


def test_a_zombie_cannot_commit_after_another_driver_took_over(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    commit(BatchCommit(options, "query"), 0, batches_of(topic, b"zero"))
    overtaken = Overtaken(options, "query", batches_of(topic, b"one"))
    # In a query that is the sentence for a checkpoint which two queries use.
    with pytest.raises(CommitRefused, match=r"If two queries use one checkpoint, .* stop one of"):
        commit(overtaken, 1, batches_of(topic, b"one, from a zombie"))
    assert [record.value for record in read_topic(topic)] == [b"zero", b"one"]
    assert not commit(BatchCommit(options, "query"), 1, batches_of(topic, b"one"))


class DiesBeforeTheEnd(BatchCommit):
    """Leaves its transaction open, as a process does that is killed."""

    def point_to(self, transaction: Transaction, batch_id: int | None, offset: int) -> None:
        super().point_to(transaction, batch_id, offset)
        transaction.flush()
        raise KeyboardInterrupt


def test_what_was_not_decided_is_written_by_the_next(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    with pytest.raises(KeyboardInterrupt):
        commit(DiesBeforeTheEnd(options, "query"), 0, batches_of(topic, b"a"))
    assert commit(BatchCommit(options, "query"), 0, batches_of(topic, b"a"))
    assert [record.value for record in read_topic(topic)] == [b"a"]
    assert [record.value for record in read_topic(topic, "read_uncommitted")] == [b"a", b"a"]


def newest_of(batch_commit: BatchCommit) -> int:
    """The newest batch that is decided, as a commit finds it."""
    decisions = batch_commit.decisions
    with Consumer(batch_commit._options.bootstrap, isolation_level="read_uncommitted") as consumer:
        end = consumer.end_offsets([decisions.place])[decisions.place]
    return decisions.newest(decisions.hint(is_driver=True), end).batch_id


def store_offset(
    options: WriteOptions, batch_commit: BatchCommit, stored: OffsetAndMetadata
) -> None:
    with Consumer(options.bootstrap, group_id=batch_commit.decisions.group_id) as consumer:
        consumer.commit({batch_commit.decisions.place: stored})


@pytest.mark.parametrize("batch_id", [0, 1])
def test_the_record_decides_where_the_groups_offset_was_set_back(
    options: WriteOptions, topic: str, read_topic: ReadTopic, batch_id: int
) -> None:
    for number in range(3):
        commit(BatchCommit(options, "query"), number, batches_of(topic, b"%d" % number))
    again = BatchCommit(options, "query")
    store_offset(options, again, OffsetAndMetadata(batch_id))
    assert newest_of(again) == 2
    assert not commit(again, 2, batches_of(topic, b"again"))
    assert len(read_topic(topic)) == 3


@pytest.mark.parametrize("batch_id", [1, 9])
def test_the_record_decides_where_the_groups_offset_was_set_forward(
    options: WriteOptions, topic: str, read_topic: ReadTopic, batch_id: int
) -> None:
    commit(BatchCommit(options, "query"), 0, batches_of(topic, b"zero"))
    again = BatchCommit(options, "query")
    store_offset(options, again, OffsetAndMetadata(batch_id))
    assert newest_of(again) == 0
    assert again.decisions.hint(is_driver=False).batch_id == UNDECIDED
    assert commit(again, 1, batches_of(topic, b"one"))
    assert [record.value for record in read_topic(topic)] == [b"zero", b"one"]


def test_the_record_decides_where_the_groups_offset_is_forgotten(
    options: WriteOptions, topic: str
) -> None:
    class Forgetful(BatchCommit):
        """Its group has no offset: as after 7 days without a commit."""

        def __init__(self) -> None:
            super().__init__(options, "query")
            self.decisions.hint = lambda **_: Decision(  # type: ignore[method-assign]
                scope=self.scope, batch_id=-1, offset=-1
            )

    commit(BatchCommit(options, "query"), 4, batches_of(topic, b"four"))
    commit(BatchCommit(options, "other"), 9, batches_of(topic, b"nine"))
    assert newest_of(Forgetful()) == 4
    assert not commit(Forgetful(), 4, batches_of(topic, b"four"))


def test_a_decision_behind_another_querys_open_transaction_is_waited_for(
    options: WriteOptions, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = BatchCommit(options, "query")
    place = query.decisions.place
    commit(query, 0, batches_of(topic, b"zero"))
    with Producer(options.bootstrap, transactional_id=f"{options.prefix}.other") as producer:
        with producer.transaction() as transaction:
            transaction.send(place.topic, b"{}", key=b"other", partition=place.partition)
            transaction.flush()
            commit(query, 1, batches_of(topic, b"one"))  # its offset is there: nothing to wait for
            store_offset(options, query, OffsetAndMetadata(0))
            with monkeypatch.context() as patch:
                patch.setattr(decisions_module, "READ_TIMEOUT_S", 0.2)
                with pytest.raises(TimedOut, match="an open transaction of another query"):
                    newest_of(query)
        assert newest_of(query) == 1


def test_an_older_decision_written_by_hand_does_not_count(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    query = BatchCommit(options, "query")
    for number in range(2):
        commit(query, number, batches_of(topic, b"%d" % number))
    place = query.decisions.place
    with Producer(options.bootstrap) as producer:
        older = b'{"version": 1, "batch": 0}'
        producer.send(place.topic, older, key=b"query", partition=place.partition).result()
    assert newest_of(query) == 1
    assert not commit(query, 1, batches_of(topic, b"again"))
    assert len(read_topic(topic)) == 2


@pytest.mark.parametrize("value", [b"not json", b"[]", b'{"batch": "x"}', b"{}"])
def test_a_record_that_is_no_decision_stops_the_query_with_a_sentence(
    options: WriteOptions, topic: str, read_topic: ReadTopic, value: bytes
) -> None:
    query = BatchCommit(options, "query")
    commit(query, 0, batches_of(topic, b"zero"))
    place = query.decisions.place
    with Producer(options.bootstrap) as producer:
        producer.send(place.topic, value, key=b"query", partition=place.partition).result()
    with pytest.raises(CommitRefused, match=r"has the key of query and is no decision .* delete"):
        commit(query, 1, batches_of(topic, b"one"))
    assert [record.value for record in read_topic(topic)] == [b"zero"]


@pytest.mark.peers
def test_the_group_mode_is_refused_by_a_real_kafka_in_words(real_kafka: RealKafka) -> None:
    options = WriteOptions(bootstrap=real_kafka.address, topic="t", mode="group")
    with pytest.raises(CommitRefused, match="the broker has no transaction groups: nothing is"):
        commit(BatchCommit(options, "query"), 0, [])
    # Without the option the driver writes for the tasks: all the tests above do that on Kafka.

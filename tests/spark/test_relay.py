"""The commit protocol against a broker, without Spark: who may commit, and what is skipped."""

import time
from collections.abc import Callable

import pyarrow as pa
import pytest

from odradek.client.blocking import Aborted, Consumer, Fenced, Producer
from odradek.client.spark import relay as relay_module
from odradek.client.spark.batch_encoder import RecordColumns, encode
from odradek.client.spark.messages import TopicBatch
from odradek.client.spark.options import WriteOptions
from odradek.client.spark.relay import Decision, Relay, StaleDriver
from odradek.client.types import OffsetAndMetadata
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
    assert Relay(options, "query").commit(0, first)
    assert not Relay(options, "query").commit(0, batches_of(topic, b"another order of the rows"))
    assert Relay(options, "query").commit(1, batches_of(topic, b"d"))
    assert not Relay(options, "query").commit(1, batches_of(topic, b"d"))
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
        assert Relay(options, query).commit(5, batches_of(topic, query.encode()))
    assert [record.value for record in read_topic(topic)] == [b"one", b"two", b"three"]


def test_an_empty_batch_is_decided_as_well(options: WriteOptions) -> None:
    assert Relay(options, "query").commit(0, [])
    assert not Relay(options, "query").commit(0, [])


def test_a_driver_behind_the_decision_must_stop(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    Relay(options, "query").commit(7, batches_of(topic, b"seven"))
    with pytest.raises(StaleDriver, match="Batch 3 of query is out of date, for batch 7 has been"):
        Relay(options, "query").commit(3, batches_of(topic, b"three"))
    assert [record.value for record in read_topic(topic)] == [b"seven"]


def test_without_a_batch_id_every_commit_writes(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    assert Relay(options, "job").commit(None, batches_of(topic, b"x"))
    assert Relay(options, "job").commit(None, batches_of(topic, b"x"))
    assert [record.value for record in read_topic(topic)] == [b"x", b"x"]


class Overtaken(Relay):
    """While it commits, another driver of the same query does the same batch."""

    def __init__(self, options: WriteOptions, write_id: str, other: list[TopicBatch]) -> None:
        super().__init__(options, write_id)
        self._other = other

    def newest_decision(self) -> Decision:
        newest = super().newest_decision()
        assert Relay(self._options, self._write_id).commit(newest.batch_id + 1, self._other)
        return newest


def test_a_zombie_cannot_commit_after_another_driver_took_over(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    Relay(options, "query").commit(0, batches_of(topic, b"zero"))
    overtaken = Overtaken(options, "query", batches_of(topic, b"one"))
    # Aborted: a partition's refusal came before the coordinator's word that it was fenced.
    with pytest.raises((Fenced, Aborted), match=r"fence[ds]"):
        overtaken.commit(1, batches_of(topic, b"one, from a zombie"))
    assert [record.value for record in read_topic(topic)] == [b"zero", b"one"]
    assert not Relay(options, "query").commit(1, batches_of(topic, b"one"))


class DiesBeforeTheEnd(Relay):
    """Leaves its transaction open, as a process does that is killed."""

    def decide(self, transaction: object, batch_id: int, batches: object) -> None:
        super().decide(transaction, batch_id, batches)  # type: ignore[arg-type]
        transaction.flush()  # type: ignore[attr-defined]
        raise KeyboardInterrupt


def test_what_was_not_decided_is_written_by_the_next(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    with pytest.raises(KeyboardInterrupt):
        DiesBeforeTheEnd(options, "query").commit(0, batches_of(topic, b"a"))
    assert Relay(options, "query").commit(0, batches_of(topic, b"a"))
    assert [record.value for record in read_topic(topic)] == [b"a"]
    assert [record.value for record in read_topic(topic, "read_uncommitted")] == [b"a", b"a"]


def store_offset(options: WriteOptions, relay: Relay, stored: OffsetAndMetadata) -> None:
    with Consumer(options.bootstrap, group_id=relay.group_id) as consumer:
        consumer.commit({relay.decisions: stored})


@pytest.mark.parametrize("batch_id", [0, 1])
def test_the_record_decides_where_the_groups_offset_was_set_back(
    options: WriteOptions, topic: str, read_topic: ReadTopic, batch_id: int
) -> None:
    for number in range(3):
        Relay(options, "query").commit(number, batches_of(topic, b"%d" % number))
    relay = Relay(options, "query")
    store_offset(options, relay, OffsetAndMetadata(batch_id))
    assert relay.newest_decision().batch_id == 2
    assert not relay.commit(2, batches_of(topic, b"again"))
    assert len(read_topic(topic)) == 3


def test_the_record_decides_where_the_groups_offset_is_forgotten(
    options: WriteOptions, topic: str
) -> None:
    class Forgetful(Relay):
        """Its group is another one, which has no offset: as after 7 days without a commit."""

        def __init__(self) -> None:
            super().__init__(options, "query")
            self.group_id += "-forgotten"

    Relay(options, "query").commit(4, batches_of(topic, b"four"))
    Relay(options, "other").commit(9, batches_of(topic, b"nine"))
    assert Forgetful().newest_decision().batch_id == 4
    assert not Forgetful().commit(4, batches_of(topic, b"four"))


def test_decisions_behind_another_querys_open_transaction_are_waited_for(
    options: WriteOptions, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = Relay(options, "query")
    relay.commit(0, batches_of(topic, b"zero"))
    with Producer(options.bootstrap, transactional_id=f"{options.prefix}.other") as producer:
        with producer.transaction() as transaction:
            transaction.send(
                relay.decisions.topic, b"{}", key=b"other", partition=relay.decisions.partition
            )
            transaction.flush()
            relay.commit(1, batches_of(topic, b"one"))  # its offset is there: nothing to wait for
            store_offset(options, relay, OffsetAndMetadata(0))
            with monkeypatch.context() as patch:
                patch.setattr(relay_module, "READ_TIMEOUT_S", 0.2)
                with pytest.raises(TimeoutError, match="an open transaction of another query"):
                    relay.newest_decision()
        assert relay.newest_decision().batch_id == 1

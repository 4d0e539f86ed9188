"""DescribeProducers, as a real Kafka answers it (with --peers), and what we tell beyond it."""

import time
from functools import partial
from types import SimpleNamespace
from typing import cast
from uuid import uuid4

import pytest
import trio

from odradek.broker.api.context import Core, RequestContext
from odradek.broker.api.producers import describe_producers
from odradek.broker.api.transactional import note_opener
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.storage.config import LogConfig
from odradek.broker.testing import RunningBroker, run_broker
from odradek.protocol.apis.transactions import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    ProducerState,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC, state_partition
from tests.broker.api.producing import Writer, described_producers, settled, unique, until
from tests.broker.asks import batch, create_topic, produce
from tests.broker.raw import RawClient
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FakeDisk

E = ErrorCode


@pytest.fixture
def writer(either: RawClient) -> Writer:
    return Writer(either)


def test_a_producer_is_described_from_its_first_batch_on(writer: Writer) -> None:
    writer.write(0)
    assert writer.state_in(1) is None
    writer.write(0)
    open_state = writer.state_in(0)
    assert open_state is not None
    assert open_state.producer_epoch == writer.producer[1]
    assert (open_state.last_sequence, open_state.current_txn_start_offset) == (1, 0)
    assert open_state.coordinator_epoch == -1
    assert open_state.last_timestamp > 0

    writer.end()
    ended = writer.state_in(0)
    assert ended is not None
    assert ended.producer_epoch == writer.producer[1]  # the marker of version 2 is one ahead
    assert (ended.last_sequence, ended.current_txn_start_offset) == (-1, -1)
    assert ended.coordinator_epoch >= 0
    assert ended.last_timestamp >= open_state.last_timestamp

    assert writer.write(0) == 3
    again = writer.state_in(0)
    assert again is not None
    assert (again.last_sequence, again.current_txn_start_offset) == (0, 3)
    assert again.coordinator_epoch == ended.coordinator_epoch


def test_a_producer_without_transactions_is_described_too(writer: Writer) -> None:
    producer = (writer.producer[0] + 100_000, 3)
    for sequence in (7, 8):
        records = batch(b"v", producer=producer, base_sequence=sequence, timestamp_ms=1_000)
        ask = partial(produce, writer.client, writer.topic, records)
        assert settled(ask).error_code == E.NONE
    (partition_state,) = described_producers(writer.client, writer.topic, 0)
    (state,) = partition_state.active_producers
    assert (state.producer_id, state.producer_epoch) == producer
    assert (state.last_sequence, state.last_timestamp) == (8, 1_000)
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (-1, -1)


def test_pending_offsets_are_part_of_a_transaction(writer: Writer) -> None:
    group = unique("g")
    index = state_partition(group, 50)
    for offset in (3, 4):
        writer.commit_offset(group, offset)
    state = writer.state_in(index, CONSUMER_OFFSETS_TOPIC)
    assert state is not None
    assert state.current_txn_start_offset >= 0
    assert state.last_sequence == 0  # the coordinator begins every batch at 0
    writer.end()
    ended = writer.state_in(index, CONSUMER_OFFSETS_TOPIC)
    assert ended is not None
    assert ended.current_txn_start_offset == -1


def test_each_partition_is_answered_for_itself(writer: Writer) -> None:
    writer.write(1)
    names = {
        writer.topic: ((0, E.NONE), (1, E.NONE), (2, E.UNKNOWN_TOPIC_OR_PARTITION)),
        unique("nowhere"): ((0, E.UNKNOWN_TOPIC_OR_PARTITION), (-1, E.UNKNOWN_TOPIC_OR_PARTITION)),
        "": ((0, E.INVALID_TOPIC_EXCEPTION),),
        "..": ((0, E.INVALID_TOPIC_EXCEPTION),),
        "a b": ((0, E.INVALID_TOPIC_EXCEPTION), (1, E.INVALID_TOPIC_EXCEPTION)),
        "x" * 250: ((0, E.INVALID_TOPIC_EXCEPTION),),
        unique("none"): (),
        "__transaction_state": ((0, E.NONE),),
    }
    request = DescribeProducersRequest(
        topics=tuple(
            DescribeProducersTopicRequest(
                name=name, partition_indexes=tuple(index for index, _ in wanted)
            )
            for name, wanted in names.items()
        )
    )
    answer = writer.client.ask(DESCRIBE_PRODUCERS, 0, request)
    told = {
        topic.name: tuple((p.partition_index, p.error_code) for p in topic.partitions)
        for topic in answer.topics
    }
    assert told == names
    for topic in answer.topics:
        for partition in topic.partitions:
            is_written = (topic.name, partition.partition_index) == (writer.topic, 1)
            assert len(partition.active_producers) == is_written
            has_message = bool(partition.error_message)
            if partition.error_code == E.INVALID_TOPIC_EXCEPTION:
                assert has_message


# Ours alone: who pins the last stable offset


def only(broker_client: RawClient, topic: str, partition: int = 0) -> ProducerState:
    (found,) = described_producers(broker_client, topic, partition)
    (state,) = found.active_producers
    return state


def test_a_partition_says_who_holds_its_readers_back(shared_broker: RunningBroker) -> None:
    with (
        RawClient(shared_broker, client_id="worker-7") as first,
        RawClient(shared_broker, client_id="worker-8") as second,
    ):
        writer = Writer(first)
        later = Writer(second)
        records = batch(b"before")
        assert produce(first, writer.topic, records).error_code == E.NONE
        writer.write(0)
        later.write(0, writer.topic)
        assert produce(first, writer.topic, records).error_code == E.NONE

        (partition,) = described_producers(first, writer.topic, 0)
        assert partition.pinning_producer_id == writer.producer[0]
        assert (partition.log_start_offset, partition.last_stable_offset) == (0, 1)
        assert (partition.high_watermark, partition.log_end_offset) == (4, 4)
        pinning, other = partition.active_producers
        assert (pinning.transactional_id, other.transactional_id) == (writer.id, later.id)
        assert (pinning.client_id, pinning.client_host) == ("worker-7", "127.0.0.1")
        assert (other.client_id, other.client_host) == ("worker-8", "127.0.0.1")
        assert (pinning.records_behind, other.records_behind) == (3, 2)
        assert 0 < pinning.open_since_ms <= other.open_since_ms
        assert 0 < pinning.times_out_in_ms <= 60_000

        writer.end()
        (partition,) = described_producers(first, writer.topic, 0)
        assert partition.pinning_producer_id == later.producer[0]
        assert partition.last_stable_offset == 2
        ended = next(p for p in partition.active_producers if p.producer_id == writer.producer[0])
        assert ended.transactional_id == writer.id
        assert (ended.records_behind, ended.open_since_ms, ended.times_out_in_ms) == (-1, -1, -1)

        later.end(committed=False)
        (partition,) = described_producers(first, writer.topic, 0)
        assert partition.pinning_producer_id == -1
        assert partition.last_stable_offset == partition.high_watermark == 6


def test_pending_offsets_pin_their_partition(client: RawClient) -> None:
    writer, group = Writer(client), unique("g")
    index = state_partition(group, 50)
    writer.commit_offset(group, 3)
    (partition,) = described_producers(client, CONSUMER_OFFSETS_TOPIC, index)
    assert partition.pinning_producer_id == writer.producer[0]
    state = writer.state_in(index, CONSUMER_OFFSETS_TOPIC)
    assert state is not None
    assert (state.transactional_id, state.client_id) == (writer.id, "raw")
    assert state.records_behind >= 1
    writer.end()


def test_after_a_restart_the_coordinator_says_who_it_is() -> None:
    with run_broker() as broker:
        with RawClient(broker, client_id="worker-7") as client:
            writer = Writer(client)
            began_ms = int(time.time() * 1000)
            writer.write()
            before = only(client, writer.topic)
        broker.kill()
        broker.start()
        with RawClient(broker, client_id="somebody") as client:
            # Until the log of transactions is read nobody knows.
            after = until(
                lambda: only(client, writer.topic), lambda state: state.transactional_id is not None
            )
        assert (after.transactional_id, after.client_id) == (writer.id, "worker-7")
        assert after.client_host == "127.0.0.1"
        # To the coordinator it began before the first batch was stored.
        assert began_ms <= after.open_since_ms <= before.open_since_ms
        assert 0 < after.times_out_in_ms <= before.times_out_in_ms
        assert after.records_behind == before.records_behind == 1


async def test_a_leader_that_is_not_the_coordinator_says_who_opened_a_transaction() -> None:
    async with trio.open_nursery() as nursery:
        partitions = Partitions(disk=FakeDisk(), directory="/data", clock=FakeClock())
        await nursery.start(partitions.run)
        partition = await partitions.create("t", uuid4(), 0, LogConfig())
        records = batch(b"v", producer=(7, 0), base_sequence=0, is_transactional=True)
        partition.leader().append_from_client(memoryview(records))
        elsewhere = SimpleNamespace(owner_of=lambda producer_id: None)
        core = SimpleNamespace(transactions=elsewhere, partitions=partitions, clock=FakeClock())
        asker = RequestContext(
            core=cast(Core, core), api_version=0, client_id="worker-7", host="10.0.0.7"
        )
        note_opener(asker, partition.leader(), 7, "refunds-2")
        wanted = DescribeProducersTopicRequest(name="t", partition_indexes=(0,))
        answer = await describe_producers(asker, DescribeProducersRequest(topics=(wanted,)))
        (state,) = answer.topics[0].partitions[0].active_producers
        assert (state.transactional_id, state.client_id) == ("refunds-2", "worker-7")
        assert (state.client_host, state.records_behind) == ("10.0.0.7", 1)
        assert state.open_since_ms == FakeClock().wall_ms()
        assert state.times_out_in_ms == -1  # only the coordinator knows
        nursery.cancel_scope.cancel()


def test_a_transaction_that_no_coordinator_knows_never_times_out() -> None:
    """With verification off a batch opens a transaction that nobody is going to end."""
    with run_broker(config={"transaction.partition.verification.enable": "false"}) as broker:
        with RawClient(broker, client_id="hung") as client:
            topic = unique("t")
            create_topic(client, topic)
            records = batch(b"v", producer=(77, 0), base_sequence=0, is_transactional=True)
            answer = produce(client, topic, records, version=11, transactional_id="gone")
            assert answer.error_code == E.NONE
            state = only(client, topic)
        assert (state.transactional_id, state.client_id) == ("gone", "hung")
        assert state.times_out_in_ms == -1
        assert state.open_since_ms > 0
        with RawClient(broker) as client:
            writer = Writer(client)
            writer.write()
            records = batch(b"v", producer=writer.producer, base_sequence=0, is_transactional=True)
            create_topic(client, other := unique("t"))
            produce(client, other, records, version=11, transactional_id=writer.id)
            assert only(client, writer.topic).times_out_in_ms > 0
            assert only(client, other).times_out_in_ms == -1  # its transaction is elsewhere
        broker.restart()
        with RawClient(broker) as client:
            state = only(client, topic)
            assert only(client, other).open_since_ms == -1
        assert (state.transactional_id, state.client_id, state.client_host) == (None, None, None)
        assert (state.times_out_in_ms, state.open_since_ms) == (-1, -1)
        assert state.records_behind == 1


def test_a_partition_is_described_once_however_often_it_is_asked_for(client: RawClient) -> None:
    topic = unique("t")
    create_topic(client, topic)
    found = described_producers(client, topic, *[0] * 10_000)
    assert [partition.partition_index for partition in found] == [0]


def test_ten_thousand_partitions_are_answered(client: RawClient) -> None:
    writer = Writer(client, partitions=1)
    writer.write()
    found = described_producers(client, writer.topic, *range(10_000))
    assert len(found) == 10_000
    assert found[0].error_code == E.NONE
    assert {partition.error_code for partition in found[1:]} == {E.UNKNOWN_TOPIC_OR_PARTITION}
    writer.end()

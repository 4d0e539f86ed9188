"""An administrator ends transactions with markers of his own, on ours and (--peers) on a Kafka."""

from collections.abc import Sequence
from functools import partial

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from odradek.protocol.apis.txn import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.api.producing import Writer, described_producers, settled, unique, until
from tests.broker.asks import create_topic, fetch
from tests.broker.raw import RawClient

E = ErrorCode
BY_HAND = -1
Producer = tuple[int, int]


@pytest.fixture
def writer(either: RawClient) -> Writer:
    return Writer(either)


def mark(
    client: RawClient,
    topic: str,
    producer: Producer,
    *,
    committed: bool = False,
    partitions: Sequence[int] = (0,),
    coordinator_epoch: int = BY_HAND,
) -> list[int]:
    """The error codes of the partitions."""
    marker = WritableTxnMarker(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=committed,
        topics=(WritableTxnMarkerTopic(name=topic, partition_indexes=tuple(partitions)),),
        coordinator_epoch=coordinator_epoch,
    )
    answer = client.ask(WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest(markers=(marker,)))
    codes = {
        partition.partition_index: partition.error_code
        for topic in answer.markers[0].topics
        for partition in topic.partitions
    }
    return [codes[index] for index in partitions]


def offsets(client: RawClient, topic: str, partition: int = 0) -> tuple[int, int]:
    """Last stable offset and high watermark."""
    answer = fetch(client, topic, 0, isolation_level=1, partition=partition)
    return answer.last_stable_offset, answer.high_watermark


def test_a_marker_by_hand_frees_the_partition_and_the_coordinator_does_not_know(
    writer: Writer,
) -> None:
    writer.write(0)
    writer.write(1)
    assert mark(writer.client, writer.topic, writer.producer) == [E.NONE]
    assert offsets(writer.client, writer.topic, 0) == (2, 2)
    assert offsets(writer.client, writer.topic, 1) == (0, 1)
    state = writer.described()
    assert state.transaction_state == "Ongoing"
    assert [sorted(topic.partitions) for topic in state.topics] == [[0, 1]]

    writer.end()  # the commit succeeds, and writes its marker to both
    assert offsets(writer.client, writer.topic, 0) == (3, 3)
    assert offsets(writer.client, writer.topic, 1) == (2, 2)


def test_once_a_coordinator_has_written_a_marker_nobody_may_without_its_epoch(
    writer: Writer,
) -> None:
    writer.write()
    writer.end()
    writer.write()
    assert mark(writer.client, writer.topic, writer.producer) == [E.TRANSACTION_COORDINATOR_FENCED]
    assert offsets(writer.client, writer.topic) == (2, 3)
    state = writer.state_in()
    assert state is not None
    epoch = state.coordinator_epoch
    assert epoch >= 0
    ended = mark(writer.client, writer.topic, writer.producer, coordinator_epoch=epoch)
    assert ended == [E.NONE]
    assert offsets(writer.client, writer.topic) == (4, 4)


def test_a_marker_may_be_for_a_producer_that_nobody_knows(writer: Writer) -> None:
    stranger = (writer.producer[0] + 70_000, 3)
    for committed in (True, False):
        ask = partial(mark, writer.client, writer.topic, stranger, committed=committed)
        assert settled(ask, code=lambda codes: int(codes[0])) == [E.NONE]
    assert offsets(writer.client, writer.topic) == (2, 2)
    (partition,) = described_producers(writer.client, writer.topic, 0)
    (state,) = partition.active_producers
    assert (state.producer_id, state.producer_epoch) == stranger
    assert (state.coordinator_epoch, state.last_sequence) == (-1, -1)


def test_a_marker_with_an_older_epoch_is_refused_and_one_of_the_future_locks_out(
    writer: Writer,
) -> None:
    writer.write()
    producer_id, epoch = writer.producer
    older = mark(writer.client, writer.topic, (producer_id, epoch - 1))
    assert older[0] in (E.INVALID_PRODUCER_EPOCH, E.UNKNOWN_SERVER_ERROR)  # -1 is no epoch
    assert offsets(writer.client, writer.topic) == (0, 1)
    assert mark(writer.client, writer.topic, (producer_id, epoch + 5)) == [E.NONE]
    assert offsets(writer.client, writer.topic) == (2, 2)
    state = writer.state_in()
    assert state is not None
    assert (state.producer_epoch, state.current_txn_start_offset) == (epoch + 5, -1)


def test_each_partition_of_a_marker_is_answered_for_itself(writer: Writer) -> None:
    writer.write(1)
    codes = mark(writer.client, writer.topic, writer.producer, partitions=(1, 5, -1))
    assert codes == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_OR_PARTITION]
    nowhere = mark(writer.client, unique("nowhere"), writer.producer)
    assert nowhere == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert offsets(writer.client, writer.topic, 1) == (2, 2)
    writer.end()


# Ours alone


def test_the_log_says_who_marked_what_and_is_silent_about_the_coordinators_own() -> None:
    with run_broker() as broker:
        with RawClient(broker, client_id="admin-3") as client:
            writer = Writer(client)
            writer.write()
            writer.end()
            assert "marker" not in broker.log
            writer.write(1)
            assert mark(client, writer.topic, writer.producer, partitions=[1]) == [E.NONE]
        lines = [line for line in broker.log.splitlines() if "administrator" in line]
        assert len(lines) == 1, broker.log
        for word in ("127.0.0.1", "'admin-3'", f"{writer.topic}-1", "ABORT", repr(writer.id)):
            assert word in lines[0]


def test_ten_thousand_partitions_of_a_marker_are_answered(shared_broker: RunningBroker) -> None:
    with RawClient(shared_broker) as client:
        topic = unique("t")
        create_topic(client, topic, 1)
        codes = mark(client, topic, (80_000, 0), partitions=range(10_000))
        assert codes[0] == E.NONE
        assert set(codes[1:]) == {E.UNKNOWN_TOPIC_OR_PARTITION}
        # The first is told at once, and how many more there were now and then.
        assert 1 <= shared_broker.log.count("an administrator") < 100


def test_pending_offsets_are_forgotten_by_a_marker_by_hand(writer: Writer) -> None:
    group = unique("g")
    writer.commit_offset(group, 3)
    (offsets_topic,) = writer.described().topics
    (index,) = offsets_topic.partitions
    where = (offsets_topic.topic, index)
    until(
        lambda: mark(writer.client, where[0], writer.producer, partitions=[index]),
        lambda codes: codes == [E.NONE],
    )
    state = writer.state_in(index, where[0])
    assert state is not None
    assert state.current_txn_start_offset == -1
    writer.end()

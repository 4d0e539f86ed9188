"""The transaction APIs as clients of every generation see them: codes by version, effects."""

from collections.abc import Sequence

import pytest

from odradek.broker.testing import run_broker
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.apis.txn import (
    END_TXN,
    WRITE_TXN_MARKERS,
    EndTxnRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.api.transactor import PATIENCE_S, Producer, Transactor
from tests.broker.asks import batch
from tests.broker.raw import RawClient

E = ErrorCode


@pytest.fixture
def transactor(client: RawClient) -> Transactor:
    return Transactor(client)


def test_a_transaction_of_version_2_from_end_to_end(transactor: Transactor) -> None:
    transactor.init()
    first = transactor.producer
    assert transactor.produce(b"a", version=12).error_code == E.NONE
    assert transactor.produce(b"b", version=12, partition=1).error_code == E.NONE
    assert transactor.visible().records == b""
    assert transactor.visible().last_stable_offset == 0
    assert transactor.visible(isolation_level=0).records
    assert transactor.end(version=5).error_code == E.NONE
    assert transactor.producer == (first[0], first[1] + 1)
    transactor.wait_until_complete(0)
    transactor.wait_until_complete(1)
    assert transactor.visible().last_stable_offset == 2
    assert transactor.visible().aborted_transactions == ()


@pytest.mark.parametrize("version", [9, 10, 11])
def test_a_transaction_of_version_1_from_end_to_end(transactor: Transactor, version: int) -> None:
    transactor.init(4)
    for number in range(3):
        assert transactor.add((0, 1)) == [E.NONE, E.NONE]
        assert transactor.produce(b"%d" % number, version=version).error_code == E.NONE
        assert transactor.end(version=3, committed=number != 1).error_code == E.NONE
        transactor.wait_until_complete()
    aborted = transactor.visible().aborted_transactions
    assert [(a.producer_id, a.first_offset) for a in aborted] == [(transactor.producer[0], 2)]


@pytest.mark.parametrize(
    ("version", "code"), [(9, E.INVALID_TXN_STATE), (11, E.TRANSACTION_ABORTABLE)]
)
def test_producing_outside_a_transaction_is_named_by_version(
    transactor: Transactor, version: int, code: ErrorCode
) -> None:
    transactor.init()
    assert transactor.produce(b"a", version=version).error_code == code
    assert transactor.visible(isolation_level=0).high_watermark == 0


@pytest.mark.parametrize("version", [9, 11, 12])
def test_a_fenced_producer_is_told_that_its_epoch_is_over(
    transactor: Transactor, version: int
) -> None:
    transactor.init()
    fenced = transactor.producer
    transactor.init()
    answer = transactor.produce(b"a", version=version, producer=fenced)
    assert answer.error_code == E.INVALID_PRODUCER_EPOCH
    assert answer.error_message


@pytest.mark.parametrize("version", range(6))
def test_a_transaction_cannot_be_ended_with_an_old_epoch(
    transactor: Transactor, version: int
) -> None:
    transactor.init()
    fenced = transactor.producer
    transactor.init()
    transactor.init()
    code = transactor.end(version=version, producer=fenced).error_code
    assert code == (E.INVALID_PRODUCER_EPOCH if version < 2 else E.PRODUCER_FENCED)


@pytest.mark.parametrize("version", range(4))
def test_partitions_cannot_be_added_with_an_old_epoch(transactor: Transactor, version: int) -> None:
    transactor.init()
    fenced = transactor.producer
    transactor.init()
    code = E.INVALID_PRODUCER_EPOCH if version < 2 else E.PRODUCER_FENCED
    assert transactor.add((0, 1), version=version, producer=fenced) == [code, code]


@pytest.mark.parametrize("version", range(6))
def test_who_is_not_the_producer_any_more_is_told_so_by_init(
    transactor: Transactor, version: int
) -> None:
    transactor.init()
    old = transactor.producer
    for _ in range(3):
        transactor.init()
    if version < 3:
        assert transactor.init(version).error_code == E.NONE
        return
    code = transactor.init(version, expecting=old).error_code
    assert code == (E.PRODUCER_FENCED if version >= 4 else E.INVALID_PRODUCER_EPOCH)


def test_init_refuses_what_makes_no_sense(transactor: Transactor) -> None:
    assert transactor.init(transactional_id="").error_code == E.INVALID_REQUEST
    assert transactor.init(expecting=(5, -1)).error_code == E.INVALID_REQUEST
    assert transactor.init(expecting=(-1, 5)).error_code == E.INVALID_REQUEST
    for timeout_ms in (0, -1, 900_001):
        refused = transactor.init(timeout_ms=timeout_ms)
        assert refused.error_code == E.INVALID_TRANSACTION_TIMEOUT
        assert (refused.producer_id, refused.producer_epoch) == (-1, -1)


@pytest.mark.parametrize("version", range(6))
def test_an_idempotent_producer_gets_an_id_whatever_the_timeout(
    transactor: Transactor, version: int
) -> None:
    ids = {
        transactor.init(version, transactional_id=None, timeout_ms=-1).producer_id for _ in range(3)
    }
    assert len(ids) == 3
    assert min(ids) >= 0


@pytest.mark.parametrize("version", range(4))
def test_one_bad_partition_holds_up_the_others(transactor: Transactor, version: int) -> None:
    """KAFKA-5322: the others seemed to have been added."""
    transactor.init()
    assert transactor.add((0, 7), version=version) == [
        E.OPERATION_NOT_ATTEMPTED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert transactor.add((0,), version=version, topic="__consumer_offsets") == [
        E.TOPIC_AUTHORIZATION_FAILED,
        E.OPERATION_NOT_ATTEMPTED,
    ]
    assert transactor.verify() == E.TRANSACTION_ABORTABLE


def test_a_broker_may_ask_without_adding(transactor: Transactor) -> None:
    transactor.init()
    assert transactor.verify() == E.TRANSACTION_ABORTABLE
    transactor.add((0,))
    assert transactor.verify(0) == E.NONE
    assert transactor.verify(1) == E.TRANSACTION_ABORTABLE


@pytest.mark.parametrize("version", range(6))
def test_ending_what_nobody_knows_or_began(transactor: Transactor, version: int) -> None:
    unknown = transactor.end(version=version, producer=(5, 0))
    assert unknown.error_code == E.INVALID_PRODUCER_ID_MAPPING
    transactor.init()
    assert transactor.end(version=version).error_code == E.INVALID_TXN_STATE


def test_ending_twice_the_same_way_succeeds_and_another_way_does_not(
    transactor: Transactor,
) -> None:
    transactor.init()
    transactor.add((0,))
    for _ in range(2):
        assert transactor.end(version=3).error_code == E.NONE
        transactor.wait_until_complete()
    assert transactor.end(version=3, committed=False).error_code == E.INVALID_TXN_STATE


@pytest.mark.parametrize("version", range(5))
def test_offsets_join_a_transaction(transactor: Transactor, version: int) -> None:
    transactor.init()

    def add(producer: Producer) -> int:
        return transactor.add_offsets("g", version=version, producer=producer)

    assert add(transactor.producer) == E.NONE
    assert add((transactor.producer[0] + 1, 0)) == E.INVALID_PRODUCER_ID_MAPPING
    old = transactor.producer
    assert transactor.end(version=3).error_code == E.NONE
    transactor.init()
    assert add(old) == (E.INVALID_PRODUCER_EPOCH if version < 2 else E.PRODUCER_FENCED)


def test_two_producers_in_one_request_are_one_too_many(transactor: Transactor) -> None:
    transactor.init()
    other = (transactor.producer[0] + 1, 0)
    data = tuple(
        PartitionProduceData(
            index=index,
            records=batch(b"a", producer=producer, base_sequence=0, is_transactional=True),
        )
        for index, producer in enumerate((transactor.producer, other))
    )
    request = ProduceRequest(
        transactional_id=transactor.id,
        acks=-1,
        timeout_ms=1000,
        topic_data=(TopicProduceData(name=transactor.topic, partition_data=data),),
    )
    answers = transactor.client.ask(PRODUCE, 12, request).responses[0].partition_responses
    assert [a.error_code for a in answers] == [E.INVALID_PRODUCER_ID_MAPPING] * 2


# markers


def write_marker(
    client: RawClient,
    topic: str,
    producer: Producer,
    *,
    partitions: Sequence[int] = (0,),
    committed: bool = False,
    coordinator_epoch: int = -1,
    version: int = 1,
    transaction_version: int = 0,
) -> list[int]:
    marker = WritableTxnMarker(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=committed,
        topics=(WritableTxnMarkerTopic(name=topic, partition_indexes=tuple(partitions)),),
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    answer = client.ask(WRITE_TXN_MARKERS, version, WriteTxnMarkersRequest(markers=(marker,)))
    assert [m.producer_id for m in answer.markers] == [producer[0]]
    return [p.error_code for p in answer.markers[0].topics[0].partitions]


def test_an_administrator_ends_a_hanging_transaction(transactor: Transactor) -> None:
    transactor.init()
    transactor.produce(b"a", version=12)
    assert transactor.visible().last_stable_offset == 0
    codes = write_marker(
        transactor.client, transactor.topic, transactor.producer, partitions=(0, 1, 9)
    )
    assert codes == [E.NONE, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
    answer = transactor.visible()
    assert answer.last_stable_offset == 2
    assert [a.first_offset for a in answer.aborted_transactions] == [0]


def test_a_marker_is_fenced_by_the_coordinators_and_the_producers_epoch(
    transactor: Transactor,
) -> None:
    client, topic, producer = transactor.client, transactor.topic, (4_000, 5)
    assert write_marker(client, topic, producer, coordinator_epoch=3) == [E.NONE]
    fenced = write_marker(client, topic, producer, coordinator_epoch=2)
    assert fenced == [E.TRANSACTION_COORDINATOR_FENCED]
    old = write_marker(client, topic, (4_000, 4), coordinator_epoch=3)
    assert old == [E.INVALID_PRODUCER_EPOCH]


def test_a_partition_that_a_marker_names_twice_gets_one(transactor: Transactor) -> None:
    """A real Kafka writes one, too, and then waits for a second answer for ever."""
    answer = write_marker(transactor.client, transactor.topic, (9, 0), partitions=(0, 0))
    assert answer == [ErrorCode.NONE]
    assert transactor.visible(isolation_level=0).high_watermark == 1


def test_a_partition_gets_one_marker_also_if_its_topic_is_named_twice(
    transactor: Transactor,
) -> None:
    topic = WritableTxnMarkerTopic(name=transactor.topic, partition_indexes=(0,))
    marker = WritableTxnMarker(
        producer_id=9,
        producer_epoch=0,
        transaction_result=True,
        topics=(topic, topic),
        coordinator_epoch=-1,
    )
    request = WriteTxnMarkersRequest(markers=(marker,))
    (answer,) = transactor.client.ask(WRITE_TXN_MARKERS, 1, request).markers
    assert [each.error_code for each in answer.topics[0].partitions] == [E.NONE]
    assert transactor.visible(isolation_level=0).high_watermark == 1


def test_a_repeated_marker_of_version_2_is_acknowledged_and_written_once(
    transactor: Transactor,
) -> None:
    for _ in range(3):
        codes = write_marker(
            transactor.client,
            transactor.topic,
            (5_000, 1),
            coordinator_epoch=0,
            version=2,
            transaction_version=2,
        )
        assert codes == [E.NONE]
    assert transactor.visible(isolation_level=0).high_watermark == 1


# across a death


@pytest.mark.slow
@pytest.mark.parametrize("point", ["before-prepare", "after-prepare", "between-markers"])
def test_a_transaction_that_was_being_committed_is_whole_after_a_death(point: str) -> None:
    with run_broker(environment={"ODRADEK_KILL_AT": f"{point}:1"}) as broker:
        with RawClient(broker) as client:
            transactor = Transactor(client)
            transactor.init()
            transactor.produce(b"a", version=12)
            transactor.produce(b"b", version=12, partition=1)
            request = EndTxnRequest(
                transactional_id=transactor.id,
                producer_id=transactor.producer[0],
                producer_epoch=transactor.producer[1],
                committed=True,
            )
            client.request(END_TXN, 5, request)
        assert broker.wait(PATIENCE_S) == -9
        broker.environment.clear()
        broker.start()
        with RawClient(broker) as client:
            transactor.client = client
            if point == "before-prepare":  # nothing was decided: the client asks again
                assert transactor.end(version=5).error_code == E.NONE
            for partition in (0, 1):
                transactor.wait_until_complete(partition)
                answer = transactor.visible(partition=partition)
                assert answer.records
                assert answer.aborted_transactions == ()


@pytest.mark.slow
def test_an_open_transaction_goes_on_after_a_death() -> None:
    with run_broker() as broker:
        with RawClient(broker) as client:
            transactor = Transactor(client)
            transactor.init()
            transactor.produce(b"a", version=12)
        broker.kill()
        broker.start()
        with RawClient(broker) as client:
            transactor.client = client
            assert transactor.produce(b"b", version=12).error_code == E.NONE
            assert transactor.end(version=5).error_code == E.NONE
            transactor.wait_until_complete()
            assert transactor.visible().last_stable_offset == 3

"""What a broker does with bad transactional requests beside answering them, which `tests/judge`
compares with Kafka: it keeps nothing, says nothing of a bug, and serves others meanwhile."""

from collections.abc import Iterator
from typing import Any

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from odradek.protocol.api import Api
from odradek.protocol.apis.offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.apis.transactions import LIST_TRANSACTIONS, ListTransactionsRequest
from odradek.protocol.apis.txn import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    WRITE_TXN_MARKERS,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsRequest
from odradek.protocol.errors import ErrorCode
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC
from tests.broker.costs import processor_seconds, resident_kib
from tests.broker.raw import RawClient

MANY = 10_000
LONG = "l" * 32_767
STATE_PARTITIONS = 50
ASKS = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
PROCESSOR_SECONDS = 2.0
"""What one such request may cost at most, and others may have to wait for: it costs a thirtieth."""

NOBODY = 2**40
TOPICS = (AddPartitionsToTxnTopic(name="none", partitions=tuple(range(MANY))),)


def transaction(name: str) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=name, producer_id=NOBODY, producer_epoch=0, topics=TOPICS
    )


def offsets(name: str) -> TxnOffsetCommitRequest:
    partitions = tuple(
        TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=1, committed_metadata=""
        )
        for index in range(MANY)
    )
    return TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=name,
        producer_id=NOBODY,
        producer_epoch=0,
        topics=(TxnOffsetCommitRequestTopic(name="none", partitions=partitions),),
    )


def markers() -> WriteTxnMarkersRequest:
    marker = WritableTxnMarker(
        producer_id=NOBODY,
        producer_epoch=-7,
        transaction_result=True,
        coordinator_epoch=-1,
        topics=(WritableTxnMarkerTopic(name="none", partition_indexes=tuple(range(MANY))),),
    )
    return WriteTxnMarkersRequest(markers=(marker,))


BAD: dict[str, tuple[Api[Any, Any], int, object]] = {
    "a time-out of no time": (
        INIT_PRODUCER_ID,
        5,
        InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=0),
    ),
    "many partitions to add": (
        ADD_PARTITIONS_TO_TXN,
        3,
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=NOBODY,
            v3_and_below_topics=TOPICS,
        ),
    ),
    "many transactions to add to": (
        ADD_PARTITIONS_TO_TXN,
        5,
        AddPartitionsToTxnRequest(transactions=(transaction(LONG),)),
    ),
    "no transaction to add to": (ADD_PARTITIONS_TO_TXN, 5, AddPartitionsToTxnRequest()),
    "a long group to add": (
        ADD_OFFSETS_TO_TXN,
        4,
        AddOffsetsToTxnRequest(
            transactional_id="x", producer_id=NOBODY, producer_epoch=0, group_id=LONG
        ),
    ),
    "many offsets": (TXN_OFFSET_COMMIT, 5, offsets("x")),
    "many offsets of a long group": (TXN_OFFSET_COMMIT, 5, offsets(LONG)),
    "an end of nothing": (
        END_TXN,
        5,
        EndTxnRequest(transactional_id=LONG, producer_id=-1, producer_epoch=-1, committed=True),
    ),
    "many markers": (WRITE_TXN_MARKERS, 2, markers()),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with run_broker(data_dir=tmp_path_factory.mktemp("bad-txn")) as broker:
        with RawClient(broker) as client:  # the state topics are made
            for name in ("first", "second"):
                request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000)
                assert client.ask(INIT_PRODUCER_ID, 4, request).error_code == ErrorCode.NONE
        yield broker
        assert "Traceback" not in broker.log


def state_log_ends(client: RawClient) -> list[int]:
    """Where each partition of the coordinator's log ends."""
    wanted = tuple(
        ListOffsetsPartition(partition_index=index, timestamp=-1)
        for index in range(STATE_PARTITIONS)
    )
    topic = ListOffsetsTopic(name=TRANSACTION_STATE_TOPIC, partitions=wanted)
    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(topic,))
    answer = client.ask(LIST_OFFSETS, 6, request)
    return [partition.offset for partition in answer.topics[0].partitions]


def transactional_ids(client: RawClient) -> list[str]:
    request = ListTransactionsRequest(state_filters=(), producer_id_filters=())
    answer = client.ask(LIST_TRANSACTIONS, 2, request)
    return sorted(found.transactional_id for found in answer.transaction_states)


@pytest.mark.slow
@pytest.mark.parametrize("what", BAD)
def test_nothing_is_kept_of_it_and_others_are_served(broker: RunningBroker, what: str) -> None:
    api, version, request = BAD[what]
    with RawClient(broker) as bad, RawClient(broker) as other:
        ends, known = state_log_ends(other), transactional_ids(other)
        for _ in range(3):
            bad.ask(api, version, request)
        before_kib, before_seconds = resident_kib(broker), processor_seconds(broker)
        for _ in range(6):
            bad.request(api, version, request)
            assert other.ask(API_VERSIONS, 3, ASKS).error_code == ErrorCode.NONE
            bad.response()
        assert processor_seconds(broker) < before_seconds + 6 * PROCESSOR_SECONDS
        assert resident_kib(broker) < before_kib + 4 * 1024
        assert state_log_ends(other) == ends
        assert transactional_ids(other) == known
    assert broker.process.poll() is None

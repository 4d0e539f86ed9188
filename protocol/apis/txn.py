"""Transactions, for producers and between brokers.

The newest versions of the first four let a broker say TRANSACTION_ABORTABLE: abort and go on.

InitProducerId (key 22), versions 0-5, flexible from 2.

- 3: a producer may give the id and epoch it has, and is fenced if others have taken over (KIP-360).
- 4: PRODUCER_FENCED is understood (KIP-588); 5: TRANSACTION_ABORTABLE.
- 6 (two-phase commit, KIP-939) is published as unstable: `INIT_PRODUCER_ID_2PC` has it, and is
  served in place of `INIT_PRODUCER_ID` where transaction.two.phase.commit.enable is set.

AddPartitionsToTxn (key 24), versions 0-5, flexible from 3.

- 0-3 come from clients: one transaction. 2: PRODUCER_FENCED is understood.
- 4 and 5 come from brokers: several transactions, and whether partitions are to be added or only
  looked for (KIP-890). 5: TRANSACTION_ABORTABLE.

AddOffsetsToTxn (key 25), versions 0-4, flexible from 3: 2 PRODUCER_FENCED, 4 TRANSACTION_ABORTABLE.

EndTxn (key 26), versions 0-5, flexible from 3.

- 2: PRODUCER_FENCED is understood; 4: TRANSACTION_ABORTABLE.
- 5: the epoch is bumped at the end of every transaction, and the answer says which producer id and
  epoch to go on with (KIP-890).

WriteTxnMarkers (key 27), versions 1-2, flexible from 1: from coordinators, and from administrators.

- 2: the generation of the protocol, by which a marker's epoch is judged (KIP-1228).

TxnOffsetCommit (key 28), versions 0-5, flexible from 3.

- 2: leader epoch; 3: member, generation and instance, so that zombies are fenced (KIP-447).
- 4: TRANSACTION_ABORTABLE is understood.
- 5: the group's partition is added to the transaction without being asked (KIP-890).
"""

from dataclasses import replace
from typing import Final

from odradek.protocol.api import Api
from odradek.protocol.schema import array, boolean, int8, int16, int32, int64, message, string


@message
class InitProducerIdRequest:
    """Ours: `by_administrator` is for who takes an id only to end what its producer left open, so
    that the producer can be told; Kafka's brokers skip it."""

    transactional_id: str | None = string(nullable=0)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(default=-1, since=3)
    producer_epoch: int = int16(default=-1, since=3)
    enable2_pc: bool = boolean(default=False, since=6)
    keep_prepared_txn: bool = boolean(default=False, since=6)
    by_administrator: bool = boolean(default=False, since=2, tag=10_000)


@message
class InitProducerIdResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64(default=-1, since=6)
    ongoing_txn_producer_epoch: int = int16(default=-1, since=6)


@message
class AddPartitionsToTxnTopic:
    name: str = string()
    partitions: tuple[int, ...] = array("int32")


@message
class AddPartitionsToTxnTransaction:
    transactional_id: str = string(since=4)
    producer_id: int = int64(since=4)
    producer_epoch: int = int16(since=4)
    verify_only: bool = boolean(default=False, since=4)
    topics: tuple[AddPartitionsToTxnTopic, ...] = array(AddPartitionsToTxnTopic, since=4)


@message
class AddPartitionsToTxnRequest:
    transactions: tuple[AddPartitionsToTxnTransaction, ...] = array(
        AddPartitionsToTxnTransaction, default=(), since=4
    )
    v3_and_below_transactional_id: str = string(default="", until=3)
    v3_and_below_producer_id: int = int64(default=0, until=3)
    v3_and_below_producer_epoch: int = int16(default=0, until=3)
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = array(
        AddPartitionsToTxnTopic, default=(), until=3
    )


@message
class AddPartitionsToTxnPartitionResult:
    partition_index: int = int32()
    partition_error_code: int = int16()


@message
class AddPartitionsToTxnTopicResult:
    name: str = string()
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = array(
        AddPartitionsToTxnPartitionResult
    )


@message
class AddPartitionsToTxnResult:
    transactional_id: str = string(since=4)
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = array(
        AddPartitionsToTxnTopicResult, since=4
    )


@message
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0, since=4)
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = array(
        AddPartitionsToTxnResult, default=(), since=4
    )
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = array(
        AddPartitionsToTxnTopicResult, default=(), until=3
    )


@message
class AddOffsetsToTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@message
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()


@message
class EndTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@message
class EndTxnResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    producer_id: int = int64(default=-1, since=5)
    producer_epoch: int = int16(default=-1, since=5)


@message
class WritableTxnMarkerTopic:
    name: str = string()
    partition_indexes: tuple[int, ...] = array("int32")


@message
class WritableTxnMarker:
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: tuple[WritableTxnMarkerTopic, ...] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(default=0, since=2)


@message
class WriteTxnMarkersRequest:
    markers: tuple[WritableTxnMarker, ...] = array(WritableTxnMarker)


@message
class WritableTxnMarkerPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()


@message
class WritableTxnMarkerTopicResult:
    name: str = string()
    partitions: tuple[WritableTxnMarkerPartitionResult, ...] = array(
        WritableTxnMarkerPartitionResult
    )


@message
class WritableTxnMarkerResult:
    producer_id: int = int64()
    topics: tuple[WritableTxnMarkerTopicResult, ...] = array(WritableTxnMarkerTopicResult)


@message
class WriteTxnMarkersResponse:
    markers: tuple[WritableTxnMarkerResult, ...] = array(WritableTxnMarkerResult)


@message
class TxnOffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1, since=2)
    committed_metadata: str | None = string(nullable=0)


@message
class TxnOffsetCommitRequestTopic:
    name: str = string()
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = array(TxnOffsetCommitRequestPartition)


@message
class TxnOffsetCommitRequest:
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(default=-1, since=3)
    member_id: str = string(default="", since=3)
    group_instance_id: str | None = string(default=None, since=3, nullable=3)
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = array(TxnOffsetCommitRequestTopic)


@message
class TxnOffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@message
class TxnOffsetCommitResponseTopic:
    name: str = string()
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = array(
        TxnOffsetCommitResponsePartition
    )


@message
class TxnOffsetCommitResponse:
    throttle_time_ms: int = int32(default=0)
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = array(TxnOffsetCommitResponseTopic)


INIT_PRODUCER_ID: Final = Api(
    key=22,
    name="InitProducerId",
    min_version=0,
    max_version=5,
    flexible_from=2,
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
)
INIT_PRODUCER_ID_2PC: Final = replace(INIT_PRODUCER_ID, max_version=6)
ADD_PARTITIONS_TO_TXN: Final = Api(
    key=24,
    name="AddPartitionsToTxn",
    min_version=0,
    max_version=5,
    flexible_from=3,
    request=AddPartitionsToTxnRequest,
    response=AddPartitionsToTxnResponse,
)
ADD_OFFSETS_TO_TXN: Final = Api(
    key=25,
    name="AddOffsetsToTxn",
    min_version=0,
    max_version=4,
    flexible_from=3,
    request=AddOffsetsToTxnRequest,
    response=AddOffsetsToTxnResponse,
)
END_TXN: Final = Api(
    key=26,
    name="EndTxn",
    min_version=0,
    max_version=5,
    flexible_from=3,
    request=EndTxnRequest,
    response=EndTxnResponse,
)
WRITE_TXN_MARKERS: Final = Api(
    key=27,
    name="WriteTxnMarkers",
    min_version=1,
    max_version=2,
    flexible_from=1,
    request=WriteTxnMarkersRequest,
    response=WriteTxnMarkersResponse,
)
TXN_OFFSET_COMMIT: Final = Api(
    key=28,
    name="TxnOffsetCommit",
    min_version=0,
    max_version=5,
    flexible_from=3,
    request=TxnOffsetCommitRequest,
    response=TxnOffsetCommitResponse,
)

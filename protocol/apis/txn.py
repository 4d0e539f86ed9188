"""Transactions, for producers and between brokers.

With the newest versions of the first four APIs, the broker may return TRANSACTION_ABORTABLE: the
producer aborts the transaction and continues.

InitProducerId (key 22), versions 0-5, flexible from 2.

- 3: the producer may send its producer id and epoch, and is fenced if they are not current
  (KIP-360).
- 4: the client knows PRODUCER_FENCED (KIP-588). 5: TRANSACTION_ABORTABLE.
- 6: two-phase commit (KIP-939), which Kafka publishes as unstable. `INIT_PRODUCER_ID_2PC` has it,
  and replaces `INIT_PRODUCER_ID` if transaction.two.phase.commit.enable is set.

AddPartitionsToTxn (key 24), versions 0-5, flexible from 3.

- 0-3: sent by clients, for one transaction. 2: the client knows PRODUCER_FENCED.
- 4, 5: sent by brokers, for several transactions. A flag asks to verify partitions without adding
  them (KIP-890). 5: TRANSACTION_ABORTABLE.

AddOffsetsToTxn (key 25), versions 0-4, flexible from 3.

- 2: PRODUCER_FENCED. 4: TRANSACTION_ABORTABLE.

EndTxn (key 26), versions 0-5, flexible from 3.

- 2: the client knows PRODUCER_FENCED. 4: TRANSACTION_ABORTABLE.
- 5: every transaction ends with an epoch bump. The response has the producer id and epoch for the
  next transaction (KIP-890). Tagged fields of ours decide the transactions of a group at once.

WriteTxnMarkers (key 27), versions 1-2, flexible from 1: sent by coordinators and administrators.

- 2: the transaction version, which decides how the leader checks a marker's epoch (KIP-1228).

TxnOffsetCommit (key 28), versions 0-5, flexible from 3.

- 2: leader epoch. 3: member id, generation and instance id, which fence zombies (KIP-447).
- 4: the client knows TRANSACTION_ABORTABLE.
- 5: the broker adds the group's partition to the transaction implicitly (KIP-890).
"""

from dataclasses import replace
from typing import Final
from uuid import UUID

from odradek.protocol.api import Api
from odradek.protocol.schema import (
    ZERO_UUID,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    uuid,
)


@message
class InitProducerIdRequest:
    """An InitProducerId request.

    Two fields are Odradek's, and Kafka's brokers skip them. `by_administrator`: an administrator
    claims the id only to end an open transaction, so that the fenced producer can learn the cause.
    `without_markers`: if that is decided already, it ends without the markers that it still owes.
    """

    transactional_id: str | None = string(nullable=0)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(default=-1, since=3)
    producer_epoch: int = int16(default=-1, since=3)
    enable2_pc: bool = boolean(default=False, since=6)
    keep_prepared_txn: bool = boolean(default=False, since=6)
    by_administrator: bool = boolean(default=False, since=2, tag=10_000)
    without_markers: bool = boolean(default=False, since=2, tag=10_001)


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
    """Partitions of a topic.

    `topic_id` is Odradek's field: the id that the topic has for the leader that asks. Zero is any
    topic of this name.
    """

    name: str = string()
    partitions: tuple[int, ...] = array("int32")
    topic_id: UUID = uuid(default=ZERO_UUID, since=4, tag=10_000)


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
    coordinator_epoch: int = int32(default=-1, since=4, tag=10_000)
    """Odradek's: the leader epoch in which the coordinator answers another broker."""


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
class EndTxnMember:
    """A member of a transaction group, whose transaction ends with those of the other members."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()


@message
class EndTxnRequest:
    """An EndTxn request.

    `members` and `decision_id` are Odradek's fields: one decision for the transactions of a group,
    whose first member is its leader. The fixed fields then have producer id -1 and epoch -1, so
    that a broker which skips these fields refuses the request as a whole. A repeat has the same
    decision id.
    """

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()
    members: tuple[EndTxnMember, ...] = array(EndTxnMember, default=(), since=5, tag=10_000)
    decision_id: UUID = uuid(default=ZERO_UUID, since=5, tag=10_001)


@message
class EndedTxnMember:
    """The identity of a member from now on; -1 if it has moved on since the decision."""

    producer_id: int = int64(default=-1)
    producer_epoch: int = int16(default=-1)


@message
class EndTxnResponse:
    """An EndTxn response.

    Odradek's fields: the members in the order of the request; or the member that was refused, and a
    sentence about the cause. Then nothing was decided.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    producer_id: int = int64(default=-1, since=5)
    producer_epoch: int = int16(default=-1, since=5)
    members: tuple[EndedTxnMember, ...] = array(EndedTxnMember, default=(), since=5, tag=10_000)
    refused_member: str | None = string(default=None, nullable=5, since=5, tag=10_001)
    error_message: str | None = string(default=None, nullable=5, since=5, tag=10_002)


@message
class WritableTxnMarkerTopic:
    """Partitions of a topic.

    `topic_id` is Odradek's field: the id that the topic had when the transaction wrote to it. Zero
    is any topic of this name.
    """

    name: str = string()
    partition_indexes: tuple[int, ...] = array("int32")
    topic_id: UUID = uuid(default=ZERO_UUID, tag=10_000)


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
    topic_id: UUID = uuid(default=ZERO_UUID, since=3, tag=10_000)
    """Our own: the topic that the offsets belong to; zero from clients that only know its name."""
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

"""Appending record batches.

Produce (key 0), versions 3-13, flexible from 9. ApiVersions lists it from 0 on, although the broker
refuses 0-2: librdkafka up to 2.8 would otherwise turn compression off (KAFKA-18659).

- 3: transactional id, and record batches of format 2, the only format that the broker accepts.
- 5: log start offset. 7: zstd. 8: the invalid records of a batch, and an error message.
- 10: the new leader of a partition and its address, in tagged fields (KIP-951).
- 11: the client knows TRANSACTION_ABORTABLE.
- 12: the first batch for a partition adds it to the transaction (KIP-890).
- 13: topic ids instead of names (KIP-516).
"""

from typing import Final
from uuid import UUID

from odradek.protocol.api import Api
from odradek.protocol.schema import (
    ZERO_UUID,
    Records,
    array,
    int16,
    int32,
    int64,
    message,
    records,
    string,
    struct,
    uuid,
)


@message
class PartitionProduceData:
    index: int = int32()
    records: Records | None = records(nullable=0)


@message
class TopicProduceData:
    name: str = string(default="", until=12)
    topic_id: UUID = uuid(default=ZERO_UUID, since=13)
    partition_data: tuple[PartitionProduceData, ...] = array(PartitionProduceData)


@message
class ProduceRequest:
    transactional_id: str | None = string(default=None, nullable=0)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: tuple[TopicProduceData, ...] = array(TopicProduceData)


@message
class BatchIndexAndErrorMessage:
    batch_index: int = int32(since=8)
    batch_index_error_message: str | None = string(default=None, since=8, nullable=8)


@message
class LeaderIdAndEpoch:
    leader_id: int = int32(default=-1, since=10)
    leader_epoch: int = int32(default=-1, since=10)


@message
class PartitionProduceResponse:
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64(default=-1, since=5)
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = array(
        BatchIndexAndErrorMessage, default=(), since=8
    )
    error_message: str | None = string(default=None, since=8, nullable=8)
    current_leader: LeaderIdAndEpoch = struct(
        LeaderIdAndEpoch, default=LeaderIdAndEpoch, since=10, tag=0
    )


@message
class TopicProduceResponse:
    name: str = string(default="", until=12)
    topic_id: UUID = uuid(default=ZERO_UUID, since=13)
    partition_responses: tuple[PartitionProduceResponse, ...] = array(PartitionProduceResponse)


@message
class NodeEndpoint:
    node_id: int = int32(since=10)
    host: str = string(since=10)
    port: int = int32(since=10)
    rack: str | None = string(default=None, since=10, nullable=10)


@message
class ProduceResponse:
    responses: tuple[TopicProduceResponse, ...] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(default=0)
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, default=(), since=10, tag=0)


PRODUCE: Final = Api(
    key=0,
    name="Produce",
    min_version=3,
    max_version=13,
    flexible_from=9,
    request=ProduceRequest,
    response=ProduceResponse,
    advertised_min=0,
)

"""Fetching record batches.

Fetch (key 1), versions 4-18, flexible from 12.

- 4: isolation level, last stable offset and aborted transactions.
- 5: log start offset. 7: fetch sessions, in which a request names only changed partitions.
- 9: the client's current leader epoch. 10: the client supports zstd. 11: the client's rack.
- 12: the epoch of the last fetched record, and the diverging epoch, so that clients detect
  truncation.
- 13: topic ids instead of names (KIP-516).
- 15: the follower's id and epoch in a tagged field. 16: the addresses of new leaders (KIP-951).
- 17: the follower's directory id. 18: the high watermark that the follower knows.
"""

from typing import Final
from uuid import UUID

from odradek.protocol.api import Api
from odradek.protocol.schema import (
    ZERO_UUID,
    Records,
    array,
    int8,
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
class ReplicaState:
    replica_id: int = int32(default=-1, since=15)
    replica_epoch: int = int64(default=-1, since=15)


@message
class FetchPartition:
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1, since=9)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(default=-1, since=12)
    log_start_offset: int = int64(default=-1, since=5)
    partition_max_bytes: int = int32()
    replica_directory_id: UUID = uuid(default=ZERO_UUID, since=17, tag=0)
    high_watermark: int = int64(default=2**63 - 1, since=18, tag=1)


@message
class FetchTopic:
    topic: str = string(default="", until=12)
    topic_id: UUID = uuid(default=ZERO_UUID, since=13)
    partitions: tuple[FetchPartition, ...] = array(FetchPartition)


@message
class ForgottenTopic:
    topic: str = string(default="", since=7, until=12)
    topic_id: UUID = uuid(default=ZERO_UUID, since=13)
    partitions: tuple[int, ...] = array("int32", since=7)


@message
class FetchRequest:
    cluster_id: str | None = string(default=None, since=12, nullable=12, tag=0)
    replica_id: int = int32(default=-1, until=14)
    replica_state: ReplicaState = struct(ReplicaState, default=ReplicaState, since=15, tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2**31 - 1)
    isolation_level: int = int8(default=0)
    session_id: int = int32(default=0, since=7)
    session_epoch: int = int32(default=-1, since=7)
    topics: tuple[FetchTopic, ...] = array(FetchTopic)
    forgotten_topics_data: tuple[ForgottenTopic, ...] = array(ForgottenTopic, default=(), since=7)
    rack_id: str = string(default="", since=11)


@message
class EpochEndOffset:
    epoch: int = int32(default=-1, since=12)
    end_offset: int = int64(default=-1, since=12)


@message
class LeaderIdAndEpoch:
    leader_id: int = int32(default=-1, since=12)
    leader_epoch: int = int32(default=-1, since=12)


@message
class SnapshotId:
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@message
class AbortedTransaction:
    producer_id: int = int64()
    first_offset: int = int64()


@message
class PartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64(default=-1, since=5)
    diverging_epoch: EpochEndOffset = struct(
        EpochEndOffset, default=EpochEndOffset, since=12, tag=0
    )
    current_leader: LeaderIdAndEpoch = struct(
        LeaderIdAndEpoch, default=LeaderIdAndEpoch, since=12, tag=1
    )
    snapshot_id: SnapshotId = struct(SnapshotId, default=SnapshotId, since=12, tag=2)
    aborted_transactions: tuple[AbortedTransaction, ...] | None = array(
        AbortedTransaction, nullable=0
    )
    preferred_read_replica: int = int32(default=-1, since=11)
    records: Records | None = records(nullable=0)


@message
class FetchableTopicResponse:
    topic: str = string(default="", until=12)
    topic_id: UUID = uuid(default=ZERO_UUID, since=13)
    partitions: tuple[PartitionData, ...] = array(PartitionData)


@message
class NodeEndpoint:
    node_id: int = int32(since=16)
    host: str = string(since=16)
    port: int = int32(since=16)
    rack: str | None = string(default=None, since=16, nullable=16)


@message
class FetchResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0, since=7)
    session_id: int = int32(default=0, since=7)
    responses: tuple[FetchableTopicResponse, ...] = array(FetchableTopicResponse)
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, default=(), since=16, tag=0)


FETCH: Final = Api(
    key=1,
    name="Fetch",
    min_version=4,
    max_version=18,
    flexible_from=12,
    request=FetchRequest,
    response=FetchResponse,
)

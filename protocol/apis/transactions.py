"""The state of transactions, for administrators' tools (KIP-664).

DescribeProducers (key 61), version 0, flexible from 0: sent to the leader of a partition.

DescribeTransactions (key 65), version 0, flexible from 0: sent to the transaction coordinator.

ListTransactions (key 66), versions 0-2, flexible from 0: sent to every broker.

- 1: a filter for transactions that are open longer than a duration (KIP-994).
- 2: a filter by a pattern for transactional ids (KIP-1152).

The tagged fields from 10,000 on are Odradek's: the cause of an epoch bump, a producer's client, and
the transaction that holds a partition's last stable offset. Other clients skip them.
"""

from typing import Final

from odradek.protocol.api import Api
from odradek.protocol.schema import array, int16, int32, int64, message, string


@message
class DescribeProducersTopicRequest:
    name: str = string()
    partition_indexes: tuple[int, ...] = array("int32")


@message
class DescribeProducersRequest:
    topics: tuple[DescribeProducersTopicRequest, ...] = array(DescribeProducersTopicRequest)


@message
class ProducerState:
    """A producer of a partition. `last_timestamp` and `current_txn_start_offset` may be -1.

    Odradek's fields: the transactional id and the client of the producer, and of its open
    transaction its start, the time until its timeout, and the offsets appended since its start.
    """

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)
    transactional_id: str | None = string(default=None, nullable=0, tag=10_000)
    client_id: str | None = string(default=None, nullable=0, tag=10_001)
    client_host: str | None = string(default=None, nullable=0, tag=10_002)
    open_since_ms: int = int64(default=-1, tag=10_003)
    times_out_in_ms: int = int64(default=-1, tag=10_004)
    records_behind: int = int64(default=-1, tag=10_005)


@message
class DescribeProducersPartitionResponse:
    """The producers of a partition.

    Odradek's fields: the partition's offsets, and the producer id whose transaction holds the last
    stable offset, or -1.
    """

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)
    active_producers: tuple[ProducerState, ...] = array(ProducerState)
    last_stable_offset: int = int64(default=-1, tag=10_000)
    high_watermark: int = int64(default=-1, tag=10_001)
    log_end_offset: int = int64(default=-1, tag=10_002)
    log_start_offset: int = int64(default=-1, tag=10_003)
    pinning_producer_id: int = int64(default=-1, tag=10_004)


@message
class DescribeProducersTopicResponse:
    name: str = string()
    partitions: tuple[DescribeProducersPartitionResponse, ...] = array(
        DescribeProducersPartitionResponse
    )


@message
class DescribeProducersResponse:
    throttle_time_ms: int = int32(default=0)
    topics: tuple[DescribeProducersTopicResponse, ...] = array(DescribeProducersTopicResponse)


@message
class DescribeTransactionsRequest:
    transactional_ids: tuple[str, ...] = array("string")


@message
class TransactionTopic:
    topic: str = string()
    partitions: tuple[int, ...] = array("int32")


@message
class TransactionState:
    """A transactional id. `topics` are those of its open transaction that lack their marker.

    Odradek's fields: the cause and time of the last epoch bump that fenced a producer, with a
    message about it; the client; the time until the timeout of the open transaction (-1 without a
    timeout); the time of the last change; and the state that is being written.
    """

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: tuple[TransactionTopic, ...] = array(TransactionTopic)
    epoch_bump_cause: str | None = string(default=None, nullable=0, tag=10_000)
    epoch_bump_timestamp_ms: int = int64(default=-1, tag=10_001)
    client_id: str | None = string(default=None, nullable=0, tag=10_002)
    client_host: str | None = string(default=None, nullable=0, tag=10_003)
    times_out_in_ms: int = int64(default=-1, tag=10_004)
    explanation: str | None = string(default=None, nullable=0, tag=10_005)
    updated_timestamp_ms: int = int64(default=-1, tag=10_006)
    pending_state: str | None = string(default=None, nullable=0, tag=10_007)


@message
class DescribeTransactionsResponse:
    throttle_time_ms: int = int32(default=0)
    transaction_states: tuple[TransactionState, ...] = array(TransactionState)


@message
class ListTransactionsRequest:
    """A ListTransactions request. `duration_filter` is in milliseconds, -1 without a filter."""

    state_filters: tuple[str, ...] = array("string")
    producer_id_filters: tuple[int, ...] = array("int64")
    duration_filter: int = int64(default=-1, since=1)
    transactional_id_pattern: str | None = string(default=None, since=2, nullable=2)


@message
class ListedTransaction:
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@message
class ListTransactionsResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    unknown_state_filters: tuple[str, ...] = array("string")
    transaction_states: tuple[ListedTransaction, ...] = array(ListedTransaction)


DESCRIBE_PRODUCERS: Final = Api(
    key=61,
    name="DescribeProducers",
    min_version=0,
    max_version=0,
    flexible_from=0,
    request=DescribeProducersRequest,
    response=DescribeProducersResponse,
)
DESCRIBE_TRANSACTIONS: Final = Api(
    key=65,
    name="DescribeTransactions",
    min_version=0,
    max_version=0,
    flexible_from=0,
    request=DescribeTransactionsRequest,
    response=DescribeTransactionsResponse,
)
LIST_TRANSACTIONS: Final = Api(
    key=66,
    name="ListTransactions",
    min_version=0,
    max_version=2,
    flexible_from=0,
    request=ListTransactionsRequest,
    response=ListTransactionsResponse,
)

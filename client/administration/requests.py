"""An administrator's requests about transactions (KIP-664), each to the broker that can answer.

ListTransactions goes to every broker, because each returns the ids that it coordinates.
DescribeTransactions and InitProducerId go to the coordinator of an id, DescribeProducers and
WriteTxnMarkers to the leader of a partition. A question about several keys returns, for each key,
a value or the error.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from odradek.client.administration.descriptions import (
    PartitionProducers,
    ProducerDescription,
    ProducerIdAndEpoch,
    TransactionDescription,
    TransactionListing,
)
from odradek.client.administration.many import (
    PARTITIONS_PER_REQUEST,
    all_of,
    coordinators,
    gather,
    leader,
    leaders,
)
from odradek.client.cluster.cluster import COORDINATOR_MOVED, TRANSACTION, Cluster
from odradek.client.cluster.metadata import LEADER_MOVED
from odradek.client.errors import OdradekError, Refused, code_of, error_for
from odradek.client.types import TopicPartition, numbers_by_topic
from odradek.protocol.apis.transactions import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ProducerState,
    TransactionState,
)
from odradek.protocol.apis.txn import (
    INIT_PRODUCER_ID,
    WRITE_TXN_MARKERS,
    InitProducerIdRequest,
    InitProducerIdResponse,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.errors import ErrorCode

IDS_PER_REQUEST: Final = 1_000
DURATION_SINCE: Final = 1
PATTERN_SINCE: Final = 2
FENCING_TIMEOUT_MS: Final = 10_000
"""The transaction time-out in the fencing request, which begins no transaction. It is divided by 10
until it is not above the broker's transaction.max.timeout.ms."""


# every broker


async def list_transactions(
    cluster: Cluster,
    *,
    states: Sequence[str],
    producer_ids: Sequence[int],
    older_than_ms: int | None,
    pattern: str | None,
) -> list[TransactionListing]:
    request = ListTransactionsRequest(
        state_filters=tuple(states),
        producer_id_filters=tuple(producer_ids),
        duration_filter=-1 if older_than_ms is None else older_than_ms,
        transactional_id_pattern=pattern,
    )
    needed = 0 if older_than_ms is None else DURATION_SINCE
    needed = needed if pattern is None else PATTERN_SINCE

    async def ask(node_id: int) -> list[TransactionListing]:
        connection = await cluster.connection(node_id)
        version = connection.version_of(LIST_TRANSACTIONS)
        if version < needed:
            what = "by pattern" if needed == PATTERN_SINCE else "by duration"
            raise Refused(
                f"the broker {connection.peer} cannot select transactions {what}; use a newer one",
                code=ErrorCode.UNSUPPORTED_VERSION,
            )
        answer = await connection.request(LIST_TRANSACTIONS, version, request)
        return _listed(cluster, node_id, answer)

    async def attempt() -> list[TransactionListing]:
        await cluster.refresh()
        answers = await all_of(
            {node_id: partial(ask, node_id) for node_id in cluster.metadata.nodes}
        )
        found: list[TransactionListing] = []
        for listed in answers.values():
            if isinstance(listed, OdradekError):
                raise listed
            found += listed
        return sorted(found, key=lambda listing: listing.transactional_id)

    return await cluster.retrying("listing transactions", attempt)


def _listed(
    cluster: Cluster, node_id: int, answer: ListTransactionsResponse
) -> list[TransactionListing]:
    doing = f"listing the transactions of broker {node_id}"
    cluster.check(answer.error_code, doing)
    if answer.unknown_state_filters:
        unknown = ", ".join(answer.unknown_state_filters)
        raise Refused(f"{doing}: it knows no transaction state {unknown}")
    return [
        TransactionListing(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            state=transaction.transaction_state,
            coordinator_id=node_id,
        )
        for transaction in answer.transaction_states
    ]


# coordinators


async def describe_transactions(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> dict[str, TransactionDescription | OdradekError]:
    wanted = list(dict.fromkeys(transactional_ids))

    async def ask(
        node_id: int, ids: Sequence[str]
    ) -> dict[str, TransactionDescription | OdradekError]:
        request = DescribeTransactionsRequest(transactional_ids=tuple(ids))
        answer = await cluster.ask(node_id, DESCRIBE_TRANSACTIONS, request)
        now_ms = cluster.config.wall_ms()
        return {
            transaction.transactional_id: _described(cluster, node_id, transaction, now_ms)
            for transaction in answer.transaction_states
        }

    return await gather(
        cluster,
        wanted,
        partial(coordinators, cluster, TRANSACTION),
        ask,
        IDS_PER_REQUEST,
        "describing transactions",
    )


def _described(
    cluster: Cluster, node_id: int, state: TransactionState, now_ms: int
) -> TransactionDescription | OdradekError:
    code = code_of(state.error_code)
    if code in COORDINATOR_MOVED:
        cluster.forget_coordinator(TRANSACTION, state.transactional_id)
    if code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return Refused(f"there is no transactional id {state.transactional_id!r}", code=code)
    if code != ErrorCode.NONE:
        return error_for(code, f"describing the transactional id {state.transactional_id!r}")
    return TransactionDescription(
        transactional_id=state.transactional_id,
        coordinator_id=node_id,
        state=state.transaction_state,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        timeout_ms=state.transaction_timeout_ms,
        started_ms=_known(state.transaction_start_time_ms),
        partitions=tuple(
            sorted(
                TopicPartition(topic.topic, index)
                for topic in state.topics
                for index in topic.partitions
            )
        ),
        described_at_ms=now_ms,
        client_id=state.client_id,
        client_host=state.client_host,
        epoch_bump_cause=state.epoch_bump_cause,
        epoch_bump_ms=_known(state.epoch_bump_timestamp_ms),
        times_out_in_ms=_known(state.times_out_in_ms),
        explanation=state.explanation,
        updated_ms=_known(state.updated_timestamp_ms),
        pending_state=state.pending_state,
    )


async def fence_producers(
    cluster: Cluster, transactional_ids: Iterable[str], *, without_markers: bool = False
) -> dict[str, ProducerIdAndEpoch | OdradekError]:
    """Fence the producer of each id, with an InitProducerId without producer id.

    `without_markers`: a decided transaction ends without the markers that it still owes.
    """

    async def fence(transactional_id: str) -> ProducerIdAndEpoch:
        doing = f"fencing the producer of {transactional_id!r}"

        async def ask(timeout_ms: int) -> InitProducerIdResponse:
            request = InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                by_administrator=True,
                without_markers=without_markers,
            )
            return await cluster.ask_coordinator(
                TRANSACTION, transactional_id, INIT_PRODUCER_ID, request
            )

        async def attempt() -> ProducerIdAndEpoch:
            timeout_ms = FENCING_TIMEOUT_MS
            answer = await ask(timeout_ms)
            while answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT and timeout_ms > 1:
                timeout_ms //= 10
                answer = await ask(timeout_ms)
            if answer.error_code in COORDINATOR_MOVED:
                cluster.forget_coordinator(TRANSACTION, transactional_id)
            cluster.check(answer.error_code, doing)
            return ProducerIdAndEpoch(
                producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
            )

        return await cluster.retrying(doing, attempt)

    return await all_of(
        {
            transactional_id: partial(fence, transactional_id)
            for transactional_id in transactional_ids
        }
    )


# leaders


async def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, PartitionProducers | OdradekError]:
    wanted = [TopicPartition(*partition) for partition in dict.fromkeys(partitions)]

    async def ask(
        node_id: int, some: Sequence[TopicPartition]
    ) -> dict[TopicPartition, PartitionProducers | OdradekError]:
        request = DescribeProducersRequest(
            topics=tuple(
                DescribeProducersTopicRequest(name=name, partition_indexes=tuple(indexes))
                for name, indexes in numbers_by_topic(some).items()
            )
        )
        answer = await cluster.ask(node_id, DESCRIBE_PRODUCERS, request)
        return {
            TopicPartition(topic.name, partition.partition_index): _producers(
                cluster, topic.name, partition
            )
            for topic in answer.topics
            for partition in topic.partitions
        }

    return await gather(
        cluster,
        wanted,
        partial(leaders, cluster),
        ask,
        PARTITIONS_PER_REQUEST,
        "describing producers",
    )


def _producers(
    cluster: Cluster, topic: str, answer: DescribeProducersPartitionResponse
) -> PartitionProducers | OdradekError:
    partition = TopicPartition(topic, answer.partition_index)
    if answer.error_code in LEADER_MOVED:
        cluster.metadata.forget_age()
    if answer.error_code != ErrorCode.NONE:
        doing = f"describing the producers of {partition}"
        return error_for(code_of(answer.error_code), doing, answer.error_message)
    return PartitionProducers(
        partition=partition,
        producers=tuple(map(_producer, answer.active_producers)),
        last_stable_offset=_known(answer.last_stable_offset),
        high_watermark=_known(answer.high_watermark),
        log_end_offset=_known(answer.log_end_offset),
        log_start_offset=_known(answer.log_start_offset),
        pinning_producer_id=_known(answer.pinning_producer_id),
    )


def _producer(state: ProducerState) -> ProducerDescription:
    return ProducerDescription(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        last_sequence=state.last_sequence,
        last_timestamp_ms=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        transaction_start_offset=_known(state.current_txn_start_offset),
        transactional_id=state.transactional_id,
        client_id=state.client_id,
        client_host=state.client_host,
        open_since_ms=_known(state.open_since_ms),
        times_out_in_ms=_known(state.times_out_in_ms),
        records_behind=_known(state.records_behind),
    )


async def write_abort_marker(
    cluster: Cluster,
    partition: TopicPartition,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> None:
    doing = f"aborting the transaction of producer id {producer_id} in {partition}"
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=(
            WritableTxnMarkerTopic(name=partition.topic, partition_indexes=(partition.partition,)),
        ),
        coordinator_epoch=coordinator_epoch,
    )
    # These codes have messages of their own, because the usual advice is for a producer.
    newer: dict[int, str] = {
        ErrorCode.INVALID_PRODUCER_EPOCH: f"producer epoch than {producer_epoch}",
        ErrorCode.TRANSACTION_COORDINATOR_FENCED: f"coordinator epoch than {coordinator_epoch}",
    }

    async def attempt() -> None:
        node_id = await leader(cluster, partition)
        request = WriteTxnMarkersRequest(markers=(marker,))
        answer = await cluster.ask(node_id, WRITE_TXN_MARKERS, request)
        for of_marker in answer.markers:
            for topic in of_marker.topics:
                for result in topic.partitions:
                    if result.error_code in LEADER_MOVED:
                        cluster.metadata.forget_age()
                    if result.error_code in newer:
                        raise Refused(
                            f"{doing}: the partition has a newer {newer[result.error_code]}",
                            code=code_of(result.error_code),
                        )
                    cluster.check(result.error_code, doing)

    await cluster.retrying(doing, attempt)


def _known(number: int) -> int | None:
    """Return None for a negative number, which stands for a missing value."""
    return None if number < 0 else number

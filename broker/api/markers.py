"""WriteTxnMarkers, key 27, versions 1-2.

Behaviour: appends a marker to each partition named, waits until all of them are on disk, has the
group coordinator apply or drop the offsets of the transaction, and only then acknowledges
(KAFKA-17507): when a marker is acknowledged, its effect is visible. A repeated marker is harmless
and acknowledged again (KAFKA-19999).

A marker that does not come from this broker's own coordinator was sent by an administrator, and is
logged. It does not change the coordinator's state, as in Kafka: there the transaction is still
open, and a second marker is written when it ends.

The markers of one request of a coordinator for one partition are appended with nothing between, and
count together: no reader sees the records of one member of a transaction group without the others.

A coordinator names the topic's id beside its name, with a tag of our own. A marker for another
topic, which was deleted and made anew under its name, is refused with UNKNOWN_TOPIC_ID.

Versions: 2 has the transaction version of the marker, which decides how its epoch is compared
(KIP-1228).

Every client may send it, as in Kafka without an authoriser: administrators' tools end hanging
transactions with it. They send the coordinator epoch that DescribeProducers returned for the
producer, or 0 if it has none. In a cluster, a later epoch is CLUSTER_AUTHORIZATION_FAILED on a
listener for clients: such a marker could fence the coordinator. Coordinators use the other
listener.

Differs from Kafka: a repeat of TV2 is not written again. Producer ids below -1 are refused, as -1
is. A partition that a marker names twice gets one marker, where Kafka writes it and never answers.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from odradek.broker.api.context import RequestContext
from odradek.broker.api.parallel import for_each
from odradek.broker.partitions.marking import append_markers
from odradek.broker.partitions.partitions import Partition
from odradek.broker.storage.marking import NewMarker
from odradek.broker.topic_partition import TopicIdPartition
from odradek.broker.turns import Turns
from odradek.broker.txn.transaction import ProducerIdAndEpoch
from odradek.protocol.apis.txn import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC

LOGGER: Final = logging.getLogger(__name__)
BETWEEN_MARKERS: Final = "between-markers"
FIRST_EPOCH: Final = 0
"""The lowest epoch of a coordinator. A marker with it fences none."""
DURABLE_SECONDS: Final = 4.0
"""The time for a marker to become durable: less than a coordinator waits for the answer. It asks
again, and the marker, which is in the log, is acknowledged then."""
MARKER_STEPS: Final = 5
"""The cost of one marker, in steps of a turn."""


@dataclass(slots=True)
class Write:
    """One marker for one partition, and its result."""

    marker: WritableTxnMarker
    where: TopicIdPartition
    partition: Partition | None = None
    leader_epoch: int = -1
    """The epoch in which the marker was appended."""
    next_offset: int = -1
    """The marker counts once everything below this offset is on disk."""
    code: ErrorCode = ErrorCode.NONE


Run = list[Write]
"""The markers of one request for one partition."""


async def write_txn_markers(
    context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    turns = Turns()
    flat = []
    for marker in request.markers:
        await turns.take()
        for write in _writes(marker):
            await turns.take()
            flat.append(write)
    # An appended marker must take effect, also if its sender disconnects (KAFKA-17507).
    with trio.CancelScope(shield=True):
        await _write(context, flat, turns)
    if not context.is_from_broker:
        await _log_by_hand(context, flat)
    return WriteTxnMarkersResponse(markers=await _results(flat, turns))


async def _write(context: RequestContext, flat: Sequence[Write], turns: Turns) -> None:
    runs = await _runs(flat, turns) if context.is_from_broker else [[write] for write in flat]
    for number, run in enumerate(runs):
        if number:
            context.core.reached(BETWEEN_MARKERS)
        await turns.take(MARKER_STEPS * len(run))
        _append_run(context, run)

    async def finish(run: Run) -> None:
        await _finish(context, run)

    await for_each(runs, finish)


async def _runs(flat: Sequence[Write], turns: Turns) -> list[Run]:
    """Group the markers of a coordinator by partition."""
    runs: dict[TopicIdPartition, Run] = {}
    for write in flat:
        await turns.take()
        runs.setdefault(write.where, []).append(write)
    return list(runs.values())


def _append_run(context: RequestContext, run: Run) -> None:
    """Append the markers for one partition by one write.

    They may be those of a transaction group, which a reader sees at once or not at all.
    """
    try:
        where = run[0].where
        partition = context.core.partitions.get(*where.by_name)
        partition.check_available()
        if not where.may_be_of(partition.topic_id):
            message = f"{where} is a partition of another topic now: it was made anew"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, message)
        _check_sender(context, run[0].marker, partition)
        results = append_markers(partition, [_new(write.marker) for write in run])
    except KafkaError as error:
        for write in run:
            write.code = error.code
        return
    for write, result in zip(run, results, strict=True):
        if isinstance(result, KafkaError):
            write.code = result.code
            continue
        write.partition, write.leader_epoch = partition, partition.leader_epoch
        write.next_offset = partition.log_end_offset  # of a repeat: the marker is before it
        if result is not None and write.where.topic == CONSUMER_OFFSETS_TOPIC:
            context.core.groups.marker_written(
                write.where.partition,
                producer_id=write.marker.producer_id,
                committed=write.marker.transaction_result,
                marker_offset=result.base_offset,
            )


def _new(marker: WritableTxnMarker) -> NewMarker:
    return NewMarker(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        marker.transaction_version,
    )


def _writes(marker: WritableTxnMarker) -> Iterator[Write]:
    for topic in marker.topics:
        for index in dict.fromkeys(topic.partition_indexes):
            yield Write(marker, TopicIdPartition.of(topic.name, index, topic.topic_id))


def _check_sender(context: RequestContext, marker: WritableTxnMarker, partition: Partition) -> None:
    """Raise KafkaError if a client's marker could fence the coordinator of the transaction."""
    known = max(partition.coordinator_epoch(marker.producer_id), FIRST_EPOCH)
    if context.is_from_broker or marker.coordinator_epoch <= known:
        return
    here = context.core.cluster.this_broker
    if here is not None and here.peer_port:
        LOGGER.warning(
            "a marker of coordinator epoch %d from client %s was refused",
            marker.coordinator_epoch,
            context.host,
        )
        raise KafkaError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"a client sent coordinator epoch {marker.coordinator_epoch}, and the partition has "
            f"none after {known}",
        )


async def _finish(context: RequestContext, run: Run) -> None:
    """Wait until markers are on disk, and have the group coordinator apply them."""
    appended = [write for write in run if write.code is ErrorCode.NONE]
    if not appended:
        return
    last = appended[-1]
    assert last.partition is not None
    code = ErrorCode.REQUEST_TIMED_OUT
    try:
        # In the epoch of the append: since then the marker may have been cut off, and another lead
        # of this broker may have begun (KAFKA-9235).
        with trio.move_on_after(DURABLE_SECONDS):
            await last.partition.flushed(last.next_offset, leader_epoch=last.leader_epoch)
            code = ErrorCode.NONE
    except KafkaError as error:
        code = error.code
    if code is not ErrorCode.NONE:
        for write in appended:
            write.code = code
        return
    if last.where.topic == CONSUMER_OFFSETS_TOPIC:
        context.core.groups.markers_durable(last.where.partition, last.next_offset)


async def _log_by_hand(context: RequestContext, writes: Iterable[Write]) -> None:
    turns = Turns()
    for write in writes:
        await turns.take(MARKER_STEPS)
        marker = write.marker
        context.core.transactions.marked_by_hand(
            partition=write.where.by_name,
            producer=ProducerIdAndEpoch(
                producer_id=marker.producer_id, producer_epoch=marker.producer_epoch
            ),
            committed=marker.transaction_result,
            code=write.code,
            client=context.client,
        )


async def _results(writes: Iterable[Write], turns: Turns) -> tuple[WritableTxnMarkerResult, ...]:
    """Return one result for each producer: clients look results up by producer id."""
    found: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    for write in writes:
        await turns.take()
        of_producer = found.setdefault(write.marker.producer_id, {})
        of_producer.setdefault(write.where.topic, {})[write.where.partition] = write.code
    results = []
    for producer_id, by_topic in found.items():
        topics = []
        for topic, partitions in by_topic.items():
            await turns.take()
            codes = await turns.map(_partition_result, tuple(partitions.items()))
            topics.append(WritableTxnMarkerTopicResult(name=topic, partitions=tuple(codes)))
        results.append(WritableTxnMarkerResult(producer_id=producer_id, topics=tuple(topics)))
    return tuple(results)


def _partition_result(result: tuple[int, ErrorCode]) -> WritableTxnMarkerPartitionResult:
    index, code = result
    return WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)

"""The markers of a WriteTxnMarkers request: appended by partition, and waited for.

`append_early` appends those of a decision that is not durable yet (`txn/early_delivery.py`).
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import trio

from odradek.broker.api.context import RequestContext
from odradek.broker.environment.parallel import for_each
from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.early import may_follow_now
from odradek.broker.partitions.leader import Leader
from odradek.broker.storage.marking import NewMarker
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.late import dataclass
from odradek.protocol.apis.txn import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
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


@dataclass(slots=True)
class Write:
    """One marker for one partition, and its result."""

    marker: WritableTxnMarker
    where: TopicIdPartition
    leader: Leader | None = None
    """The lead in which the marker was appended."""
    next_offset: int = -1
    """The marker counts once everything below this offset is on disk."""
    code: ErrorCode = ErrorCode.NONE


Run = list[Write]
"""The markers of one request for one partition."""


def writes_of(marker: WritableTxnMarker) -> Iterator[Iterator[Write]]:
    """Yield for each topic the marker for each of its partitions, which are named once in all."""
    named: dict[tuple[str, int], set[int]] = {}
    for topic in marker.topics:
        yield _writes_in(topic, marker, named.setdefault((topic.name, topic.topic_id.int), set()))


def _writes_in(
    topic: WritableTxnMarkerTopic, marker: WritableTxnMarker, named: set[int]
) -> Iterator[Write]:
    for index in dict.fromkeys(topic.partition_indexes):
        if index not in named:
            named.add(index)
            yield Write(marker, TopicIdPartition.of(topic.name, index, topic.topic_id))


async def runs_of(flat: Sequence[Write], turns: Turns) -> list[Run]:
    """Group the markers of a coordinator by partition."""
    runs: dict[TopicIdPartition, Run] = {}
    for write in flat:
        await turns.take()
        runs.setdefault(write.where, []).append(write)
    return list(runs.values())


def append_run(context: RequestContext, run: Run) -> None:
    """Append the markers for one partition by one write.

    They may be those of a transaction group, which a reader sees at once or not at all.
    """
    try:
        where = run[0].where
        leader = context.core.partitions.leader(*where.by_name)
        # invariant markers 2: A marker is owed to a partition of a topic's id, not of its name: a
        # topic that was made anew is owed nothing, and its leader takes no marker for the one
        # before.
        # plant a partition is owed its marker as long as any topic has its name
        # plant a topic made anew gets the markers of the one before
        if not where.may_be_of(leader.log.topic_id):
            message = f"{where} is a partition of another topic now: it was made anew"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, message)
        _check_sender(context, run[0].marker, leader)
        results = leader.append_markers([_new(write.marker) for write in run])
    except KafkaError as error:
        for write in run:
            write.code = error.code
        return
    for write, result in zip(run, results, strict=True):
        if isinstance(result, KafkaError):
            write.code = result.code
            continue
        write.leader = leader
        write.next_offset = leader.log.log_end_offset  # of a repeat: the marker is before it
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


def _check_sender(context: RequestContext, marker: WritableTxnMarker, leader: Leader) -> None:
    """Raise KafkaError if a client's marker could fence the coordinator of the transaction."""
    known = max(leader.coordinator_epoch(marker.producer_id), FIRST_EPOCH)
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


async def wait_applied(context: RequestContext, run: Run) -> None:
    """Wait until markers are on disk, and have the group coordinator apply them."""
    appended = [write for write in run if write.code is ErrorCode.NONE]
    if not appended:
        return
    last = appended[-1]
    assert last.leader is not None
    code = ErrorCode.REQUEST_TIMED_OUT
    try:
        # In the lead of the append: since then the marker may have been cut off, and another lead
        # of this broker may have begun (KAFKA-9235).
        with trio.move_on_after(DURABLE_SECONDS):
            await last.leader.wait_committed(last.next_offset)
            code = ErrorCode.NONE
    except KafkaError as error:
        code = error.code
    if code is not ErrorCode.NONE:
        for write in appended:
            write.code = code
        return
    # invariant markers 4: A marker on `__consumer_offsets` is acknowledged only after the offsets
    # are applied.
    # plant KAFKA-17507
    # plant KAFKA-15784
    if last.where.topic == CONSUMER_OFFSETS_TOPIC:
        context.core.groups.markers_durable(last.where.partition, last.next_offset)


# Before the decision is durable


class _EarlyMarkers:
    """The markers that `append_early` has appended."""

    def __init__(self, context: RequestContext, runs: Sequence[Run]) -> None:
        self._context = context
        self._runs = runs

    async def apply(self) -> Collection[TopicIdPartition]:
        """See `EarlyMarkers`."""

        async def finish(run: Run) -> None:
            await wait_applied(self._context, run)

        await for_each(self._runs, finish)
        return [run[0].where for run in self._runs if run[0].code is ErrorCode.NONE]


def append_early(
    context: RequestContext, state_index: int, marker: WritableTxnMarker
) -> _EarlyMarkers | None:
    """Append markers in the turn in which their decision was appended. See `MarkerSender`."""
    partitions = context.core.partitions
    runs: list[Run] = [[write] for writes in writes_of(marker) for write in writes]
    if not may_follow_now(partitions, state_index, [write.where for (write,) in runs]):
        return None
    for number, run in enumerate(runs):
        if number:
            context.core.reached(BETWEEN_MARKERS)
        append_run(context, run)
        leader = run[0].leader
        if leader is not None:
            leader.maintenance.flusher.give_now()  # one write of the journal has all of them
    return _EarlyMarkers(context, runs)

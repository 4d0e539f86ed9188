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

Differs from Kafka:

- A repeated marker of TV2 is not written again. It is acknowledged, as the transaction is over.
  Kafka appends it, too (KAFKA-19999).
- A producer id below -1 has no markers. They are refused, as for -1. Kafka appends them without an
  entry for a producer: nothing ever reads them.
- A partition that a marker names twice gets one marker. Kafka writes it and never answers.
- A client's marker does not overtake a coordinator. In a cluster, a client's marker with a later
  coordinator epoch than the partition knows of the producer is CLUSTER_AUTHORIZATION_FAILED.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

import trio

from odradek.broker.api.context import RequestContext
from odradek.broker.api.marker_writes import (
    BETWEEN_MARKERS,
    Run,
    Write,
    append_run,
    runs_of,
    wait_applied,
    writes_of,
)
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import Listeners, ServedApi
from odradek.broker.environment.parallel import for_each
from odradek.broker.environment.turns import Turns
from odradek.broker.security.rights import ALTER_CLUSTER, CLUSTER_ACTION
from odradek.broker.txn.transaction import ProducerIdAndEpoch
from odradek.protocol.apis.txn import (
    WRITE_TXN_MARKERS,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.protocol.errors import ErrorCode, KafkaError

LOGGER: Final = logging.getLogger(__name__)
MARKER_STEPS: Final = 5
"""The cost of one marker, in steps of a turn."""


async def write_txn_markers(
    context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    turns = Turns()
    flat = []
    for marker in request.markers:
        await turns.take()
        for writes in writes_of(marker):
            await turns.take()
            for write in writes:
                await turns.take()
                flat.append(write)
    try:
        context.access.check_cluster(ALTER_CLUSTER, CLUSTER_ACTION)
    except KafkaError as error:
        for write in flat:
            write.code = error.code
        return WriteTxnMarkersResponse(markers=await _results(flat, turns))
    # An appended marker must take effect, also if its sender disconnects (KAFKA-17507).
    with trio.CancelScope(shield=True):
        await _write(context, flat, turns)
    if not context.is_from_broker:
        await _log_by_hand(context, flat)
    return WriteTxnMarkersResponse(markers=await _results(flat, turns))


async def _write(context: RequestContext, flat: Sequence[Write], turns: Turns) -> None:
    # invariant transaction-groups 5
    runs = await runs_of(flat, turns) if context.is_from_broker else [[write] for write in flat]
    for number, run in enumerate(runs):
        if number:
            context.core.reached(BETWEEN_MARKERS)
        await turns.take(MARKER_STEPS * len(run))
        append_run(context, run)

    async def finish(run: Run) -> None:
        await wait_applied(context, run)

    await for_each(runs, finish)


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


SERVED: Final = (
    ServedApi(
        WRITE_TXN_MARKERS,
        write_txn_markers,
        (
            Need(ALTER_CLUSTER, "or CLUSTER_ACTION"),
            Need(CLUSTER_ACTION, "or ALTER"),
        ),
        on=Listeners.ALL,
    ),
)

"""The transactions that hold back read_committed consumers, from the answers of several brokers.

DescribeProducers finds the producer that pins the last stable offset of a partition,
ListTransactions its transactional id, unless the leader has returned that, and DescribeTransactions
the age and the time-out. A client that may not describe transactions gets what the others return.
"""

from collections.abc import Iterable, Mapping

from odradek.client.administration import requests
from odradek.client.administration.descriptions import (
    PartitionProducers,
    Pin,
    ProducerDescription,
    TransactionDescription,
)
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.offsets import list_offsets
from odradek.client.errors import OdradekError, Refused
from odradek.client.types import LATEST, TopicPartition
from odradek.protocol.errors import ErrorCode

Pins = dict[TopicPartition, Pin | OdradekError | None]


async def find_pins(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    producers: Mapping[TopicPartition, PartitionProducers | OdradekError] | None = None,
) -> Pins:
    """Return the transaction that pins each partition, None without one, or the error.

    `producers` are those of the partitions, if the caller has just described them. Raises
    `TimedOut`, and `Refused` if the end of a log may not be looked up.
    """
    if producers is None:
        producers = await requests.describe_producers(cluster, partitions)
    found = {name: producers[name] for name in partitions}
    pinned = _pinned(found)
    try:
        ids = await transactional_ids(cluster, pinned.values())
    except Refused:
        ids = _ids_in(pinned.values())
    described = await requests.describe_transactions(cluster, ids.values())
    ends = await _ends(cluster, [found[name] for name in pinned])
    pins: Pins = {
        name: answer if isinstance(answer, OdradekError) else None for name, answer in found.items()
    }
    for name, producer in pinned.items():
        transactional_id = ids.get(producer.producer_id)
        about = described.get(transactional_id or "")
        pins[name] = _pin(found[name], producer, ends[name], transactional_id, about)
    # invariant client 15
    await _leave_out_ended(cluster, pins)
    return pins


async def transactional_ids(
    cluster: Cluster, producers: Iterable[ProducerDescription]
) -> dict[int, str]:
    """Return the transactional ids by producer id, from the leaders and the coordinators."""
    wanted = list(producers)
    known = _ids_in(wanted)
    unknown = sorted({producer.producer_id for producer in wanted} - known.keys())
    if unknown:
        listed = await requests.list_transactions(
            cluster, states=(), producer_ids=unknown, older_than_ms=None, pattern=None
        )
        known |= {transaction.producer_id: transaction.transactional_id for transaction in listed}
    return known


def _ids_in(producers: Iterable[ProducerDescription]) -> dict[int, str]:
    """Return the transactional ids that leaders have returned, which only Odradek does."""
    return {
        producer.producer_id: producer.transactional_id
        for producer in producers
        if producer.transactional_id is not None
    }


def _pinned(
    found: Mapping[TopicPartition, PartitionProducers | OdradekError],
) -> dict[TopicPartition, ProducerDescription]:
    pinning = {
        name: answer.pinning for name, answer in found.items() if not isinstance(answer, Exception)
    }
    return {name: producer for name, producer in pinning.items() if producer is not None}


async def _ends(
    cluster: Cluster, found: Iterable[PartitionProducers | OdradekError]
) -> dict[TopicPartition, int]:
    """Return the end of each log. If DescribeProducers has not returned it, use ListOffsets."""
    answers = [answer for answer in found if isinstance(answer, PartitionProducers)]
    ends = {answer.partition: answer.log_end_offset for answer in answers}
    missing = {name: LATEST for name, end in ends.items() if end is None}
    asked = await list_offsets(cluster, missing, "read_uncommitted")
    return {name: asked[name].offset if end is None else end for name, end in ends.items()}


def _pin(
    found: PartitionProducers | OdradekError,
    producer: ProducerDescription,
    end_offset: int,
    transactional_id: str | None,
    described: TransactionDescription | OdradekError | None,
) -> Pin:
    assert isinstance(found, PartitionProducers)
    partition = found.partition
    about = None
    if isinstance(described, TransactionDescription):
        is_hanging = not described.is_open or partition not in described.partitions
        about = None if is_hanging else described
    elif described is not None:
        is_hanging = described.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    else:  # other brokers leave out the ids that a client may not describe
        is_hanging = found.has_odradek_fields
    start_offset = producer.transaction_start_offset or 0
    return Pin(
        partition=partition,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        start_offset=start_offset,
        end_offset=end_offset,
        records_behind=max(end_offset - start_offset, 0),
        transactional_id=transactional_id,
        state=about.state if about else None,
        client_id=producer.client_id or (about.client_id if about else None),
        client_host=producer.client_host or (about.client_host if about else None),
        age_ms=about.age_ms if about else None,
        remaining_ms=about.remaining_ms if about else None,
        timeout_ms=about.timeout_ms if about else None,
        is_hanging=is_hanging,
    )


async def _leave_out_ended(cluster: Cluster, pins: Pins) -> None:
    """Ask again about what seems to hang: the transaction may have ended between the requests."""
    doubtful = {name: pin for name, pin in pins.items() if isinstance(pin, Pin) and pin.is_hanging}
    again = _pinned(await requests.describe_producers(cluster, doubtful))
    for name, pin in doubtful.items():
        now = again.get(name)
        is_same = now is not None and now.producer_id == pin.producer_id
        if not is_same or now is None or now.transaction_start_offset != pin.start_offset:
            pins[name] = None

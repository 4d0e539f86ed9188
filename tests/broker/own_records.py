"""Append what the broker itself writes to a partition: its coordinators' records, and markers."""

from collections.abc import Iterable

from odradek.broker.partitions.answers import Appended
from odradek.broker.partitions.partition import Partition
from odradek.broker.storage.marking import NewMarker
from odradek.protocol.errors import KafkaError
from odradek.protocol.record import NO_TIMESTAMP, Record, batch_of


def append_records(partition: Partition, records: Iterable[Record]) -> Appended:
    """Append records as one batch. One without a timestamp gets the broker's time."""
    leader = partition.leader()
    now_ms = leader._clock.wall_ms()
    return leader.append_batch(
        batch_of(
            each._replace(timestamp_ms=now_ms) if each.timestamp_ms == NO_TIMESTAMP else each
            for each in records
        )
    )


def append_marker(partition: Partition, marker: NewMarker) -> Appended | None:
    """Append one marker. Return None for a repeat; raise the KafkaError that it is refused with."""
    (result,) = partition.leader().append_markers([marker])
    if isinstance(result, KafkaError):
        raise result
    return result

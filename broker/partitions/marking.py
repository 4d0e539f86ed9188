"""Transaction markers, as the leader of a partition appends them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.broker.partitions.answers import Appended
from odradek.broker.storage.marking import NewMarker
from odradek.broker.storage.validation import check_marker_fields
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.partitions.partition import Partition


def append_markers(
    partition: Partition, markers: Sequence[NewMarker]
) -> list[Appended | KafkaError | None]:
    """Append markers of different producers by one write: all of them count, or none.

    The result has for each marker where it is; None if it repeats the last one, and was not
    appended; or why it was refused: TRANSACTION_COORDINATOR_FENCED, INVALID_PRODUCER_EPOCH, and
    UNKNOWN_SERVER_ERROR for a marker without producer id, epoch or transaction version. Raises
    KafkaError, and nothing is appended: KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION,
    NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS.
    """
    partition.check_in_sync()
    results: list[Appended | KafkaError | None] = []
    new: list[int] = []
    for number, marker in enumerate(markers):
        results.append(None)
        try:
            if _is_new(partition, marker):
                new.append(number)
        except KafkaError as error:
            results[number] = error
    if new:
        for number, appended in zip(
            new, partition.append_new_markers([markers[number] for number in new]), strict=True
        ):
            results[number] = appended
    return results


def _is_new(partition: Partition, marker: NewMarker) -> bool:
    """Return False for a repeat. Raises KafkaError for a marker that is refused."""
    check_marker_fields(marker.producer_id, marker.producer_epoch, marker.transaction_version)
    return partition.log.producers.check_marker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )

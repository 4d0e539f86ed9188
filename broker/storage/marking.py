"""Transaction markers that are to be appended, and their batches."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.protocol.control import encode_marker


class NewMarker(NamedTuple):
    """A transaction marker to be appended."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    transaction_version: int = 0


MARKER_BYTES: Final = 78
"""The size of a marker's batch."""


def marker_batches(
    markers: Sequence[NewMarker], base_offset: int, leader_epoch: int, now_ms: int
) -> list[bytearray]:
    """Return the batches of markers that get one offset after the other."""
    return [
        encode_marker(
            committed=marker.committed,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=now_ms,
            base_offset=offset,
            leader_epoch=leader_epoch,
        )
        for offset, marker in enumerate(markers, base_offset)
    ]

"""Retention: decide which segments expire by time or size. It changes nothing."""

from collections.abc import Sequence

from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.segment import Segment


def expired_count(
    segments: Sequence[Segment], config: LogConfig, *, now_ms: int, stable_offset: int
) -> int:
    """Return how many segments, from the oldest on, retention deletes.

    By time, a segment expires when its newest record is older than retention.ms
    (`Segment.newest_ms`). By size, it expires if the segments behind it have at least
    retention.bytes. Raises OSError.
    """
    # Never delete records that no reader was allowed to see yet (KAFKA-5634).
    removable = sum(1 for segment in segments if segment.next_offset <= stable_offset)
    return max(
        _expired_by_time(segments[:removable], config, now_ms),
        _expired_by_size(segments, removable, config.retention_bytes),
    )


def _expired_by_time(segments: Sequence[Segment], config: LogConfig, now_ms: int) -> int:
    if config.retention_ms < 0:
        return 0
    expired = 0
    for number, segment in enumerate(segments, 1):
        # invariant files 9: Records without a timestamp are as old as their file, which compaction
        # and repair keep.
        # plant records without a timestamp stay for ever
        # plant compaction makes records without a timestamp young
        if now_ms - segment.newest_ms() <= config.retention_ms:
            break
        expired = number
    return expired


def _expired_by_size(segments: Sequence[Segment], removable: int, retention_bytes: int) -> int:
    if retention_bytes < 0:
        return 0
    surplus = sum(segment.size_bytes for segment in segments) - retention_bytes
    for number, segment in enumerate(segments[:removable]):
        surplus -= segment.size_bytes
        if surplus < 0:
            return number
    return removable

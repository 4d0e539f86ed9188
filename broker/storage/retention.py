"""Which segments are too old or too many: a decision without a side effect."""

from collections.abc import Sequence

from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.segment import Segment


def expired_count(
    segments: Sequence[Segment], config: LogConfig, *, now_ms: int, stable_offset: int
) -> int:
    """How many segments, from the oldest on, may go by time or by size.

    A segment goes only whole, and only if all of it is below `stable_offset`: what readers have
    not been allowed to see yet is never taken away (KAFKA-5634). By time it goes once its newest
    record is older than retention.ms; by size as long as what stays is at least retention.bytes.
    Segments without any timestamp go by size alone.
    """
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
        newest = segment.largest_timestamp
        if newest < 0 and config.is_compacted:  # nothing is left in it: it goes with the next
            continue
        if newest < 0 or now_ms - newest <= config.retention_ms:
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

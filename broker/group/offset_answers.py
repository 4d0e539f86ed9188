"""The offsets of requests: what is stored of them, and what is returned."""

from collections.abc import Iterable

from odradek.broker.config.settings import INT64_MAX
from odradek.broker.group.offsets import Offsets
from odradek.broker.group.requests import FetchedOffset, OffsetToStore
from odradek.broker.group.store import NO_EXPIRY, StoredOffset
from odradek.broker.topic_partition import TopicPartition
from odradek.protocol.errors import ErrorCode


def known_partitions(
    offsets: Offsets, group_id: str, *, require_stable: bool
) -> Iterable[TopicPartition]:
    """Return the partitions with an offset, and with `require_stable` those with a pending one."""
    known = {partition: None for partition, _ in offsets.all_stored(group_id)}
    if require_stable:
        known.update(dict.fromkeys(offsets.all_unstable(group_id)))
    return known


def fetched_offset(
    offsets: Offsets, group_id: str, partition: TopicPartition, *, require_stable: bool
) -> FetchedOffset:
    stored = offsets.stored(group_id, partition)
    if require_stable and offsets.is_unstable(group_id, partition):
        return FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    if stored is None:
        return FetchedOffset()
    return FetchedOffset(
        offset=stored.offset,
        leader_epoch=stored.leader_epoch,
        metadata=stored.metadata,
        topic_id=stored.topic_id,
    )


def stored_of(asked: OffsetToStore, now_ms: int) -> StoredOffset:
    return StoredOffset(
        offset=asked.offset,
        leader_epoch=asked.leader_epoch,
        metadata=asked.metadata,
        commit_timestamp_ms=now_ms,
        expire_timestamp_ms=_expiry_of(asked.retention_ms, now_ms),
        topic_id=asked.topic_id,
    )


def _expiry_of(retention_ms: int, now_ms: int) -> int:
    """Return the time when an offset expires, at most the largest of 64 bits."""
    return NO_EXPIRY if retention_ms < 0 else min(now_ms + retention_ms, INT64_MAX)

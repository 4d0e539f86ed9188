"""Expiry of offsets, and of groups without members and offsets (KIP-211)."""

from odradek.broker.group.classic_group import ClassicGroup
from odradek.broker.group.consumer.consumer_group import ConsumerGroup
from odradek.broker.group.state import GroupState
from odradek.broker.group.store import (
    CONSUMER,
    NO_EXPIRY,
    OffsetEntry,
    StoredOffset,
    subscribed_topics,
)
from odradek.broker.group.stored_offsets import Offsets

NO_TOPICS = frozenset[str]()


def expired_offsets(
    group: ClassicGroup | ConsumerGroup, offsets: Offsets, *, now_ms: int, retention_ms: int
) -> tuple[list[OffsetEntry], bool]:
    """Return tombstones for the expired offsets of one group, and True if it may go itself.

    By Kafka's rules (KIP-211) offsets live for `offsets.retention.minutes` after the classic group
    became empty, or after they were stored if it never had members, or is of the new protocol. A
    group with members loses only offsets of topics that it does not read any more.
    """
    topics: frozenset[str] | None = NO_TOPICS
    since_ms = -1
    if isinstance(group, ConsumerGroup):
        is_over = not group.members
        topics = group.subscribed_topics()
    else:
        is_over = group.state is GroupState.EMPTY and not group.promised
        if group.protocol_type is not None:
            if group.state is GroupState.EMPTY:
                since_ms = group.state_since_ms
            else:
                topics = _topics_of_members(group)
    if topics is None:
        return [], False
    gone = []
    count = 0
    for partition, stored in offsets.all_stored(group.group_id):
        count += 1
        is_wanted = partition.topic in topics or offsets.is_unstable(group.group_id, partition)
        since = since_ms if since_ms >= 0 else stored.commit_timestamp_ms
        if not is_wanted and _is_expired(
            stored, since_ms=since, now_ms=now_ms, retention_ms=retention_ms
        ):
            gone.append(OffsetEntry(group.group_id, partition, None))
    has_pending = any(True for _ in offsets.all_unstable(group.group_id))
    return gone, is_over and len(gone) == count and not has_pending


def _topics_of_members(group: ClassicGroup) -> frozenset[str] | None:
    """Return the topics that the members read; None if that is not known, so it may be any."""
    # During a rebalance the subscriptions are not known, and other protocols do not show which
    # topics they read.
    is_known = group.state is GroupState.STABLE and group.protocol_type == CONSUMER
    return subscribed_topics(group) if is_known else None


def _is_expired(stored: StoredOffset, *, since_ms: int, now_ms: int, retention_ms: int) -> bool:
    """Return True if the offset's own expiry time or the retention since `since_ms` is over."""
    if stored.expire_timestamp_ms != NO_EXPIRY:
        return now_ms >= stored.expire_timestamp_ms
    return now_ms - since_ms >= retention_ms

"""Expiry of offsets, and of groups without members and offsets (KIP-211)."""

from odradek.broker.group.consumer.members import ConsumerGroup
from odradek.broker.group.members import ClassicGroup
from odradek.broker.group.offsets import Offsets
from odradek.broker.group.state import GroupState
from odradek.broker.group.store import (
    CONSUMER,
    NO_EXPIRY,
    GroupEntry,
    OffsetEntry,
    StoredOffset,
    subscribed_topics,
)


def expired_entries(
    group: ClassicGroup, offsets: Offsets, *, now_ms: int, retention_ms: int
) -> list[OffsetEntry | GroupEntry]:
    """Return tombstones for what has expired in one group, by Kafka's rules (KIP-211).

    Offsets live for `offsets.retention.minutes` after the group became empty, or after they were
    stored if the group never had members. A consumer group with members loses only offsets of
    topics that it does not read any more.
    """
    is_empty = group.state is GroupState.EMPTY
    topics = frozenset[str]()
    since_ms = -1
    if group.protocol_type is not None:
        if is_empty:
            since_ms = group.state_since_ms
        else:
            # During a rebalance the subscriptions are not known, and other protocols do not show
            # which topics they read. Nothing expires then.
            read = subscribed_topics(group) if group.protocol_type == CONSUMER else None
            if group.state is not GroupState.STABLE or read is None:
                return []
            topics = read
    gone: list[OffsetEntry | GroupEntry] = []
    for partition, stored in offsets.all_stored(group.group_id):
        since = since_ms if since_ms >= 0 else stored.commit_timestamp_ms
        is_over = _is_expired(stored, since_ms=since, now_ms=now_ms, retention_ms=retention_ms)
        is_wanted = partition.topic in topics or offsets.is_unstable(group.group_id, partition)
        if is_over and not is_wanted:
            gone.append(OffsetEntry(group.group_id, partition, None))
    keeps_something = len(gone) < sum(1 for _ in offsets.all_stored(group.group_id)) or any(
        True for _ in offsets.all_unstable(group.group_id)
    )
    if is_empty and not keeps_something and not group.promised:
        gone.append(GroupEntry(group.group_id, None))
    return gone


def expired_of_consumer(
    group: ConsumerGroup, offsets: Offsets, *, now_ms: int, retention_ms: int
) -> tuple[list[OffsetEntry], bool]:
    """Return tombstones for the expired offsets of one group, and True if it may go itself.

    An offset of the new protocol lives for the retention after it was stored, and as long as a
    member reads its topic.
    """
    topics = group.subscribed_topics()
    expired = []
    count = 0
    for partition, stored in offsets.all_stored(group.group_id):
        count += 1
        if (
            partition.topic not in topics
            and not offsets.is_unstable(group.group_id, partition)
            and _is_expired(
                stored,
                since_ms=stored.commit_timestamp_ms,
                now_ms=now_ms,
                retention_ms=retention_ms,
            )
        ):
            expired.append(OffsetEntry(group.group_id, partition, None))
    has_pending = any(True for _ in offsets.all_unstable(group.group_id))
    return expired, not group.members and len(expired) == count and not has_pending


def _is_expired(stored: StoredOffset, *, since_ms: int, now_ms: int, retention_ms: int) -> bool:
    """Return True if the offset's own expiry time or the retention since `since_ms` is over."""
    if stored.expire_timestamp_ms != NO_EXPIRY:
        return now_ms >= stored.expire_timestamp_ms
    return now_ms - since_ms >= retention_ms

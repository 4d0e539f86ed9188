"""The offsets of requests: what is stored of them, and what is returned."""

from collections.abc import Iterable, Mapping

from odradek.broker.group.consumer.consumer_group import TopicShape
from odradek.broker.group.member_requests import Committing, FetchedOffset
from odradek.broker.group.store import PartitionOffset
from odradek.broker.group.stored_offsets import Offsets
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID


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
    stored = offsets.find(group_id, partition)
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


def accepted_offsets(
    committing: Committing, *, topics: Mapping[str, TopicShape], metadata_max: int
) -> tuple[dict[TopicPartition, ErrorCode], list[PartitionOffset]]:
    """Return an error code for each offset of a request, and those to store.

    `topics` are those that exist now: one may have been made anew since the request was read, and
    an offset of the old one would replace an offset that was stored for the new one. `metadata_max`
    is in characters of Java.
    """
    results = dict.fromkeys(committing.offsets, ErrorCode.NONE)
    accepted: list[PartitionOffset] = []
    for offset in committing.offsets.items():
        partition, stored = offset
        metadata = stored.metadata
        topic = topics.get(partition.topic)
        # invariant client 10
        if topic is not None and stored.topic_id not in (ZERO_UUID, topic.topic_id):
            results[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif metadata and len(metadata.encode("utf-16-le")) // 2 > metadata_max:
            results[partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            accepted.append(offset)
    return results, accepted

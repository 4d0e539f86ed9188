"""The deletion of groups and of their offsets, as an administrator asks for it."""

from collections.abc import Callable, Iterable
from typing import Final

from odradek.broker.environment.turns import Turns
from odradek.broker.group.classic_group import ClassicGroup
from odradek.broker.group.consumer.state import ConsumerEvent, decide_for
from odradek.broker.group.state import GroupEvent, decide
from odradek.broker.group.store import (
    CONSUMER,
    GroupEntry,
    OffsetEntry,
    subscribed_topics,
)
from odradek.broker.group.tenure import GroupTenure
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import ErrorCode, KafkaError

DELETE_STEPS: Final = 4
"""The cost of deleting one group, in steps of a turn."""


async def delete_groups(
    tenure_of: Callable[[str], GroupTenure], group_ids: Iterable[str]
) -> dict[str, ErrorCode]:
    """Remove groups without members, with their offsets. Return an error code for each."""
    results: dict[str, ErrorCode] = {}
    turns = Turns()
    for group_id in group_ids:
        await turns.take(DELETE_STEPS)
        if group_id in results:
            continue
        try:
            await _delete_group(tenure_of(group_id), group_id)
            results[group_id] = ErrorCode.NONE
        except KafkaError as error:
            results[group_id] = error.code
    return results


async def _delete_group(tenure: GroupTenure, group_id: str) -> None:
    consumer = tenure.consumer(group_id)
    if consumer is None:
        decide(_group(tenure, group_id).state, GroupEvent.DELETE)
    else:
        decide_for(consumer.state, ConsumerEvent.DELETE)
    offsets = tenure.offsets
    partitions = {partition: None for partition, _ in offsets.all_stored(group_id)}
    partitions.update(dict.fromkeys(offsets.all_unstable(group_id)))
    tombstones: list[OffsetEntry | GroupEntry] = [
        OffsetEntry(group_id, each, None) for each in partitions
    ]
    if consumer is None:
        tombstones.append(GroupEntry(group_id, None))
    next_offset = tenure.append_tombstones(tombstones)
    if consumer is not None:
        consumer.bury(ConsumerEvent.DELETE)
        next_offset = consumer.end_offset
    await tenure.wait_committed(next_offset)


async def delete_offsets(
    tenure: GroupTenure, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Remove stored and pending offsets. Return an error code for each partition.

    A partition without an offset succeeds. One of a topic that the members read is
    GROUP_SUBSCRIBED_TO_TOPIC. Raises KafkaError for all of them: GROUP_ID_NOT_FOUND, and
    NON_EMPTY_GROUP if the members are not consumers, whose topics nobody knows.
    """
    read = _topics_in_use(tenure, group_id)
    offsets = tenure.offsets
    results: dict[TopicPartition, ErrorCode] = {}
    tombstones = []
    for partition in partitions:
        if read is None or partition.topic in read:
            results[partition] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            continue
        results[partition] = ErrorCode.NONE
        is_pending = offsets.is_unstable(group_id, partition)
        if is_pending or offsets.find(group_id, partition) is not None:
            tombstones.append(OffsetEntry(group_id, partition, None))
    if tombstones:
        await tenure.wait_committed(tenure.append_tombstones(tombstones))
    return results


def _topics_in_use(tenure: GroupTenure, group_id: str) -> frozenset[str] | None:
    """Return the topics that the members read; None if that is not known, so it may be any."""
    consumer = tenure.consumer(group_id)
    if consumer is not None:
        return consumer.group.subscribed_topics()
    group = _group(tenure, group_id)
    if group.protocol_type != CONSUMER:
        decide(group.state, GroupEvent.DELETE_OFFSETS_OF_OTHERS)
        return frozenset()
    decide(group.state, GroupEvent.DELETE_OFFSETS)
    return subscribed_topics(group)


def _group(tenure: GroupTenure, group_id: str) -> ClassicGroup:
    live = tenure.classic(group_id)
    if live is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    return live.group

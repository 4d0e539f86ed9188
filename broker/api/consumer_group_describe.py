"""ConsumerGroupDescribe, key 69, versions 0-1.

Behaviour: describes consumer groups of the new protocol (KIP-848). A group that is not there is
GROUP_ID_NOT_FOUND, and so is a classic one.

Versions: 1 has the type of each member.

Differs from Kafka: in nothing that is known.
"""

from typing import Final
from uuid import UUID

from odradek.broker.api.context import RequestContext, text_bytes
from odradek.broker.api.group_administration import DESCRIBE_STEPS
from odradek.broker.api.needs import Need
from odradek.broker.api.operations import NOT_ASKED
from odradek.broker.api.served_api import ServedApi
from odradek.broker.cluster.image import ClusterImage
from odradek.broker.environment.turns import Turns
from odradek.broker.group.consumer.consumer_group import (
    NO_PARTITIONS,
    ConsumerGroup,
    ConsumerMember,
    Partitions,
)
from odradek.broker.group.consumer.state import ConsumerState
from odradek.broker.security.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC, GROUP
from odradek.protocol.apis.group_consumer import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeTopicPartitions,
)
from odradek.protocol.errors import ErrorCode, KafkaError

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1
HIDDEN_TOPIC: Final = (
    "The group has described topic(s) that the client is not authorized to describe."
)
"""The types of members, by the protocol that they use."""


async def consumer_group_describe(
    context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    turns = Turns()
    counts = await turns.distinct(request.group_ids)
    described = {}
    for group_id, count in counts.items():
        await turns.take(DESCRIBE_STEPS)
        operations = NOT_ASKED
        if request.include_authorized_operations:
            operations = context.access.operations(GROUP, group_id)
        described[group_id] = await _describe_group(context, group_id, operations, count, turns)
    return ConsumerGroupDescribeResponse(
        groups=tuple(await turns.map(described.__getitem__, request.group_ids))
    )


async def _describe_group(
    context: RequestContext, group_id: str, operations: int, count: int, turns: Turns
) -> ConsumerGroupDescribeGroup:
    """Describe a group, for which memory is reserved `count` times."""
    try:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        context.access.check(DESCRIBE_GROUP, group_id)
        group, state, assignor = await context.core.groups.consumers.describe_group(group_id)
        await _check_topics(context, group, turns)
    except KafkaError as error:
        await context.expect(count)
        return ConsumerGroupDescribeGroup(
            error_code=error.code,
            error_message=error.message,
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=(),
        )
    item_count, size_bytes = await _size_of(group, turns)
    await context.expect(count * item_count, extra_bytes=count * size_bytes)
    return await _described_group(context, group, state, assignor, operations, turns)


async def _check_topics(context: RequestContext, group: ConsumerGroup, turns: Turns) -> None:
    """Raise KafkaError if a member reads a topic that the client may not describe."""
    names = context.core.cluster.image.names
    for member in group.members.values():
        target = group.targets.get(member.member_id, NO_PARTITIONS)
        ids = dict.fromkeys((*member.assigned, *member.revoking, *target))
        topics = [*member.topics, *(names[each] for each in ids if each in names)]
        await turns.take(1 + len(topics))
        for topic in topics:
            if not context.access.allows(DESCRIBE_TOPIC, topic):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN_TOPIC)


async def _size_of(group: ConsumerGroup, turns: Turns) -> tuple[int, int]:
    """Return the number of items in the description of a group, and the size of its texts."""
    item_count = 1
    size_bytes = 0
    for member in group.members.values():
        target = group.targets.get(member.member_id, NO_PARTITIONS)
        topic_count = len(member.topics) + len(member.assigned) + len(member.revoking) + len(target)
        await turns.take(1 + topic_count)
        item_count += 1 + topic_count
        size_bytes += sum(map(text_bytes, member.topics)) + text_bytes(member.regex)
        size_bytes += 4 * sum(map(len, target.values())) + member.size_bytes
    return item_count, size_bytes


async def _described_group(
    context: RequestContext,
    group: ConsumerGroup,
    state: ConsumerState,
    assignor: str,
    operations: int,
    turns: Turns,
) -> ConsumerGroupDescribeGroup:
    image = context.core.cluster.image
    members = []
    for member in group.members.values():
        target = group.targets.get(member.member_id, NO_PARTITIONS)
        await turns.take(1 + len(member.topics) + len(member.assigned) + len(target))
        members.append(_described_member(member, target, image))
    return ConsumerGroupDescribeGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor,
        members=tuple(members),
        authorized_operations=operations,
    )


def _described_member(
    member: ConsumerMember, target: Partitions, image: ClusterImage
) -> ConsumerGroupDescribeMember:
    owned: dict[UUID, list[int]] = {}
    for epochs in (member.assigned, member.revoking):
        for topic_id, indexes in epochs.items():
            owned.setdefault(topic_id, []).extend(indexes)
    return ConsumerGroupDescribeMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
        subscribed_topic_regex=member.regex,
        assignment=_to_assignment({key: frozenset(each) for key, each in owned.items()}, image),
        target_assignment=_to_assignment(target, image),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _to_assignment(partitions: Partitions, image: ClusterImage) -> ConsumerGroupDescribeAssignment:
    """Return partitions with the names of their topics. Topics that are gone are left out."""
    return ConsumerGroupDescribeAssignment(
        topic_partitions=tuple(
            ConsumerGroupDescribeTopicPartitions(
                topic_id=topic_id,
                topic_name=image.names[topic_id],
                partitions=tuple(sorted(indexes)),
            )
            for topic_id, indexes in partitions.items()
            if topic_id in image.names
        )
    )


SERVED: Final = (
    ServedApi(
        CONSUMER_GROUP_DESCRIBE,
        consumer_group_describe,
        (Need(DESCRIBE_GROUP), Need(DESCRIBE_TOPIC, "every topic of a member")),
    ),
)

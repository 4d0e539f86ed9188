"""Consumer groups of the new protocol (KIP-848): heartbeats and descriptions.

ConsumerGroupHeartbeat, key 68, versions 0-1; ConsumerGroupDescribe, key 69, 0-1.

Behaviour: a heartbeat joins (epoch 0), goes on, leaves (-1), or leaves for a while as a static
member (-2). Its answer has the member's epoch, and the partitions that the member may own now if
they have changed, or if it has sent all its fields. Both are on disk when they are returned. An
error has a message, and nothing else. A group that is not there is GROUP_ID_NOT_FOUND. So is a
classic one, unless a member joins and `group.consumer.migration.policy` lets the group be
converted. The group is a classic one again when the last member of the new protocol has gone.

Versions: ConsumerGroupHeartbeat 1 has a regular expression to subscribe with, and the client makes
its member id; before, the coordinator made it for an empty one. ConsumerGroupDescribe 1 has the
type of each member.

Differs from Kafka: patterns are matched at once, so that the first answer has their topics, by RE2
itself, Kafka's by its translation to Java. A group id has at most 1 KiB, other ids up to 249
characters, patterns 4,096. A classic group is converted during a rebalance, too. A group that goes
back to the classic protocol begins with a rebalance if any member has not reached its target, and
after a failover goes on with it; a classic member without any of the new protocol is asked to join
again when the group's epoch has risen.
"""

from typing import Final
from uuid import UUID

from odradek.broker.api.context import RequestContext, text_bytes
from odradek.broker.api.group import DESCRIBE_STEPS
from odradek.broker.api.operations import GROUP_OPERATIONS, NOT_ASKED
from odradek.broker.cluster.image import ClusterImage
from odradek.broker.group.consumer.heartbeat import Beat, Beaten
from odradek.broker.group.consumer.members import (
    NO_PARTITIONS,
    ConsumerGroup,
    ConsumerMember,
    Partitions,
)
from odradek.broker.group.consumer.state import ConsumerState
from odradek.broker.turns import Turns
from odradek.protocol.apis.group_consumer import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeTopicPartitions,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC

MEMBER_ID_FROM: Final = 1
CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1
"""The types of members, by the protocol that they use."""


async def consumer_group_heartbeat(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    core = context.core
    try:
        asked = await _beat(context, request)
        await core.cluster.ensure_state_topic(CONSUMER_OFFSETS_TOPIC)
        beaten = await core.groups.consumers.heartbeat(
            asked, must_have_id=context.api_version >= MEMBER_ID_FROM
        )
    except KafkaError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    is_leaving = request.member_epoch < 0
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=beaten.member.member_id,
        member_epoch=request.member_epoch if is_leaving else beaten.member.epoch,
        heartbeat_interval_ms=0
        if is_leaving
        else core.groups.consumers.heartbeat_interval_ms(request.group_id),
        assignment=await _assignment(beaten) if beaten.shows_assignment else None,
    )


async def _beat(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Beat:
    turns = Turns()
    owned: dict[UUID, set[int]] = {}
    for each in request.topic_partitions or ():
        await turns.take(1 + len(each.partitions))
        owned.setdefault(each.topic_id, set()).update(each.partitions)
    names = request.subscribed_topic_names
    return Beat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        client_id=context.client_id,
        client_host=f"/{context.host}",  # as Java prints an address
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if names is None else frozenset(await turns.distinct(names)),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None if request.topic_partitions is None else owned,
    )


async def _assignment(beaten: Beaten) -> ConsumerGroupHeartbeatResponseAssignment:
    turns = Turns()
    listed = []
    for topic_id, epochs in beaten.member.assigned.items():
        await turns.take(1 + len(epochs) // 20)
        listed.append(
            ConsumerGroupHeartbeatResponseTopicPartitions(
                topic_id=topic_id, partitions=tuple(sorted(epochs))
            )
        )
    return ConsumerGroupHeartbeatResponseAssignment(topic_partitions=tuple(listed))


async def consumer_group_describe(
    context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    turns = Turns()
    counts = await turns.distinct(request.group_ids)
    described = {}
    for group_id, count in counts.items():
        await turns.take(DESCRIBE_STEPS)
        described[group_id] = await _described(context, group_id, operations, count, turns)
    return ConsumerGroupDescribeResponse(
        groups=tuple(await turns.map(described.__getitem__, request.group_ids))
    )


async def _described(
    context: RequestContext, group_id: str, operations: int, count: int, turns: Turns
) -> ConsumerGroupDescribeGroup:
    """Describe a group, for which memory is reserved `count` times."""
    try:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        group, state, assignor = await context.core.groups.consumers.describe_group(group_id)
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
        assignment=_named({key: frozenset(each) for key, each in owned.items()}, image),
        target_assignment=_named(target, image),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _named(partitions: Partitions, image: ClusterImage) -> ConsumerGroupDescribeAssignment:
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

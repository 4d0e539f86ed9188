r"""ConsumerGroupHeartbeat, key 68, versions 0-1: consumer groups of the new protocol (KIP-848).

Behaviour: a heartbeat joins (epoch 0), goes on, leaves (-1), or leaves for a while as a static
member (-2). Its answer has the member's epoch, and the partitions that the member may own now if
they have changed, or if it has sent all its fields. Both are on disk when they are returned. An
error has a message, and nothing else. A group that is not there is GROUP_ID_NOT_FOUND. So is a
classic one, unless a member joins and `group.consumer.migration.policy` lets the group be
converted. The group is a classic one again when the last member of the new protocol has gone.

Versions: 1 has a regular expression to subscribe with, and the client makes its member id; before,
the coordinator made it for an empty one.

Differs from Kafka:

- A pattern is matched before the first answer. It is matched when a member subscribes with it, when
  topics come or go, and when ACL entries change. Kafka matches in the background, and the member
  learns of its topics some heartbeats later, or at the latest after
  `group.consumer.regex.refresh.interval.ms`, which does not exist here. A topic that is deleted is
  at once not among the stored topics of a pattern; in Kafka it is until the pattern is matched
  again.
- Patterns are matched by RE2 itself. Kafka's are matched by its translation to Java, which refuses
  `\C`, a name that two parts of a pattern have, and a brace that is repeated. RE2 reads them, and
  they match no other topics for it.
- The program of a pattern has at most 64 KiB. So no name takes long to match. Kafka's may be
  larger.
- A draw between assignors. If as many members ask for one assignor as for another, the one that was
  asked for first is taken. Kafka takes the first in a hash table.
- A static member that comes back has one record of each kind. Kafka writes its predecessor's once
  more, under the new id, and its own behind them.
- The hash of the topics in a group's record is another one. A group that Kafka has written gets a
  new epoch once.
- A classic group is converted during its first rebalance, too. Kafka fails until the rebalance has
  ended.
- A classic member that owns a partition that does not exist. Its group is converted, too, and it
  gives up the partition. Kafka fails (UNKNOWN_SERVER_ERROR) until the leader assigns again.
- A topic of which a classic member owns no partition. It is neither stored nor described when the
  group is converted. Kafka keeps it if the leader of the classic group has named it.
- A group that goes back to the classic protocol begins with a rebalance whenever a member has not
  reached its target. In Kafka it does not if a static member comes back with the classic protocol,
  and two members may read one partition until the next heartbeat. A coordinator that takes over
  such a group before its rebalance has ended repeats the rebalance. In Kafka the partitions of the
  member that had left may stay without an owner.
- Classic members alone in a group of the new protocol. With
  `group.consumer.migration.policy=upgrade`, they are asked to join again when the group's epoch has
  risen. In Kafka they are not, and partitions that became free stay without an owner.
- After the wall clock was set back, the next assignment is not delayed. Kafka waits until
  `group.consumer.assignment.interval.ms` has passed since the last one by its clock.
"""

from functools import partial
from typing import Final
from uuid import UUID

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.environment.turns import Turns
from odradek.broker.group.consumer.heartbeat import Beat, Beaten
from odradek.broker.security.rights import DESCRIBE_TOPIC, READ_GROUP
from odradek.protocol.apis.group_consumer import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC

MEMBER_ID_FROM: Final = 1


async def consumer_group_heartbeat(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    core = context.core
    try:
        await _check_rights(context, request)
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


async def _check_rights(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raise KafkaError unless the client may use the group, and see what it subscribes to."""
    context.access.check(READ_GROUP, request.group_id)
    turns = Turns()
    for name in request.subscribed_topic_names or ():
        await turns.take()
        context.access.check(DESCRIBE_TOPIC, name)


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
        may_see=partial(context.access.shows, DESCRIBE_TOPIC),
        rights=context.access.rights,
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


SERVED: Final = (
    ServedApi(
        CONSUMER_GROUP_HEARTBEAT,
        consumer_group_heartbeat,
        (
            Need(READ_GROUP),
            Need(DESCRIBE_TOPIC, "every topic that is subscribed to"),
        ),
    ),
)

"""OffsetDelete, key 47, version 0.

Behaviour: removes stored offsets of a group, also those that an open transaction has sent. The
answer is sent when that is on disk. An offset that is not there is no error. A partition that is
named several times is answered once. A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION,
one of a topic that the group's members read is GROUP_SUBSCRIBED_TO_TOPIC. The whole answer is
GROUP_ID_NOT_FOUND without such a group, NON_EMPTY_GROUP if the group has members that are not
consumers, INVALID_GROUP_ID for an empty id.

Versions: there is one.

Differs from Kafka:

- Offsets of a topic that a new member is going to read are not deleted. During a rebalance Kafka
  knows only the topics of the last generation.
"""

from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.environment.turns import Turns, in_parts
from odradek.broker.security.rights import DELETE_GROUP, READ_TOPIC
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.apis.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.protocol.errors import ErrorCode, KafkaError

OFFSETS_AT_ONCE: Final = 500
"""Offsets that are deleted without a checkpoint."""


async def offset_delete(
    context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    turns = Turns()
    if not context.access.allows(DELETE_GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, topics=())
    image = context.core.cluster.image
    codes: dict[TopicPartition, ErrorCode] = {}
    wanted: dict[TopicPartition, None] = {}
    for topic in request.topics:
        await turns.take()
        is_hidden = not context.access.allows(READ_TOPIC, topic.name)
        for each in topic.partitions:
            await turns.take()
            where = TopicPartition(topic.name, each.partition_index)
            if is_hidden:
                codes[where] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif image.has_partition(*where):
                wanted[where] = None
            else:
                codes[where] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        # Each part is checked anew: the group may have changed while the one before was written.
        for some in in_parts(tuple(wanted), OFFSETS_AT_ONCE):
            await turns.take(len(some))
            codes.update(await context.core.groups.delete_offsets(request.group_id, some))
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code, topics=())
    found: dict[str, list[OffsetDeleteResponsePartition]] = {}
    for where, code in codes.items():
        await turns.take()
        found.setdefault(where.topic, []).append(
            OffsetDeleteResponsePartition(partition_index=where.partition, error_code=code)
        )
    topics = []
    for name, partitions in found.items():
        await turns.take()
        topics.append(OffsetDeleteResponseTopic(name=name, partitions=tuple(partitions)))
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=tuple(topics))


SERVED: Final = (ServedApi(OFFSET_DELETE, offset_delete, (Need(DELETE_GROUP), Need(READ_TOPIC))),)

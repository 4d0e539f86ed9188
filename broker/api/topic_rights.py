"""The rights of a client that creates and deletes topics."""

from collections.abc import Iterable
from uuid import UUID

from odradek.broker.api.context import RequestContext
from odradek.broker.cluster.image import TopicImage
from odradek.broker.environment.turns import Turns
from odradek.broker.security.rights import (
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DELETE_CLUSTER,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import ZERO_UUID


def check_may_create(context: RequestContext, name: str) -> None:
    """Raise TOPIC_AUTHORIZATION_FAILED unless the client may create topics, or this one."""
    access = context.access
    if access.shows(CREATE_CLUSTER):
        return
    if not access.allows(CREATE_TOPIC, name):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")


def check_may_delete(context: RequestContext, name: str) -> None:
    """Raise TOPIC_AUTHORIZATION_FAILED unless the client may delete topics, or this one."""
    if not context.access.shows(DELETE_CLUSTER):
        context.access.check(DELETE_TOPIC, name)


def may_see(context: RequestContext, topic: str) -> bool:
    """Return True if the client may learn that a topic exists, of one that it wants deleted."""
    access = context.access
    return access.shows(DESCRIBE_TOPIC, topic) or access.shows(DELETE_CLUSTER)


async def named_and_by_id(
    context: RequestContext, asked: Iterable[tuple[str | None, UUID]], turns: Turns
) -> dict[tuple[str | None, UUID], TopicImage]:
    """Return what is asked for about topics that the request has by name and by id."""
    image = context.core.cluster.image
    found: dict[tuple[str | None, UUID], TopicImage] = {}
    keys = frozenset(asked)
    for name, topic_id in keys:
        await turns.take()
        topic = image.topic_by_id(topic_id) if name is None and topic_id != ZERO_UUID else None
        if topic is None or not may_see(context, topic.name):
            continue
        if (topic.name, ZERO_UUID) in keys:
            found[name, topic_id] = found[topic.name, ZERO_UUID] = topic
    return found

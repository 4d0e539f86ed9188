"""The result of a topic that CreateTopics has created."""

from odradek.broker.api.config_values import topic_configs
from odradek.broker.api.context import RequestContext
from odradek.broker.cluster.image import TopicImage
from odradek.broker.security.rights import DESCRIBE_TOPIC_CONFIGS
from odradek.protocol.apis.topics import CreatableTopicConfigs, CreatableTopicResult
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID


def creation_result(
    context: RequestContext, topic: TopicImage, *, validate_only: bool
) -> CreatableTopicResult:
    """Return the result; without its settings for a client that may not see them."""
    if not context.access.shows(DESCRIBE_TOPIC_CONFIGS, topic.name):
        return CreatableTopicResult(
            name=topic.name,
            topic_id=ZERO_UUID if validate_only else topic.topic_id,
            error_code=ErrorCode.NONE,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
    return CreatableTopicResult(
        name=topic.name,
        topic_id=ZERO_UUID if validate_only else topic.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=tuple(
            CreatableTopicConfigs(
                name=config.name,
                value=config.value,
                read_only=config.read_only,
                config_source=config.config_source,
                is_sensitive=config.is_sensitive,
            )
            for config in topic_configs(topic, context.core.settings)
        ),
    )

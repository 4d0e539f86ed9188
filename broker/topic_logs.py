"""The logs of topics on this broker: between the cluster's image and the partitions."""

import logging
from collections.abc import Sequence
from typing import Final

from odradek.broker.cluster.image import ClusterImage, TopicImage
from odradek.broker.config import BrokerConfig
from odradek.broker.partitions import Partitions
from odradek.broker.storage.config import FlushPolicy, LogConfig
from odradek.broker.topic_config import topic_value
from odradek.protocol.batch import TimestampType
from odradek.protocol.errors import ErrorCode, KafkaError

LOGGER: Final = logging.getLogger(__name__)


class TopicLogs:
    """Makes, opens and removes the partitions that an image speaks of."""

    def __init__(self, partitions: Partitions, config: BrokerConfig) -> None:
        self._partitions = partitions
        self._config = config

    async def open_all(self, image: ClusterImage) -> int:
        """Open the log of every partition, recovered; how many there are."""
        count = 0
        for topic in image.topics.values():
            config = log_config(topic, self._config)
            for index, partition in enumerate(topic.partitions):
                await self._partitions.open(
                    topic.name,
                    topic.topic_id,
                    index,
                    config,
                    leader_epoch=partition.leader_epoch,
                )
                count += 1
        return count

    async def create(self, topic: TopicImage, indexes: Sequence[int]) -> None:
        """Make empty logs for some partitions of a topic."""
        config = log_config(topic, self._config)
        try:
            for index in indexes:
                epoch = topic.partitions[index].leader_epoch
                await self._partitions.create(
                    topic.name, topic.topic_id, index, config, leader_epoch=epoch
                )
        except OSError as error:
            await self._remove(topic, indexes)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"The logs of {topic.name} cannot be made: {error.strerror}.",
            ) from error

    async def delete(self, topic: TopicImage) -> None:
        """Remove the logs of a topic; what cannot be removed now is removed at the next start."""
        await self._remove(topic, range(len(topic.partitions)))

    async def _remove(self, topic: TopicImage, indexes: Sequence[int]) -> None:
        try:
            await self._partitions.delete(topic.name, indexes)
        except OSError as error:
            LOGGER.warning("the logs of %s cannot be removed: %s", topic.name, error)


def log_config(topic: TopicImage, broker: BrokerConfig) -> LogConfig:
    """A topic's settings, or what they fall back to, as storage wants them."""

    def number(name: str) -> int:
        return int(topic_value(name, topic.configs, broker))

    log_append_time = topic_value("message.timestamp.type", topic.configs, broker)
    return LogConfig(
        segment_bytes=number("segment.bytes"),
        segment_ms=number("segment.ms"),
        segment_index_bytes=number("segment.index.bytes"),
        index_interval_bytes=number("index.interval.bytes"),
        retention_ms=number("retention.ms"),
        retention_bytes=number("retention.bytes"),
        max_message_bytes=number("max.message.bytes"),
        message_timestamp_type=(
            TimestampType.LOG_APPEND_TIME
            if log_append_time == "LogAppendTime"
            else TimestampType.CREATE_TIME
        ),
        message_timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        min_insync_replicas=number("min.insync.replicas"),
        producer_id_expiration_ms=broker.producer_id_expiration_ms,
        flush=FlushPolicy(broker.log_flush),
    )

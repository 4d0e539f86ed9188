"""The coordinators of this broker, over the partitions of the state topics that it leads."""

import logging
from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

import trio

from odradek.broker.cluster.image import ClusterImage
from odradek.broker.cluster.metadata import ClusterMetadata
from odradek.broker.config.broker import MINUTE_MS, BrokerConfig
from odradek.broker.config.consumer_group_settings import (
    ASSIGNMENT,
    HEARTBEAT,
    SESSION,
    group_value,
)
from odradek.broker.config.live import NO_CONFIGS, LiveConfig
from odradek.broker.coordination.tenure import MisplacedRecords
from odradek.broker.environment.env import Env
from odradek.broker.group.coordinator import GroupCoordinator
from odradek.broker.group.limits import ConsumerGroupConfig, GroupConfig
from odradek.broker.partitions.leader import Leader
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.coordinator import TransactionCoordinator
from odradek.broker.txn.producer_ids import ProducerIds
from odradek.broker.txn.tenure import OnChanged
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

LOGGER: Final = logging.getLogger(__name__)


class StateTopic:
    """The partitions of one state topic, as its coordinator sees them."""

    def __init__(self, partitions: Partitions, topic: str) -> None:
        self._partitions = partitions
        self._topic = topic

    def get(self, index: int) -> Leader:
        try:
            return self._partitions.leader(self._topic, index)
        except KafkaError as error:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR, f"{self._topic}-{index} is not led by this broker."
            ) from error


class LocalCoordinators:
    """The `Coordinators` of `Roles`: those of this broker."""

    def __init__(
        self,
        transactions: TransactionCoordinator,
        groups: GroupCoordinator,
        partitions: Partitions,
    ) -> None:
        self.transactions = transactions
        self.groups = groups
        self._partitions = partitions
        self._loading = 0
        self._all_loaded = trio.Event()

    async def load(self, topic: str, index: int) -> None:
        self._loading += 1
        try:
            await self._of(topic).load(index)
        except MisplacedRecords as error:
            partition = self._partitions.find(TopicPartition(topic, index))
            if partition is not None:
                await self._partitions.take_offline(partition, error.message)
        except KafkaError as error:
            LOGGER.error(
                "what %s-%d keeps is not coordinated, as it cannot be read: %s", topic, index, error
            )
        finally:
            self._loading -= 1
            if not self._loading:
                all_loaded, self._all_loaded = self._all_loaded, trio.Event()
                all_loaded.set()

    async def wait_loaded(self) -> None:
        """Wait until no partition is being loaded."""
        if self._loading:
            await self._all_loaded.wait()

    async def forget_topic(self, topic: str, topic_id: UUID) -> None:
        try:
            await self.groups.forget_topic(topic, topic_id)
        except KafkaError as error:
            LOGGER.warning("offsets of the deleted topic %s are still stored: %s", topic, error)

    def unload(self, topic: str, index: int) -> None:
        self._of(topic).unload(index)

    def _of(self, topic: str) -> TransactionCoordinator | GroupCoordinator:
        return self.transactions if topic == TRANSACTION_STATE_TOPIC else self.groups


def local_coordinators(
    env: Env,
    settings: LiveConfig,
    metadata: ClusterMetadata,
    partitions: Partitions,
    on_changed: OnChanged | None,
) -> LocalCoordinators:
    """Return the coordinators of a broker; they coordinate nothing yet.

    `on_changed` is called with each transaction that has changed.
    """
    image, config = metadata.image, settings.given
    return LocalCoordinators(
        TransactionCoordinator(
            state_partitions=StateTopic(partitions, TRANSACTION_STATE_TOPIC),
            producer_ids=ProducerIds(env.meta),
            clock=env.clock,
            reached=env.reached,
            config=_transaction_config(config, image),
            is_by_tag=lambda: _is_by_tag(metadata),
            on_changed=on_changed,
        ),
        GroupCoordinator(
            state_partitions=StateTopic(partitions, CONSUMER_OFFSETS_TOPIC),
            clock=env.clock,
            rng=env.rng,
            config=_group_config(config, image),
            shapes=lambda: metadata.image,
            settings_of=GroupSettings(settings, lambda: metadata.image).of_group,
        ),
        partitions,
    )


class GroupSettings:
    """The settings of consumer groups as they are now. Each heartbeat asks for some of them."""

    def __init__(self, settings: LiveConfig, image: Callable[[], ClusterImage]) -> None:
        self._settings = settings
        self._image = image
        self._config = settings.now
        self._common = _settings_of(NO_CONFIGS, self._config)
        """The settings of all groups that have none of their own, in `_config`."""

    def of_group(self, group_id: str) -> ConsumerGroupConfig:
        config = self._settings.now
        own = self._image().group_configs.get(group_id)
        if own:
            return _settings_of(own, config)
        if config is not self._config:
            self._config, self._common = config, _settings_of(NO_CONFIGS, config)
        return self._common


def _settings_of(own: Mapping[str, str], config: BrokerConfig) -> ConsumerGroupConfig:
    return ConsumerGroupConfig(
        session_timeout_ms=group_value(SESSION, own, config),
        heartbeat_interval_ms=group_value(HEARTBEAT, own, config),
        assignment_interval_ms=group_value(ASSIGNMENT, own, config),
    )


def _partition_count(image: ClusterImage, topic: str, configured: int) -> int:
    """Return the partition count of a state topic. It never changes, as ids are hashed over it."""
    found = image.topics.get(topic)
    return configured if found is None else len(found.partitions)


def _is_by_tag(metadata: ClusterMetadata) -> bool:
    state = metadata.newest_image.topics.get(TRANSACTION_STATE_TOPIC)
    return state is not None and state.is_by_tag


def _transaction_config(config: BrokerConfig, image: ClusterImage) -> TransactionConfig:
    return TransactionConfig(
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        transaction_state_log_num_partitions=_partition_count(
            image, TRANSACTION_STATE_TOPIC, config.transaction_state_log_num_partitions
        ),
        transaction_concurrent_wait_ms=config.transaction_concurrent_wait_ms,
        transaction_two_phase_commit_enable=config.transaction_two_phase_commit_enable,
        transaction_abort_on_disconnect=config.transaction_abort_on_disconnect,
        transaction_group_id_expiration_ms=config.transaction_group_id_expiration_ms,
        transactional_ids_max_bytes=config.transactional_ids_max_bytes,
    )


def _group_config(config: BrokerConfig, image: ClusterImage) -> GroupConfig:
    return GroupConfig(
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_max_size=config.group_max_size,
        group_consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
        group_consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        group_consumer_max_size=config.group_consumer_max_size,
        group_consumer_assignors=tuple(config.group_consumer_assignors.split(",")),
        group_consumer_assignment_interval_ms=config.group_consumer_assignment_interval_ms,
        group_consumer_migration_policy=config.group_consumer_migration_policy,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        offsets_topic_num_partitions=_partition_count(
            image, CONSUMER_OFFSETS_TOPIC, config.offsets_topic_num_partitions
        ),
    )

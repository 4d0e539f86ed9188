"""The controller: it creates, grows and deletes topics, and is the only writer of the image.

Every change has this order: check (raises `KafkaError`) -> logs on disk -> metadata store -> image.
With the store's transaction the topic exists. A crash before it leaves empty directories that
belong to no topic. They are removed when a topic of that name is created. Directories with records
are never removed for it, but set aside (`partitions/directories.py`).

A deletion has the opposite order: store -> image -> logs. The transaction that removes a topic also
notes its id (`/deletions/ID`). The note stays until no directory of that id is left. So after a
crash at any moment a deleted topic does not come back, and its directories are not set aside: they
are removed at the next start, or before a topic of that name is created.

State topics are created when a request first needs them, with one replica and their own settings.
Their coordinators are loaded before the image has them.

At the start this broker becomes the leader of every partition in a new leader epoch, as after an
election. With that epoch coordinators fence the requests of an earlier run that are still under
way.
"""

import logging
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, Protocol
from uuid import UUID

import trio

from odradek.broker.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.broker.cluster.new_topic import (
    WantedTopic,
    check_growth,
    check_name,
    check_replicas,
    check_room,
    not_hosted,
    planned_partition_count,
)
from odradek.broker.cluster.store import (
    CLUSTER,
    DELETIONS,
    PARTITIONS,
    TOPICS,
    deletion_key,
    pack,
    pack_partition,
    partition_key,
    read_deletions,
    read_topics,
    topic_deletes,
    topic_key,
    topic_puts,
    unpack,
)
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.topic import check_topic_configs, state_topic_configs
from odradek.broker.env import Compare, MetaStore
from odradek.broker.storage.reserve import DISK_FULL
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC

LOGGER: Final = logging.getLogger(__name__)
BASE64_URL: Final = str.maketrans("+/", "-_")


class Coordinators(Protocol):
    """The coordinators of this broker."""

    async def load(self, topic: str, index: int) -> None:
        """Load what one partition of a state topic keeps. Raises KafkaError."""


class TopicLogs(Protocol):
    """The logs of topics on this broker."""

    async def create(self, topic: TopicImage, indexes: Sequence[int]) -> None:
        """Create empty logs for some partitions. A directory in their place is set aside.

        Raises KafkaError(KAFKA_STORAGE_ERROR); then none of them exists.
        """

    async def delete(self, topic: TopicImage, indexes: Sequence[int]) -> None:
        """Remove the logs of some partitions."""

    async def remove_deleted(self, name: str, topic_id: UUID) -> bool:
        """Remove what is left of a deleted topic. Return False if that is not possible now."""


class Controller:
    """The cluster's metadata (`image`), and the changes of it."""

    def __init__(
        self,
        *,
        meta: MetaStore,
        config: BrokerConfig,
        rng: random.Random,
        logs: TopicLogs,
        coordinators: Coordinators,
        image: ClusterImage,
    ) -> None:
        self.image = image
        self._meta = meta
        self._config = config
        self._rng = rng
        self._logs = logs
        self._coordinators = coordinators
        self._changing = trio.Lock()
        self._deletions: dict[UUID, str] = {}

    @property
    def node_id(self) -> int:
        return self._config.node_id

    @property
    def this_broker(self) -> BrokerImage:
        return self.image.broker(self.node_id)

    def advertise(self, host: str, port: int) -> None:
        """Set the address at which clients reach this broker."""
        here = BrokerImage(node_id=self.node_id, host=host, port=port)
        self.image = replace(self.image, brokers=(here,))

    async def finish_deletions(self) -> None:
        """Remove what a crash has left of deleted topics."""
        async with self._one_change():
            found, _ = await self._meta.range(DELETIONS)
            self._deletions = read_deletions(found)
            for topic_id in list(self._deletions):
                await self._finish_deletion(topic_id)

    async def _finish_deletion(self, topic_id: UUID) -> None:
        """Remove the directories of a deleted topic, then the note of its deletion.

        If the disk or the store fails, this is retried at the next start, or when a topic of that
        name is created.
        """
        name = self._deletions[topic_id]
        if not await self._logs.remove_deleted(name, topic_id):
            return
        try:
            await self._meta.txn((), {deletion_key(topic_id): None})
        except KafkaError as error:
            LOGGER.warning("the note of the deletion of topic %s was not removed: %s", name, error)
            return
        del self._deletions[topic_id]

    async def elect(self) -> None:
        """Become the leader of every partition, in a new leader epoch."""
        async with self._one_change():
            topics = [
                replace(topic, partitions=tuple(map(_elected, topic.partitions)))
                for topic in self.image.topics.values()
            ]
            puts: dict[str, bytes | None] = {
                partition_key(topic.name, index): pack_partition(partition)
                for topic in topics
                for index, partition in enumerate(topic.partitions)
            }
            if not puts:
                return
            try:
                await self._meta.txn((), puts)
            except KafkaError as error:
                cause = error.__cause__
                if not isinstance(cause, OSError) or cause.errno not in DISK_FULL:
                    raise
                # A broker with a full disk must still start, to serve reads and deletions. Nothing
                # is appended in the old epochs meanwhile, because the logs are on the same disk.
                LOGGER.warning("the disk is full, so leader epochs stay as they were: %s", error)
                return
            self.image = self.image.with_topics(topics)

    async def create_topic(self, wanted: WantedTopic, *, validate_only: bool = False) -> TopicImage:
        """Create a topic.

        Raises KafkaError: its name, numbers or settings are invalid, it exists, or the disk failed.
        """
        check_name(wanted.name)
        if wanted.name in INTERNAL_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Creation of internal topic {wanted.name} is prohibited. The broker creates it "
                "when it is needed.",
            )
        async with self._one_change():
            if wanted.name in self.image.topics:
                raise KafkaError(
                    ErrorCode.TOPIC_ALREADY_EXISTS,
                    f"Topic '{wanted.name}' already exists. Choose another name, or use the topic.",
                )
            topic = self._planned(wanted)
            if not validate_only:
                await self._make(topic)
            return topic

    async def ensure_topic(self, name: str) -> TopicImage:
        """Return a topic. Create it with the defaults if it does not exist (auto-creation)."""
        if name in INTERNAL_TOPICS:
            return await self.ensure_state_topic(name)
        found = self.image.topics.get(name)
        if found is not None:
            return found
        try:
            return await self.create_topic(WantedTopic(name=name))
        except KafkaError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:  # by another request meanwhile
                return self.image.topics[name]
            raise

    async def ensure_state_topic(self, name: str) -> TopicImage:
        """Return an internal topic. Create it, and load its coordinators, if it does not exist."""
        found = self.image.topics.get(name)
        if found is not None:
            return found
        async with self._one_change():
            found = self.image.topics.get(name)
            if found is None:
                found = self._state_topic(name)
                try:
                    await self._make(found)
                except KafkaError as error:
                    if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                        raise
                    # A client that looks for a coordinator retries this code, and no other.
                    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
            return found

    async def create_partitions(
        self,
        name: str,
        total_count: int,
        replicas: Sequence[tuple[int, ...]] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Grow a topic to `total_count` partitions. Raises KafkaError."""
        async with self._one_change():
            topic = self._existing(name)
            have = len(topic.partitions)
            if name in INTERNAL_TOPICS:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"{name} is an internal topic: keys are assigned to its partitions by a hash "
                    "over their number, which therefore never changes.",
                )
            check_growth(name, have, total_count, None if replicas is None else len(replicas))
            for brokers in replicas or ():
                check_replicas(brokers, self._broker_ids())
            self._check_room(total_count - have)
            if validate_only:
                return
            added = self._partitions(total_count - have)
            grown = replace(topic, partitions=topic.partitions + added)
            new_indexes = range(have, total_count)
            await self._logs.create(grown, new_indexes)
            puts: dict[str, bytes | None] = {
                partition_key(name, have + number): pack_partition(partition)
                for number, partition in enumerate(added)
            }
            try:
                await self._meta.txn((), puts)
            except KafkaError:
                await self._logs.delete(grown, new_indexes)
                raise
            self.image = self.image.with_topics([grown])

    async def delete_topic(self, name: str) -> TopicImage:
        """Delete a topic and its records. Return what it was. Raises KafkaError."""
        if not self._config.delete_topic_enable:
            raise KafkaError(
                ErrorCode.TOPIC_DELETION_DISABLED,
                "Topic deletion is disabled. Set delete.topic.enable to true on the broker.",
            )
        if name in INTERNAL_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{name} is an internal topic: it keeps the broker's transactions or groups.",
            )
        async with self._one_change():
            topic = self._existing(name)
            await self._delete(topic)
            return topic

    async def _delete(self, topic: TopicImage) -> None:
        """Delete a topic from the store, then from the image and the disk."""
        # Once the store has deleted it, the deletion succeeds. Directories that cannot be removed
        # now are removed later, because the store has noted the id.
        found, _ = await self._meta.range(topic_key(topic.name))
        stored = found[topic_key(topic.name)]
        same = Compare(key=topic_key(topic.name), mod_revision=stored.mod_revision)
        is_gone, _ = await self._meta.txn([same], topic_deletes(topic))
        assert is_gone, f"{topic.name} was changed by another than its controller"
        self._deletions[topic.topic_id] = topic.name
        self.image = self.image.without_topic(topic.name)
        await self._logs.delete(topic, range(len(topic.partitions)))
        await self._finish_deletion(topic.topic_id)

    @asynccontextmanager
    async def _one_change(self) -> AsyncIterator[None]:
        """Make one change at a time, and complete it even if its client disconnects."""
        async with self._changing:
            with trio.CancelScope(shield=True):
                yield

    def _existing(self, name: str) -> TopicImage:
        topic = self.image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, not_hosted(name))
        return topic

    def _check_room(self, added: int) -> None:
        check_room(self.image.partition_count, added, self._config.max_broker_partitions)

    def _planned(self, wanted: WantedTopic) -> TopicImage:
        count = planned_partition_count(
            wanted, default=self._config.num_partitions, brokers=self._broker_ids()
        )
        self._check_room(count)
        return TopicImage(
            name=wanted.name,
            topic_id=self._new_uuid(),
            configs=check_topic_configs(wanted.configs),
            partitions=self._partitions(count),
        )

    def _state_topic(self, name: str) -> TopicImage:
        if name == TRANSACTION_STATE_TOPIC:
            count = self._config.transaction_state_log_num_partitions
        else:
            count = self._config.offsets_topic_num_partitions
        return TopicImage(
            name=name,
            topic_id=self._new_uuid(),
            configs=state_topic_configs(name, self._config),
            partitions=self._partitions(count),
        )

    async def _make(self, topic: TopicImage) -> None:
        """Create a topic: its logs, then its entry in the store, then that in the image."""
        indexes = range(len(topic.partitions))
        for topic_id, name in list(self._deletions.items()):
            if name == topic.name:
                await self._finish_deletion(topic_id)
        await self._logs.create(topic, indexes)
        absent = Compare(key=topic_key(topic.name), mod_revision=0)
        try:
            is_new, _ = await self._meta.txn([absent], topic_puts(topic))
        except KafkaError:
            await self._logs.delete(topic, indexes)
            raise
        assert is_new, f"{topic.name} is in the store and not in the image"
        # Coordinators are loaded before the image has the topic: a client that finds it there sends
        # its next request to the coordinator at once.
        if topic.is_internal:
            for index in indexes:
                await self._coordinators.load(topic.name, index)
        self.image = self.image.with_topics([topic])

    def _partitions(self, count: int) -> tuple[PartitionImage, ...]:
        here = (self.node_id,)
        partition = PartitionImage(leader=self.node_id, leader_epoch=0, replicas=here, isr=here)
        return (partition,) * count

    def _broker_ids(self) -> list[int]:
        return [broker.node_id for broker in self.image.brokers]

    def _new_uuid(self) -> UUID:
        return UUID(int=self._rng.getrandbits(128), version=4)


async def load_image(meta: MetaStore, *, here: BrokerImage, rng: random.Random) -> ClusterImage:
    """Return the image of the store, with this broker in it. A new store gets a cluster id."""
    found, _ = await meta.range(CLUSTER)
    if CLUSTER in found:
        cluster_id = unpack(found[CLUSTER].value)["id"]
    else:
        cluster_id = new_cluster_id(rng)
        await meta.txn([Compare(key=CLUSTER, mod_revision=0)], {CLUSTER: pack({"id": cluster_id})})
    topics, _ = await meta.range(TOPICS)
    partitions, _ = await meta.range(PARTITIONS)
    image = ClusterImage(cluster_id=cluster_id, controller_id=here.node_id, brokers=(here,))
    return image.with_topics(read_topics(topics, partitions))


def new_cluster_id(rng: random.Random) -> str:
    """Return 22 random characters of base64, the form that Kafka's tools expect."""
    import base64

    data = rng.getrandbits(128).to_bytes(16, "big")
    return base64.b64encode(data).decode().rstrip("=").translate(BASE64_URL)


def _elected(partition: PartitionImage) -> PartitionImage:
    return replace(partition, leader_epoch=partition.leader_epoch + 1)

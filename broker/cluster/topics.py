"""Topics: any broker creates, grows and deletes them, by guarded writes to the metadata store.

A creation has this order: check (raises `KafkaError`) -> this broker's logs on disk -> store ->
image. With the store's transaction the topic exists. The other brokers make their logs when their
image has the topic. A crash before it leaves empty directories that belong to no topic. They are
removed when a topic of that name is created. Directories with records are never removed for it, but
set aside (`partitions/directories.py`).

A deletion has the opposite order: store -> image -> logs. The transaction that removes a topic also
notes its id, once for each broker (`/deletions/ID/NODE`). A note stays until no directory of that
id is left on that broker. So after a crash at any moment a deleted topic does not come back, and
its directories are not set aside: they are removed at the next start, or before a topic of that
name is created. Nor does it come back by a creation whose answer was lost and which is repeated.
Each broker removes its own note when its image shows the deletion (`finish_deletions`).

A topic of more partitions than a transaction may have operations is written in several. The first
takes the name ("unfinished"), the last removes that word. If the writer dies in between, what it
has left is in no image, and the next creation of the name takes it over.

State topics are created when a request first needs them, with their own settings.
"""

import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final, Protocol, TypeVar
from uuid import UUID

import trio

from odradek.broker.cluster.image import (
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
    changed_topics,
)
from odradek.broker.cluster.metadata import ClusterMetadata
from odradek.broker.cluster.new_topic import (
    WantedTopic,
    check_growth,
    check_name,
    check_replicas,
    check_replication_factor,
    check_room,
    not_hosted,
    planned_partition_count,
    shown_name,
)
from odradek.broker.cluster.placement import assign_replicas, drawn_start
from odradek.broker.cluster.topic_writer import TopicWriter, already_changed
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.changes import MIN_ISR, Alter
from odradek.broker.config.live import LiveConfig
from odradek.broker.config.topic import (
    check_topic_configs,
    min_insync_replicas,
    state_topic_configs,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC

LOGGER: Final = logging.getLogger(__name__)
T = TypeVar("T")
Admit = Callable[[int], None]
"""Called with the number of partitions that are made or deleted, before that. Raises KafkaError."""


def _admit_all(_count: int) -> None:
    """Admit any number: the default."""


class TopicLogs(Protocol):
    """The logs of topics on this broker."""

    changing: trio.Lock

    def has_any(self, name: str, indexes: Iterable[int]) -> bool:
        """Return True if there is a log of one of these partitions."""

    def here(self, topic: TopicImage, indexes: Iterable[int] | None = None) -> list[int]:
        """Return the partitions of a topic, or those of `indexes`, that have a replica here."""

    async def create(self, topic: TopicImage, indexes: Sequence[int]) -> None:
        """Create empty logs for some partitions. A directory in their place is set aside.

        Raises KafkaError(KAFKA_STORAGE_ERROR); then none of them exists.
        """

    async def delete(self, topic: TopicImage, indexes: Sequence[int]) -> None:
        """Remove the logs of some partitions."""

    async def remove_deleted(self, name: str, topic_id: UUID) -> bool:
        """Remove what is left of a deleted topic. Return False if that is not possible now."""


class ClusterTopics:
    """The topics of the cluster, and the changes that this broker makes."""

    def __init__(
        self,
        *,
        metadata: ClusterMetadata,
        writer: TopicWriter,
        settings: LiveConfig,
        rng: random.Random,
        logs: TopicLogs,
    ) -> None:
        self._metadata = metadata
        self._writer = writer
        self._settings = settings
        self._rng = rng
        self._logs = logs
        self._changing = trio.Lock()

    @property
    def _config(self) -> BrokerConfig:
        return self._settings.now

    @property
    def image(self) -> ClusterImage:
        return self._metadata.image

    @property
    def newest_image(self) -> ClusterImage:
        """The image, or the next one while this broker takes its roles in it."""
        return self._metadata.newest_image

    @property
    def node_id(self) -> int:
        return self._config.node_id

    @property
    def this_broker(self) -> BrokerImage | None:
        """This broker as it is registered; None while it is not."""
        return self.image.broker(self.node_id)

    async def create_topic(
        self, wanted: WantedTopic, *, validate_only: bool = False, admit: Admit = _admit_all
    ) -> TopicImage:
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
            topic = await self._decided(wanted.name, lambda: self._planned(wanted))
            if validate_only:
                return topic
            admit(len(topic.partitions))
            self._settings.note_topic(topic.configs)
            return await self._make(topic)

    async def ensure_topic(self, name: str, *, admit: Admit = _admit_all) -> TopicImage:
        """Return a topic. Create it with the defaults if it does not exist (auto-creation)."""
        if name in INTERNAL_TOPICS:
            return await self.ensure_state_topic(name)
        found = self.image.topics.get(name)
        if found is not None:
            return found
        try:
            return await self.create_topic(WantedTopic(name=name), admit=admit)
        except KafkaError as error:
            found = self.image.topics.get(name)
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and found is not None:
                return found  # another request has created it meanwhile
            raise

    async def ensure_state_topic(self, name: str) -> TopicImage:
        """Return an internal topic. Create it if it does not exist."""
        found = self.image.topics.get(name)
        if found is not None:
            return found
        async with self._one_change():
            found = self.image.topics.get(name)
            if found is not None:
                return found
            try:
                return await self._make(self._state_topic(name))
            except KafkaError as error:
                found = self.image.topics.get(name)
                if found is not None:
                    return found
                if error.code not in NOT_YET:
                    raise
                # A client that looks for a coordinator retries this code, and no other.
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error

    async def create_partitions(
        self,
        name: str,
        total_count: int,
        replicas: Sequence[tuple[int, ...]] | None = None,
        *,
        validate_only: bool = False,
        admit: Admit = _admit_all,
    ) -> None:
        """Grow a topic to `total_count` partitions. Raises KafkaError.

        The store may take fewer at once. If it refuses the rest, the topic has grown less.
        """
        async with self._one_change():
            self._check_registered()
            topic = await self._decided(name, lambda: self._existing(name))
            have = len(topic.partitions)
            if name in INTERNAL_TOPICS:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"{name} is an internal topic: keys are assigned to its partitions by a hash "
                    "over their number, which therefore never changes.",
                )
            check_growth(name, have, total_count, None if replicas is None else len(replicas))
            await self._decided(name, lambda: self._check_assigned(replicas or ()))
            self._check_room(total_count - have)
            if validate_only:
                return
            admit(total_count - have)
            factor = len(topic.partitions[0].replicas)
            added = self._partitions(total_count - have, factor, replicas, start=have)
            for some in self._writer.growth_steps(added):
                grown = replace(topic, partitions=topic.partitions + some)
                new = range(len(topic.partitions), len(grown.partitions))
                here = self._logs.here(grown, new)
                await self._write(grown, here, partial(self._writer.grow, topic, grown))
                topic = grown

    async def alter_configs(self, name: str, alter: Alter, *, validate_only: bool = False) -> None:
        """Change the settings of a topic. `alter` is applied to those that the store has.

        Raises KafkaError: what `alter` raises, also if there is no such topic.
        """
        async with self._one_change():
            found = self.image.topics.get(name)
            altered = alter({} if found is None else found.configs)
            if found is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"The topic {shown_name(name)} does not exist. Create it, or correct its name.",
                )
            if validate_only:
                return
            self._settings.note_topic(altered)
            topic = found
            revision = await self._writer.alter_configs(
                topic, alter, lambda configs: self._min_isr(topic, configs)
            )
            await self._metadata.wait_reached(revision)

    def _min_isr(self, topic: TopicImage, configs: Mapping[str, str]) -> int:
        """Return the min.insync.replicas that is kept with a topic of these settings."""
        if topic.is_state_topic and MIN_ISR not in configs:
            return min(
                self._config.transaction_state_log_min_isr, len(topic.partitions[0].replicas)
            )
        return min_insync_replicas(configs, self._config)

    async def delete_topic(self, name: str, *, admit: Admit = _admit_all) -> TopicImage:
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
            topic = await self._decided(name, lambda: self._existing(name))
            admit(len(topic.partitions))
            brokers = [broker.node_id for broker in self.image.brokers]
            await self._metadata.wait_reached(await self._writer.delete(topic, brokers))
            await self._writer.finish_deletion(topic.topic_id, topic.name, self._logs)
            return topic

    async def finish_deletions(self) -> None:
        """Remove this broker's notes of topics that other brokers delete, until cancelled.

        They would stay until the next start, and each creation of a topic reads all of them.
        """
        image = self.image
        while True:
            before, image = image, await self._metadata.wait_changed(image)
            for topic in changed_topics(image, before):
                after = image.topics.get(topic.name)
                if after is None or after.topic_id != topic.topic_id:
                    await self._finish_deletion(topic)

    async def _finish_deletion(self, topic: TopicImage) -> None:
        # A creation that is repeated after its topic was deleted needs the note until it has ended.
        async with self._changing:
            try:
                await self._writer.finish_noted(topic.topic_id, topic.name, self._logs)
            except KafkaError as error:
                LOGGER.warning(
                    "the note of the deletion of topic %s was not removed: %s", topic.name, error
                )

    @asynccontextmanager
    async def _one_change(self) -> AsyncIterator[None]:
        """Make one change at a time, and complete it even if its client disconnects."""
        async with self._changing:
            with self.shielded():
                yield

    def shielded(self) -> AbstractContextManager[None]:
        """Shield a block from a client that disconnects, as long as this broker runs."""
        return self._metadata.shielded()

    def _existing(self, name: str) -> TopicImage:
        topic = self.image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, not_hosted(name))
        return topic

    def _check_room(self, added: int) -> None:
        check_room(self.image.partition_count, added, self._config.max_broker_partitions)

    def _check_registered(self) -> None:
        """Raise KafkaError, which clients retry, while no broker is known that takes replicas."""
        if not self._broker_ids():
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER, "No broker is registered at this moment. Try again."
            )

    def _check_assigned(self, replicas: Sequence[tuple[int, ...]]) -> None:
        for brokers in replicas:
            check_replicas(brokers, self._broker_ids())

    async def _decided(self, name: str, decide: Callable[[], T]) -> T:
        """Return what `decide` returns for the change of a topic.

        Brokers and topics that the image lacks may be in the store, and topics that it has may be
        deleted. Clients do not repeat what is refused for that, so it is refused only by an image
        that is not older than the request.
        """
        try:
            return decide()
        except KafkaError as error:
            if error.code not in BY_IMAGE:
                raise
        await self._metadata.wait_reached(await self._writer.revision_of(name))
        return decide()

    def _planned(self, wanted: WantedTopic) -> TopicImage:
        if wanted.name in self.image.topics:
            raise _exists(wanted.name)
        self._check_registered()
        count = planned_partition_count(
            wanted, default=self._config.num_partitions, brokers=self._broker_ids()
        )
        self._check_room(count)
        factor = wanted.replication_factor
        if factor == -1:
            factor = self._config.default_replication_factor
        if not wanted.assignments:
            check_replication_factor(factor, len(self._broker_ids()))
        configs = check_topic_configs(wanted.configs)
        assigned = [brokers for _, brokers in sorted(wanted.assignments)] or None
        return TopicImage(
            name=wanted.name,
            topic_id=self._new_uuid(),
            configs=configs,
            partitions=self._partitions(count, factor, assigned),
            min_insync_replicas=min_insync_replicas(configs, self._config),
        )

    def _state_topic(self, name: str) -> TopicImage:
        config = self._config
        if name == TRANSACTION_STATE_TOPIC:
            count = config.transaction_state_log_num_partitions
            factor = config.transaction_state_log_replication_factor
        else:
            count = config.offsets_topic_num_partitions
            factor = config.offsets_topic_replication_factor
        check_replication_factor(factor, len(self._broker_ids()))
        return TopicImage(
            name=name,
            topic_id=self._new_uuid(),
            configs=state_topic_configs(name, config),
            partitions=self._partitions(count, factor, start=0),
            min_insync_replicas=min(config.transaction_state_log_min_isr, factor),
            is_by_tag=name == TRANSACTION_STATE_TOPIC and self.image.has_transaction_groups,
        )

    async def _make(self, topic: TopicImage) -> TopicImage:
        """Create a topic: this broker's logs, then the store, then the image."""
        await self._writer.finish_deletions(self._logs, name=topic.name)
        here = self._logs.here(topic)
        image = await self._write(topic, here, partial(self._writer.create, topic))
        made = image.topics.get(topic.name)
        if made is None or made.topic_id != topic.topic_id:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} was deleted at once."
            )
        return made

    async def _write(
        self, topic: TopicImage, indexes: Sequence[int], write: Callable[[], Awaitable[int]]
    ) -> ClusterImage:
        """Make logs, write what has them to the store, and return an image that shows it.

        If another broker was first, the image shows its topic before the error is raised.
        """
        try:
            async with self._logs.changing:
                # Another broker's topic has its logs here before the image shows it.
                if self._logs.has_any(topic.name, indexes):
                    raise already_changed(topic.name)
                await self._logs.create(topic, indexes)
                try:
                    revision = await write()
                except KafkaError:
                    await self._logs.delete(topic, indexes)
                    raise
        except KafkaError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                await self._metadata.wait_reached(await self._writer.revision_of(topic.name))
            raise
        return await self._metadata.wait_reached(revision)

    def _partitions(
        self,
        count: int,
        factor: int,
        assigned: Sequence[tuple[int, ...]] | None = None,
        *,
        start: int | None = None,
    ) -> tuple[PartitionImage, ...]:
        """Return new partitions, each led by its first replica."""
        if assigned is None:
            brokers = [broker for broker in self.image.brokers if not broker.is_leaving]
            first = drawn_start(self._rng, len(brokers)) if start is None else start
            assigned = assign_replicas(brokers, count, factor, start=first)
        return tuple(
            PartitionImage(leader=replicas[0], leader_epoch=0, replicas=replicas, isr=replicas)
            for replicas in assigned
        )

    def _broker_ids(self) -> list[int]:
        return [broker.node_id for broker in self.image.brokers if not broker.is_leaving]

    def _new_uuid(self) -> UUID:
        return UUID(int=self._rng.getrandbits(128), version=4)


BY_IMAGE: Final = (
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Errors that are final for clients, and may be wrong if the image is older than the request."""
NOT_YET: Final = (
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.TOPIC_ALREADY_EXISTS,
)
"""Errors of creating a state topic that pass.

Brokers may still come, the store may come back, another broker is about to complete the topic.
"""


def _exists(name: str) -> KafkaError:
    return KafkaError(
        ErrorCode.TOPIC_ALREADY_EXISTS,
        f"Topic '{name}' already exists. Choose another name, or use the topic.",
    )

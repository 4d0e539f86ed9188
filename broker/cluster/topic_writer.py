"""Guarded writes of topics to the metadata store, in as many transactions as they need."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeVar
from uuid import UUID

import trio

from odradek.broker.cluster.guarded_write import guarded_write
from odradek.broker.cluster.image import PartitionImage, TopicImage
from odradek.broker.cluster.store import (
    DELETIONS,
    PARTITIONS,
    configs_of,
    deletion_key,
    pack,
    pack_partition,
    pack_topic,
    partition_key,
    read_deletions,
    read_fields,
    read_partition,
    reading,
    topic_key,
)
from odradek.broker.config.changes import MIN_ISR, Alter
from odradek.broker.environment.env import (
    Compare,
    MetaStore,
    OutcomeUnknown,
    StoreUnreachable,
    Versioned,
)
from odradek.protocol.errors import ErrorCode, KafkaError

LOGGER: Final = logging.getLogger(__name__)
RETRY_SECONDS: Final = 0.1

Puts = dict[str, bytes | None]
T = TypeVar("T")


class DeletedLogs(Protocol):
    """The directories of deleted topics on this broker."""

    async def remove_deleted(self, name: str, topic_id: UUID) -> bool:
        """Remove what is left of a deleted topic. Return False if that is not possible now."""


class TopicWriter:
    """Writes topics for one broker. A change that another broker makes first is refused."""

    def __init__(self, store: MetaStore, node_id: int) -> None:
        self._store = store
        self._node_id = node_id

    async def create(self, topic: TopicImage) -> int:
        """Write a new topic. Return the revision in which it is complete.

        Raises KafkaError: TOPIC_ALREADY_EXISTS, or what the store says.
        """
        key = topic_key(topic.name)
        found, _ = await self._store.range(key)
        stored = found.get(key)
        if stored is not None and not read_fields(key, stored).get("unfinished"):
            raise already_changed(topic.name)
        before = Compare(key=key, mod_revision=0 if stored is None else stored.mod_revision)
        partitions = _partition_puts(topic, range(len(topic.partitions)))
        if stored is None and self._fits(len(partitions) + 1):
            # The topic may be deleted before a write whose answer was lost is repeated. Then it
            # must not come back. Only this broker removes its note, and not during a creation.
            alive = Compare(key=deletion_key(topic.topic_id, self._node_id), mod_revision=0)
            puts = {key: pack_topic(topic), **partitions}
            indexes = range(len(topic.partitions))
            return await self._write_replicas([before, alive], puts, topic, indexes)
        taken = await self._write([before], {key: pack_topic(topic, is_finished=False)}, topic.name)
        same = Compare(key=key, mod_revision=taken)
        strays = await self._partitions_of(topic.name)
        await self._write_all(same, {**dict.fromkeys(strays), **partitions}, topic.name)
        return await self._write([same], {key: pack_topic(topic)}, topic.name)

    async def revision_of(self, name: str) -> int:
        """Return a revision of the store that is not older than what it has of a topic."""
        _, revision = await self._store.range(topic_key(name))
        return revision

    def growth_steps(self, added: Sequence[PartitionImage]) -> list[tuple[PartitionImage, ...]]:
        """Divide new partitions of a topic into what `grow` takes at once."""
        limit = self._store.max_operations
        return [tuple(some) for some in _chunks(added, None if limit is None else limit - 1)]

    async def grow(self, before: TopicImage, grown: TopicImage) -> int:
        """Write the partitions that a topic gets. Return the revision in which all are there."""
        same = await self._unchanged(before)
        added = range(len(before.partitions), len(grown.partitions))
        puts = _partition_puts(grown, added)
        absent = [Compare(key=key, mod_revision=0) for key in puts]
        return await self._write_replicas([same, *absent], puts, grown, added)

    async def alter_configs(
        self, topic: TopicImage, alter: Alter, min_isr_of: Callable[[Mapping[str, str]], int]
    ) -> int:
        """Write other settings of a topic. Return the revision in which it has them.

        If another broker changes the topic at the same time, its settings are altered again.
        """
        key = topic_key(topic.name)
        while True:
            stored = await self._stored(topic)
            fields = read_fields(key, stored)
            with reading(key):
                before = configs_of(fields["configs"])
            configs = alter(before)
            if configs == before:
                return stored.mod_revision
            if configs.get(MIN_ISR) != before.get(MIN_ISR):
                fields["min_isr"] = min_isr_of(configs)
            # invariant settings 2
            same = Compare(key=key, mod_revision=stored.mod_revision)
            is_written, revision = await guarded_write(
                self._store, [same], {key: pack({**fields, "configs": configs})}
            )
            if is_written:
                return revision

    async def delete(self, topic: TopicImage, brokers: Iterable[int]) -> int:
        """Remove a topic, and note its id for each of `brokers` and each that has a replica."""
        same = await self._unchanged(topic)
        key = topic_key(topic.name)
        nodes = dict.fromkeys(node for each in topic.partitions for node in each.replicas)
        nodes |= dict.fromkeys(brokers)
        notes: Puts = {
            deletion_key(topic.topic_id, node): pack({"name": topic.name}) for node in nodes
        }
        partitions = dict.fromkeys(_partition_puts(topic, range(len(topic.partitions))))
        if self._fits(len(partitions) + len(notes) + 1):
            return await self._write([same], {key: None, **partitions, **notes}, topic.name)
        gone = await self._write(
            [same], {key: pack_topic(topic, is_finished=False), **notes}, topic.name
        )
        await self._clear(topic.name, gone)
        return gone

    async def _clear(self, name: str, revision: int) -> None:
        """Remove the partitions and the name of a topic that is not complete any more."""
        same = Compare(key=topic_key(name), mod_revision=revision)
        strays = await self._partitions_of(name)
        await self._write_all(same, dict.fromkeys(strays), name)
        await self._write([same], {topic_key(name): None}, name)

    async def finish_deletions(self, logs: DeletedLogs, *, name: str | None = None) -> None:
        """Remove what is left here of deleted topics, or of those with one name."""
        found, _ = await self._store.range(DELETIONS)
        for topic_id, deleted in read_deletions(found, self._node_id).items():
            if name in (None, deleted):
                await self.finish_deletion(topic_id, deleted, logs)

    async def finish_noted(self, topic_id: UUID, name: str, logs: DeletedLogs) -> None:
        """Finish a deletion if there is a note of it for this broker. Raises KafkaError."""
        note = deletion_key(topic_id, self._node_id)
        found, _ = await self._store.range(note)
        if note in found:
            await self.finish_deletion(topic_id, name, logs)

    async def finish_deletion(self, topic_id: UUID, name: str, logs: DeletedLogs) -> None:
        """Remove the directories of a deleted topic, then this broker's note of its deletion.

        If the disk or the store fails, this is retried at the next start, or when a topic of that
        name is created.
        """
        if not await logs.remove_deleted(name, topic_id):
            return
        notes = dict.fromkeys((deletion_key(topic_id, self._node_id), deletion_key(topic_id)))
        try:
            await self._store.txn((), notes)
        except KafkaError as error:
            LOGGER.warning("the note of the deletion of topic %s was not removed: %s", name, error)

    async def _unchanged(self, topic: TopicImage) -> Compare:
        """Return a condition that holds as long as the topic in the store is this one."""
        stored = await self._stored(topic)
        return Compare(key=topic_key(topic.name), mod_revision=stored.mod_revision)

    async def _stored(self, topic: TopicImage) -> Versioned:
        """Return what the store has of a topic. Raises UNKNOWN_TOPIC_OR_PARTITION.

        Also for a topic that another broker is deleting in several writes, which nothing may
        change in between: the image of this broker may still have it.
        """
        key = topic_key(topic.name)
        found, _ = await self._store.range(key)
        stored = found.get(key)
        fields = {} if stored is None else read_fields(key, stored)
        is_same = fields.get("id") == topic.topic_id.bytes and not fields.get("unfinished")
        if stored is None or not is_same:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} was deleted meanwhile."
            )
        return stored

    async def _partitions_of(self, name: str) -> Mapping[str, Versioned]:
        found, _ = await self._store.range(f"{PARTITIONS}{name}/")
        return found

    def _fits(self, count: int) -> bool:
        limit = self._store.max_operations
        return limit is None or count <= limit

    async def _write_all(self, same: Compare, puts: Mapping[str, bytes | None], name: str) -> None:
        """Write what belongs to an unfinished topic. Nobody else does, so it may be repeated."""
        for some in _chunks(puts.items(), self._store.max_operations):
            while True:
                try:
                    is_written, _ = await self._store.txn([same], dict(some))
                    break
                except OutcomeUnknown:
                    await trio.sleep(RETRY_SECONDS)
            if not is_written:
                raise already_changed(name)

    async def _write(self, compares: Sequence[Compare], puts: Puts, name: str) -> int:
        is_written, revision = await guarded_write(self._store, compares, puts)
        if not is_written:
            raise already_changed(name)
        return revision

    async def _write_replicas(
        self, compares: Sequence[Compare], puts: Puts, topic: TopicImage, indexes: Sequence[int]
    ) -> int:
        """Write new partitions of a topic.

        If the answer is lost and leaders or in-sync sets change before the write is repeated, the
        keys have other values than were written. The id of the topic and the replicas stay as they
        are, and show that it was written. The logs that were made for it must not be removed.
        """
        is_written, revision = await guarded_write(self._store, compares, puts)
        if not is_written and not await self._has_replicas(topic, indexes):
            raise already_changed(topic.name)
        return revision

    async def _has_replicas(self, topic: TopicImage, indexes: Sequence[int]) -> bool:
        """Return True if the store has these partitions of a topic, with the same replicas."""
        key = topic_key(topic.name)
        while True:
            try:
                topics, _ = await self._store.range(key)
                found = await self._partitions_of(topic.name)
                break
            except StoreUnreachable:
                await trio.sleep(RETRY_SECONDS)
        stored = topics.get(key)
        if stored is None or read_fields(key, stored).get("id") != topic.topic_id.bytes:
            return False
        for index in indexes:
            key = partition_key(topic.name, index)
            partition = found.get(key)
            if partition is None:
                return False
            if read_partition(key, partition).replicas != topic.partitions[index].replicas:
                return False
        return True


def _partition_puts(topic: TopicImage, indexes: Iterable[int]) -> Puts:
    return {
        partition_key(topic.name, index): pack_partition(topic.partitions[index])
        for index in indexes
    }


def _chunks(items: Iterable[T], limit: int | None) -> Iterator[list[T]]:
    found = list(items)
    size = limit or max(1, len(found))
    for start in range(0, len(found), size):
        yield found[start : start + size]


def already_changed(name: str) -> KafkaError:
    """Return the refusal of a change that another broker was quicker to make."""
    return KafkaError(
        ErrorCode.TOPIC_ALREADY_EXISTS,
        f"Topic '{name}' already exists, or another broker changes it now. Try again.",
    )

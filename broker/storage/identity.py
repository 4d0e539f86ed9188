"""The identity of a partition's directory: the file `topic.meta`.

The metadata store has all topics. If it is lost, `odradek storage rebuild` makes it again from
these files. Each file therefore has everything that the store knows of the topic and that the log
does not contain: name, id, settings and number of partitions, whether transactional ids are kept by
their tags, and the cluster id.

The broker writes the file when it creates the partition. The file reaches the disk with the first
flush of the log, before any record is acknowledged. When the topic's settings change, the broker
writes it again in the background (`partitions/upkeep/identities.py`). At every start the broker
compares it with the store and writes it again if they differ: a directory of an earlier version has
no such file, and the number of partitions may have grown.
"""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from odradek.broker.environment.env import Disk
from odradek.broker.storage import small_file
from odradek.broker.storage.checkpoint import BESIDE as CHECKPOINT_BESIDE
from odradek.broker.storage.checkpoint import CHECKPOINT, read_checkpoint
from odradek.broker.storage.files import LOG, SEGMENT_SUFFIXES, SNAPSHOT, file_offset, sync_file
from odradek.broker.storage.lost import GIVEN_UP
from odradek.broker.values.topic_partition import TopicPartition
from odradek.late import dataclass

IDENTITY: Final = "topic.meta"
BESIDE: Final = IDENTITY + small_file.BESIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The contents of `topic.meta`. `partition_count` is the topic's."""

    where: TopicPartition
    topic_id: UUID
    partition_count: int
    configs: Mapping[str, str]
    cluster_id: str
    is_by_tag: bool = False
    """True for a `__transaction_state` that keeps ids where their tag hashes to."""


def encode_identity(identity: Identity) -> bytes:
    return small_file.encode(
        {
            "topic": identity.where.topic,
            "partition": identity.where.partition,
            "topic_id": identity.topic_id.bytes,
            "partition_count": identity.partition_count,
            "configs": dict(identity.configs),
            "cluster_id": identity.cluster_id,
            **({"by_tag": True} if identity.is_by_tag else {}),
        }
    )


def decode_identity(data: bytes | bytearray) -> Identity | None:
    """Return the identity in a file's bytes, or None if it is damaged or of a newer version."""
    content = small_file.decode(data)
    if content is None:
        return None
    return Identity(
        where=TopicPartition(content["topic"], content["partition"]),
        topic_id=UUID(bytes=content["topic_id"]),
        partition_count=content["partition_count"],
        configs=content["configs"],
        cluster_id=content["cluster_id"],
        is_by_tag=content.get("by_tag", False),
    )


async def read_identity(disk: Disk, directory: str) -> Identity | None:
    """Return the identity of a directory, or None if it has none. Raises OSError."""
    data = await small_file.read_bytes(disk, f"{directory}/{IDENTITY}")
    return None if data is None else decode_identity(data)


async def keep_identity(
    disk: Disk,
    directory: str,
    identity: Identity,
    *,
    found: Identity | None,
    has_data: bool,
    was_flushed: bool,
) -> None:
    """Write the identity of a directory unless `found` is equal. Raises OSError.

    The file of a log with data is on disk on return. That of an empty log is flushed with the first
    records (`Log.sync`). `was_flushed` is True if that flush has happened.
    """
    path, beside = f"{directory}/{IDENTITY}", f"{directory}/{BESIDE}"
    if found == identity:
        # A broker that was killed before the first flush leaves records and this file in the page
        # cache only.
        if has_data and not was_flushed:
            await sync_file(disk, path)
        return
    # A cluster may have thousands of empty logs: their files are written without fsync and rename.
    written = beside if has_data else path
    if disk.exists(written):
        disk.remove(written)
    file = disk.open(written)
    try:
        file.append(encode_identity(identity))
        if has_data:
            await file.fsync()
    finally:
        file.close()
    if has_data:
        disk.rename(beside, path)
        await disk.fsync_dir(directory)


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a directory: its topic, as far as the directory names it."""

    where: TopicPartition | None = None
    topic_id: UUID | None = None
    identity: Identity | None = None

    def may_be(self, where: TopicPartition, topic_id: UUID) -> bool:
        """Return True unless the directory names another partition or topic id."""
        return self.where in (None, where) and self.topic_id in (None, topic_id)

    def __str__(self) -> str:
        name = "another topic" if self.where is None else str(self.where)
        return f"{name}, topic id {self.topic_id}"


async def owner_of(disk: Disk, directory: str) -> Owner:
    """Return the owner of a directory. Raises OSError."""
    identity = await read_identity(disk, directory)
    if identity is not None:
        return Owner(identity.where, identity.topic_id, identity)
    # `topic.meta` is lost, or an earlier version made the directory.
    checkpoint = await read_checkpoint(disk, directory)
    return Owner() if checkpoint is None else Owner(checkpoint.where, checkpoint.topic_id)


def is_empty_log(disk: Disk, directory: str) -> bool:
    """Return True if a directory has only the files of a log without any append.

    Raises OSError.
    """
    names = disk.listdir(directory)
    ours = {IDENTITY, BESIDE, CHECKPOINT, CHECKPOINT_BESIDE, GIVEN_UP}
    beginnings = [
        name
        for name in names
        if any(file_offset(name, suffix) == 0 for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT))
    ]
    if set(names) != {*beginnings, *ours.intersection(names)}:
        return False
    return all(disk.size(f"{directory}/{name}") == 0 for name in beginnings if name.endswith(LOG))

"""Whose log a directory holds: the file `topic.meta` in the directory of each partition.

The metadata store knows every topic. If it is lost, `odradek storage rebuild` makes it anew from
these files, so each one has everything that the store knows of the topic and that the log does not
say: name, id, settings and number of partitions, and the id of the cluster. The file is written
when the partition is made. It reaches the disk with the first flush of the log, before any record
of it is acknowledged. At every start it is compared with the store, and written anew if they
differ: directories made by an earlier version have none, and the number of partitions may grow.

The content is msgpack behind a CRC-32C, as that of `checkpoint`.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import msgpack
from crc32c import crc32c

from odradek.broker.env import Disk
from odradek.broker.storage.checkpoint import BESIDE as CHECKPOINT_BESIDE
from odradek.broker.storage.checkpoint import CHECKPOINT, read_checkpoint
from odradek.broker.storage.files import LOG, SEGMENT_SUFFIXES, SNAPSHOT, file_offset, sync_file
from odradek.broker.topic_partition import TopicPartition

IDENTITY: Final = "topic.meta"
BESIDE: Final = "topic.meta.tmp"
VERSION: Final = 1
_CRC: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The contents of `topic.meta`. `partition_count` is the topic's."""

    where: TopicPartition
    topic_id: UUID
    partition_count: int
    configs: Mapping[str, str]
    cluster_id: str


def encode_identity(identity: Identity) -> bytes:
    content: bytes = msgpack.packb(
        {
            "version": VERSION,
            "topic": identity.where.topic,
            "partition": identity.where.partition,
            "topic_id": identity.topic_id.bytes,
            "partition_count": identity.partition_count,
            "configs": dict(identity.configs),
            "cluster_id": identity.cluster_id,
        }
    )
    return _CRC.pack(crc32c(content)) + content


def decode_identity(data: bytes | bytearray) -> Identity | None:
    """Return the identity in a file's bytes, or None if it is damaged or of a newer version."""
    body = memoryview(data)[_CRC.size :]
    if len(data) < _CRC.size or crc32c(body) != _CRC.unpack_from(data)[0]:
        return None
    content: dict[str, Any] = msgpack.unpackb(body)
    if content["version"] != VERSION:
        return None
    return Identity(
        where=TopicPartition(content["topic"], content["partition"]),
        topic_id=UUID(bytes=content["topic_id"]),
        partition_count=content["partition_count"],
        configs=content["configs"],
        cluster_id=content["cluster_id"],
    )


async def read_identity(disk: Disk, directory: str) -> Identity | None:
    """Return what a directory says of itself, or None if it does not. Raises OSError."""
    path = f"{directory}/{IDENTITY}"
    if not disk.exists(path):
        return None
    file = disk.open(path)
    try:
        return decode_identity(await file.pread(0, file.size))
    finally:
        file.close()


async def keep_identity(
    disk: Disk,
    directory: str,
    identity: Identity,
    *,
    found: Identity | None,
    has_data: bool,
    was_flushed: bool,
) -> None:
    """Write the identity of a directory unless it was found there. Raises OSError.

    Where there is data the file is on disk on return. An empty log has nothing to lose: the file is
    flushed with the first records (`Log.sync`). `was_flushed` says that this has happened; a broker
    that was killed before may have left records and a file that are in memory only.
    """
    path, beside = f"{directory}/{IDENTITY}", f"{directory}/{BESIDE}"
    if found == identity:
        if has_data and not was_flushed:
            await sync_file(disk, path)
        return
    # a topic may have thousands of empty logs: for those no more calls than there must be
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
    """The topic whose log a directory holds, as far as it says so."""

    where: TopicPartition | None = None
    topic_id: UUID | None = None
    identity: Identity | None = None

    def may_be(self, where: TopicPartition, topic_id: UUID) -> bool:
        """Return True unless the directory says that it is another's."""
        return self.where in (None, where) and self.topic_id in (None, topic_id)

    def __str__(self) -> str:
        name = "another topic" if self.where is None else str(self.where)
        return f"{name}, topic id {self.topic_id}"


async def owner_of(disk: Disk, directory: str) -> Owner:
    """Return whose log a directory holds. Raises OSError.

    Directories made by an earlier version only have the topic id in the checkpoint.
    """
    identity = await read_identity(disk, directory)
    if identity is not None:
        return Owner(identity.where, identity.topic_id, identity)
    checkpoint = await read_checkpoint(disk, directory)
    return Owner() if checkpoint is None else Owner(None, checkpoint.topic_id)


def is_empty_log(disk: Disk, directory: str) -> bool:
    """Return True if a directory holds a log in which nothing was ever appended, and no more.

    Raises OSError.
    """
    names = disk.listdir(directory)
    ours = {IDENTITY, BESIDE, CHECKPOINT, CHECKPOINT_BESIDE}
    beginnings = [
        name
        for name in names
        if any(file_offset(name, suffix) == 0 for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT))
    ]
    if set(names) != {*beginnings, *ours.intersection(names)}:
        return False
    return all(disk.size(f"{directory}/{name}") == 0 for name in beginnings if name.endswith(LOG))

"""A backup point: the ends of all logs at one moment, and hard links to their files.

`odradek storage backup` copies a running broker. It needs every log as it was at the same moment:
transactions, offsets and records belong together. The broker notes the ends in one step, in which
no other task runs, so the point is what a kill at that moment would have left. The links keep the
files, whatever retention and compaction do while the command copies them. What a log appends later
is behind its noted end, and a file is never written anew in front of it. So most links are made
before that step, in turns; in the step only those of segments that have come since.

The point is a directory in `backup-point` in the data directory, named after its moment:
`backup.meta`, and files with the number of a log in their names. The command locks `.lock` beside
it while it copies, and removes all when it has ended. There is one point at a time: the broker
makes none while another one is locked, so it stays whole, also if the broker is restarted. What is
not locked was left by a command that was killed. The broker removes it at its start and before the
next point.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import trio

from odradek.broker.cluster.node_identity import NODE
from odradek.broker.cluster.store_embedded import NAMES
from odradek.broker.environment.env import Disk
from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.storage import small_file
from odradek.broker.storage.files import LOG, OFFSET_DIGITS, SNAPSHOT, file_path
from odradek.broker.storage.segment import Segment
from odradek.broker.values.topic_partition import TopicPartition
from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode, KafkaError

POINT: Final = "backup-point"
META: Final = "backup.meta"
LOCK: Final = ".lock"
LINK_STEPS: Final = 10
"""The cost of a link, in steps of a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointLog:
    """One log in a backup point. Its files have `number` in their names."""

    number: int
    where: TopicPartition
    log_start_offset: int
    segments: Sequence[tuple[int, int]]
    """Base offset and size of each; an empty one has no file."""
    has_producers: bool
    """True if there is a snapshot of the producers in front of the first segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointMeta:
    """The contents of `backup.meta`."""

    node_id: int
    at_ms: int
    metadata: Mapping[str, int]
    """The sizes of the files of the metadata store."""
    logs: Sequence[PointLog]


def encode_point(meta: PointMeta) -> bytes:
    return small_file.encode(
        {
            "node_id": meta.node_id,
            "at_ms": meta.at_ms,
            "metadata": dict(meta.metadata),
            "logs": [
                [
                    log.number,
                    *log.where,
                    log.log_start_offset,
                    list(map(list, log.segments)),
                    log.has_producers,
                ]
                for log in meta.logs
            ],
        }
    )


def decode_point(data: bytes | bytearray) -> PointMeta | None:
    """Return what is in the bytes of `backup.meta`; None if they are damaged."""
    content = small_file.decode(data)
    return None if content is None else _meta(content)


def _meta(content: Mapping[str, Any]) -> PointMeta:
    return PointMeta(
        node_id=content["node_id"],
        at_ms=content["at_ms"],
        metadata=content["metadata"],
        logs=[
            PointLog(
                number=number,
                where=TopicPartition(topic, index),
                log_start_offset=start,
                segments=[(base, size) for base, size in segments],
                has_producers=has_producers,
            )
            for number, topic, index, start, segments, has_producers in content["logs"]
        ],
    )


def point_file(directory: str, number: int, base_offset: int, suffix: str = LOG) -> str:
    """Return the path of a log's file in a backup point."""
    return f"{directory}/{number}-{base_offset:0{OFFSET_DIGITS}}{suffix}"


class BackupPoints:
    """The backup points of one broker, of which there is one at a time."""

    def __init__(self, disk: Disk, directory: str, partitions: Partitions) -> None:
        self._disk = disk
        self._directory = directory
        self._partitions = partitions
        self._making = trio.Lock()

    @property
    def _root(self) -> str:
        return f"{self._directory}/{POINT}"

    async def clear(self) -> None:
        """Remove the point that there is, unless a command copies it. Raises OSError."""
        if self._disk.exists(self._root) and not self._is_locked():
            await self._disk.rmtree(self._root)

    def _is_locked(self) -> bool:
        """Return True if a command copies the point that there is. Raises OSError."""
        path = f"{self._root}/{LOCK}"
        if not self._disk.exists(path):  # a full disk has no room for a new file
            return False
        try:
            self._disk.lock(path).release()
        except BlockingIOError:
            return True
        return False

    async def make(self, *, node_id: int, now_ms: int) -> str:
        """Make a point of all logs, and return the path of its directory.

        Raises KafkaError: INVALID_REQUEST for a broker of a cluster, or while another point is
        copied; KAFKA_STORAGE_ERROR. Nothing is left then.
        """
        disk = self._disk
        if disk.exists(f"{self._directory}/{NODE}"):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "The metadata of this broker is in etcd, and a backup has it, too: see the backup "
                "of a cluster in docs/cluster.md.",
            )
        path = f"{self._root}/{now_ms}"
        async with self._making:
            try:
                # invariant files 6
                if self._is_locked():
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST,
                        "Another backup of this broker is being copied: wait until it has ended.",
                    )
                await self.clear()
                disk.mkdir(path)
                try:
                    links = _Links(disk, path)
                    await self._link_in_turns(links)
                    self._make_now(path, links, node_id, now_ms)
                except (OSError, KafkaError, trio.Cancelled):
                    with trio.CancelScope(shield=True):
                        await disk.rmtree(self._root)  # links keep what retention deletes
                    raise
            except OSError as error:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"{error.filename or path}: {error.strerror}.",
                ) from error
        return disk.usage(path).path

    async def _link_in_turns(self, links: "_Links") -> None:
        """Link the files that there are. Raises OSError, KafkaError."""
        turns = Turns()
        for partition in self._partitions.all():
            await turns.take(LINK_STEPS * len(partition.log.segments))
            if not partition.log.is_deleted:
                links.add(partition)

    def _make_now(self, path: str, links: "_Links", node_id: int, now_ms: int) -> None:
        """Note the ends and make the missing links, in one step. Raises OSError, KafkaError."""
        disk = self._disk
        # invariant files 6: A backup is of one moment: the ends of all logs are noted in one step,
        # and nothing takes the point away while it is copied.
        # plant a second backup takes the files away that the first one copies
        # plant a backup has the old file of a segment that is compacted while links are made
        logs = [links.add(partition) for partition in self._partitions.all()]
        metadata = {}
        for name in NAMES:
            disk.link(f"{self._directory}/{name}", f"{path}/{name}")
            metadata[name] = disk.size(f"{path}/{name}")
        meta = PointMeta(node_id=node_id, at_ms=now_ms, metadata=metadata, logs=logs)
        file = disk.open(f"{path}/{META}")
        try:
            file.append(encode_point(meta))
        finally:
            file.close()


class _Links:
    """The links of one point to the files of logs."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._numbers: dict[Partition, int] = {}
        self._linked: dict[tuple[int, int], Segment] = {}
        """By the number of the log and the base offset."""
        self._have_producers: dict[tuple[int, int], bool] = {}
        """The same for snapshots, which there may be or not."""

    def add(self, partition: Partition) -> PointLog:
        """Link the files of a log that have no link yet, and return the log as it is now.

        Raises OSError, KafkaError.
        """
        log = partition.log
        log.check_available()
        number = self._numbers.setdefault(partition, len(self._numbers))
        for segment in log.segments:
            base = segment.base_offset
            known = self._linked.get((number, base))
            if segment.size_bytes and known is not segment:
                target = point_file(self._path, number, base)
                if known is not None:  # compaction has put another one in its place
                    self._disk.remove(target)
                self._disk.link(file_path(log.directory, base, LOG), target)
                self._linked[number, base] = segment
        return PointLog(
            number=number,
            where=TopicPartition(partition.topic, partition.index),
            log_start_offset=log.log_start_offset,
            segments=[(segment.base_offset, segment.size_bytes) for segment in log.segments],
            has_producers=self._add_producers(number, log.directory, log.segments[0].base_offset),
        )

    def _add_producers(self, number: int, directory: str, base_offset: int) -> bool:
        key = number, base_offset
        if base_offset and key not in self._have_producers:
            source = file_path(directory, base_offset, SNAPSHOT)
            is_there = self._have_producers[key] = self._disk.exists(source)
            if is_there:
                self._disk.link(source, point_file(self._path, number, base_offset, SNAPSHOT))
        return self._have_producers.get(key, False)

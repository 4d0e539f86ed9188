"""Make a data directory out of the logs of another one: of Kafka's, or of a running broker's.

The files are copied and never linked: a broker appends to the last segment of a log, and cuts it.
The file `topic.meta` of a log is written when the rest of it is whole and on disk. The metadata
follows when all logs are there, and the word that the directory is complete at the very end
(`storage/origin.py`). After a crash the command keeps the logs that are whole, and makes the rest.

Of a log only the batches are copied, and what they do not have: where the log begins, and the
producers whose records were deleted. The rest is made anew by reading every batch as recovery does,
so what is damaged is found. Kafka's compaction may remove the last offsets of a segment, after
which the next one does not begin where this one ends: an empty batch takes their place, as ours
leaves it.
"""

import os.path
from collections.abc import Callable, Sequence
from typing import Final

from odradek.broker.cluster.image import TopicImage
from odradek.broker.cluster.store_embedded import COPY, FILE, write_files
from odradek.broker.environment.env import Disk
from odradek.broker.inspect.refusal import CannotCopy
from odradek.broker.inspect.repair import empty_batch
from odradek.broker.partitions.run_notes import CLEAN_MARK
from odradek.broker.storage import small_file
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.damage import DamagedLog, Rules
from odradek.broker.storage.data_format import claim_format
from odradek.broker.storage.disk import copy_file, read_only
from odradek.broker.storage.files import GAPS, LOG, SNAPSHOT, OpenFiles, file_path, sync_file
from odradek.broker.storage.identity import IDENTITY, Identity, encode_identity
from odradek.broker.storage.last_run import LastRun, write_last_run
from odradek.broker.storage.log import Log
from odradek.broker.storage.log_start import LOG_START, encode_log_start
from odradek.broker.storage.origin import DirectoryOrigin, write_origin
from odradek.broker.values.topic_partition import TopicPartition
from odradek.late import dataclass
from odradek.protocol.batch import HEADER_BYTES, MAGIC, read_header
from odradek.protocol.state_topics import INTERNAL_TOPICS

ZEROS_AT_ONCE: Final = 1024 * 1024
Copied = Callable[[int], None]
"""Called with the number of bytes that were copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSource:
    base_offset: int
    path: str
    size_bytes: int
    """The bytes of the file that count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSource:
    """The files of one log."""

    where: TopicPartition
    segments: Sequence[SegmentSource]
    producers: str | None
    """The snapshot of the producers in front of the first segment; None without one."""
    log_start_offset: int
    remedy: str
    """What a person does if it is damaged."""

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """A topic as it will be, and its logs in the order of the partitions."""

    topic: TopicImage
    logs: Sequence[LogSource]

    @property
    def size_bytes(self) -> int:
        return sum(log.size_bytes for log in self.logs)


@dataclass(frozen=True, slots=True)
class BatchesEnd:
    """The end of the batches of one segment, by their headers alone."""

    position: int
    next_offset: int
    leader_epoch: int
    has_gaps: bool


class Transfer:
    """The making of one data directory, which is locked. Call `run`, then `finish`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topics: Sequence[TopicSource],
        *,
        cluster_id: str,
        now_ms: int,
        copied: Copied,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._topics = topics
        self._cluster_id = cluster_id
        self._now_ms = now_ms
        self._copied = copied

    async def run(self) -> None:
        """Make the logs that are not there. Raises `CannotCopy`, OSError."""
        disk = self._disk
        for each in self._topics:
            for log in each.logs:
                directory = f"{self._directory}/{log.where}"
                if disk.exists(f"{directory}/{IDENTITY}"):
                    self._copied(log.size_bytes)
                    continue
                if disk.exists(directory):
                    await disk.rmtree(directory)
                await self._log(each.topic, log)
        await disk.fsync_dir(self._directory)

    async def finish(self, metadata: bytes, origin: DirectoryOrigin) -> None:
        """Write the metadata, and that the directory is complete. Raises OSError."""
        disk, directory = self._disk, self._directory
        paths = [f"{directory}/{name}" for name in (FILE, COPY)]
        await write_files(disk, paths, metadata)
        # Every log has a checkpoint at its end, and nothing was acknowledged that is not there.
        await write_last_run(disk, directory, LastRun(is_unflushed=False))
        disk.open(f"{directory}/{CLEAN_MARK}").close()
        await write_origin(disk, directory, origin)
        await claim_format(disk, directory)

    async def _log(self, topic: TopicImage, source: LogSource) -> None:
        """Make the log of one partition, durably."""
        disk = self._disk
        directory = f"{self._directory}/{source.where}"
        disk.mkdir(directory)
        for segment in source.segments:
            target = file_path(directory, segment.base_offset, LOG)
            if segment.size_bytes:
                copy_file(segment.path, target, segment.size_bytes, self._copied)
            else:
                disk.open(target).close()
        first = source.segments[0].base_offset
        if source.producers is not None:
            target = file_path(directory, first, SNAPSHOT)
            copy_file(source.producers, target, disk.size(source.producers), lambda _: None)
            await sync_file(disk, target)
        is_compacted = "compact" in topic.configs.get("cleanup.policy", "")
        is_compacted = is_compacted or topic.name in INTERNAL_TOPICS
        bases = [segment.base_offset for segment in source.segments]
        await self._close_gaps(directory, bases, is_compacted=is_compacted)
        if source.log_start_offset > first:
            start = encode_log_start(source.where, topic.topic_id, source.log_start_offset)
            await small_file.write_beside(disk, f"{directory}/{LOG_START}", start)
            await small_file.move_into_place(disk, f"{directory}/{LOG_START}")
        await self._read(directory, topic, source, is_compacted=is_compacted)
        identity = Identity(
            where=source.where,
            topic_id=topic.topic_id,
            partition_count=len(topic.partitions),
            configs=topic.configs,
            cluster_id=self._cluster_id,
            is_by_tag=topic.is_by_tag,
        )
        await small_file.write_beside(disk, f"{directory}/{IDENTITY}", encode_identity(identity))
        await small_file.move_into_place(disk, f"{directory}/{IDENTITY}")

    async def _close_gaps(
        self, directory: str, bases: Sequence[int], *, is_compacted: bool
    ) -> None:
        """Extend each segment to where the next one begins, and note where offsets are missing.

        In a compacted log offsets may be missing in front of the last segment, and nowhere else
        unless the file `gaps` is there.
        """
        has_gaps = False
        for base, following in zip(bases, [*bases[1:], None], strict=True):
            path = file_path(directory, base, LOG)
            ends = ends_of(path, base)
            has_gaps |= ends.has_gaps and (following is None or not is_compacted)
            size_bytes = self._disk.size(path)
            modified_ms = self._disk.modified_ms(path)
            if following is None:
                if ends.position < size_bytes and is_zero(path, ends.position):
                    await self._truncate(path, ends.position)  # Kafka's `preallocate`
            elif ends.position == size_bytes and ends.next_offset < following:
                has_gaps |= not is_compacted
                file = self._disk.open(path)
                try:
                    # invariant files 5: A log that an import makes ends where that of the source
                    # does.
                    # plant the last offsets that Kafka's compaction has taken out of a segment end
                    # a log
                    file.append(empty_batch(ends.next_offset, following, ends.leader_epoch))
                finally:
                    file.close()
            self._disk.set_modified_ms(path, modified_ms)
        if has_gaps:
            self._disk.open(f"{directory}/{GAPS}").close()

    async def _truncate(self, path: str, size_bytes: int) -> None:
        file = self._disk.open(path)
        try:
            await file.truncate(size_bytes)
        finally:
            file.close()

    async def _read(
        self, directory: str, topic: TopicImage, source: LogSource, *, is_compacted: bool
    ) -> None:
        """Read the whole log as recovery does, which writes indexes and a checkpoint.

        A batch that a kill has cut short is cut off. Anything else that is wrong is refused.
        """
        files = OpenFiles(self._disk)
        try:
            log, _ = await Log.open(
                files,
                directory,
                topic_id=topic.topic_id,
                config=LogConfig(is_compacted=is_compacted),
                now_ms=self._now_ms,
                rules=Rules(same_boot=True, read_all=True),
                has_identity=True,
            )
            log.close()
        except DamagedLog as error:
            path = _source_of(error.filename, source)
            raise CannotCopy(
                [
                    f"{path} is damaged at byte {error.position}, offset {error.offset}: "
                    f"{error.problem}. {source.remedy}"
                ]
            ) from None
        finally:
            files.close_all()
        for segment in source.segments:  # an empty one was not read
            await sync_file(self._disk, file_path(directory, segment.base_offset, LOG))
        await self._disk.fsync_dir(directory)


def _source_of(path: str, source: LogSource) -> str:
    """Return the file of which the one at `path` is a copy."""
    name = os.path.basename(path)
    named = (each.path for each in source.segments if os.path.basename(each.path) == name)
    return next(named, path)


def ends_of(path: str, base_offset: int) -> BatchesEnd:
    """Walk over the headers of a segment. Raises OSError."""
    data = read_only(path)
    position, next_offset, leader_epoch, has_gaps = 0, base_offset, 0, False
    while len(data) - position >= HEADER_BYTES:
        header = read_header(data, position)
        end = position + header.size_bytes
        if (
            header.magic != MAGIC
            or header.size_bytes < HEADER_BYTES
            or end > len(data)
            or header.base_offset < next_offset
            or header.last_offset_delta < 0
        ):
            break
        has_gaps |= header.base_offset > next_offset
        leader_epoch = max(leader_epoch, header.partition_leader_epoch)
        position, next_offset = end, header.next_offset
    return BatchesEnd(position, next_offset, leader_epoch, has_gaps)


def is_zero(path: str, position: int) -> bool:
    """Return True if a file has zeros only from a position on. Raises OSError."""
    data = read_only(path)
    return not any(
        any(data[at : at + ZEROS_AT_ONCE]) for at in range(position, len(data), ZEROS_AT_ONCE)
    )

"""The files of Apache Kafka's log directory: whose they are, and where logs begin.

Everything is opened for reading only. `lock_sources` takes Kafka's own lock, shared, so that no
Kafka runs on the directory while it is read.
"""

import os.path
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field
from hashlib import sha256
from typing import Final
from uuid import UUID

from odradek.broker.config.properties import read_properties
from odradek.broker.config.settings import ConfigError
from odradek.broker.inspect.importing.kafka_metadata import METADATA
from odradek.broker.inspect.refusal import CannotCopy
from odradek.broker.inspect.transfer import LogSource, SegmentSource
from odradek.broker.storage.disk import SystemDisk, lock_as_java, read_only
from odradek.broker.storage.files import LOG, SNAPSHOT, file_path, offsets_in
from odradek.broker.values.topic_partition import TopicPartition, partition_of
from odradek.late import dataclass

META: Final = "meta.properties"
LOCK: Final = ".lock"
LOG_STARTS: Final = "log-start-offset-checkpoint"
PARTITION_META: Final = "partition.metadata"
META_VERSION: Final = "1"
UUID_CHARACTERS: Final = 22
REMEDY: Final = (
    "Start Kafka on it once, which repairs it as far as it can, stop it, and import again."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLog:
    """The directory of one partition."""

    where: TopicPartition
    path: str
    topic_id: UUID | None
    """None if Kafka was killed before it wrote `partition.metadata`."""
    bases: Sequence[int]
    log_start_offset: int

    @property
    def segments(self) -> list[str]:
        return [file_path(self.path, base, LOG) for base in self.bases]

    def source(self) -> LogSource:
        """Return what a transfer copies."""
        first = file_path(self.path, self.bases[0], SNAPSHOT)
        return LogSource(
            where=self.where,
            segments=[
                SegmentSource(base_offset=base, path=path, size_bytes=SystemDisk().size(path))
                for base, path in zip(self.bases, self.segments, strict=True)
            ],
            producers=first if os.path.exists(first) else None,
            log_start_offset=self.log_start_offset,
            remedy=REMEDY,
        )


@dataclass(slots=True, kw_only=True)
class KafkaDirectory:
    """One of Kafka's `log.dirs`. `others` are directories that are no partition's."""

    path: str
    cluster_id: str
    node_id: int
    has_metadata: bool
    logs: dict[TopicPartition, KafkaLog] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)

    def files(self) -> Iterator[str]:
        """Yield the path of every file that an import reads, and whose change it must notice."""
        if self.has_metadata:
            directory = f"{self.path}/{METADATA}"
            for name in SystemDisk().listdir(directory):
                if name.endswith((LOG, ".checkpoint")):
                    yield f"{directory}/{name}"
        for where in sorted(self.logs):
            yield from self.logs[where].segments
        if os.path.exists(f"{self.path}/{LOG_STARTS}"):
            yield f"{self.path}/{LOG_STARTS}"


def read_directory(path: str) -> KafkaDirectory:
    """Read a directory of Kafka. Raises `CannotCopy`, OSError."""
    names = SystemDisk().listdir(path)
    if META not in names:
        raise CannotCopy(
            [
                f"{path} is no log directory of Apache Kafka: it has no {META}. Give the directory "
                "that stands in log.dirs in its server.properties."
            ]
        )
    meta = _properties(f"{path}/{META}")
    if meta.get("version") != META_VERSION or not {"cluster.id", "node.id"} <= meta.keys():
        raise CannotCopy(
            [
                f"{path}/{META} is not that of a Kafka 4 (version {meta.get('version', '?')}). "
                "Upgrade Kafka to 4.0 or later, without ZooKeeper, and import then."
            ]
        )
    if not meta["node.id"].isdigit():
        raise CannotCopy([f"{path}/{META} has the node.id {meta['node.id']!r}."])
    directory = KafkaDirectory(
        path=path,
        cluster_id=meta["cluster.id"],
        node_id=int(meta["node.id"]),
        has_metadata=METADATA in names,
    )
    starts = _log_starts(f"{path}/{LOG_STARTS}") if LOG_STARTS in names else {}
    for name in names:
        if name == METADATA or not os.path.isdir(f"{path}/{name}"):
            continue
        where = partition_of(name)
        if where is None or not _is_a_log(f"{path}/{name}"):
            directory.others.append(f"{path}/{name}")
        else:
            directory.logs[where] = _log(f"{path}/{name}", where, starts.get(where, 0))
    return directory


def fingerprint(directories: Sequence[KafkaDirectory]) -> str:
    """Return what changes with the name, size or time of any file that an import reads."""
    summed = sha256()
    for directory in directories:
        for path in directory.files():
            found = SystemDisk()
            summed.update(f"{path} {found.size(path)} {found.modified_ms(path)}\n".encode())
    return summed.hexdigest()


@contextmanager
def lock_sources(paths: Sequence[str]) -> Iterator[None]:
    """Keep Kafka away from directories. Raises `CannotCopy` if it runs, OSError."""
    with ExitStack() as locks:
        for path in paths:
            lock = f"{path}/{LOCK}"
            if not os.path.exists(lock):  # a copy may be without it
                continue
            try:
                locks.enter_context(lock_as_java(lock))
            except BlockingIOError:
                raise CannotCopy(
                    [f"A Kafka runs on {path}: stop it, and run this command again."]
                ) from None
        yield


def _log(path: str, where: TopicPartition, log_start_offset: int) -> KafkaLog:
    names = SystemDisk().listdir(path)
    bases = offsets_in(names, LOG)
    return KafkaLog(
        where=where,
        path=path,
        topic_id=_topic_id(f"{path}/{PARTITION_META}") if PARTITION_META in names else None,
        bases=bases,
        log_start_offset=max(log_start_offset, bases[0] if bases else 0),
    )


def _is_a_log(path: str) -> bool:
    names = SystemDisk().listdir(path)
    return PARTITION_META in names or bool(offsets_in(names, LOG))


def _properties(path: str) -> dict[str, str]:
    text = bytes(read_only(path)).decode("utf-8", "replace")
    try:
        return {given.name: given.text for given in read_properties(text, source=path)}
    except ConfigError as error:
        raise CannotCopy([str(error)]) from None


def _topic_id(path: str) -> UUID:
    """Return the topic id in `partition.metadata`. Raises `CannotCopy`."""
    for line in bytes(read_only(path)).decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "topic_id" and len(value.strip()) == UUID_CHARACTERS:
            return UUID(bytes=urlsafe_b64decode(value.strip() + "=="))
    raise CannotCopy([f"{path} has no topic_id: restore it, or remove it to go by the name."])


def _log_starts(path: str) -> dict[TopicPartition, int]:
    """Return what `log-start-offset-checkpoint` has: version, count, and a line for each."""
    found: dict[TopicPartition, int] = {}
    lines = bytes(read_only(path)).decode("utf-8", "replace").splitlines()
    for line in lines[2:]:
        parts = line.split()
        if len(parts) != 3 or not (parts[1].isdigit() and parts[2].isdigit()):
            raise CannotCopy([f"{path} is damaged: {line!r}."])
        found[TopicPartition(parts[0], int(parts[1]))] = int(parts[2])
    return found

"""The command `odradek storage backup`: a copy of a running broker, as of one moment.

The broker makes a backup point (`cluster/backup_point.py`). The command copies it into a new data
directory, and reads every batch of the copies. A broker that is started on that directory goes on
as after a kill at the moment of the point.
"""

import contextlib
import json
import os.path
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import click
import trio

from odradek.broker.cluster.backup_point import (
    LOCK,
    META,
    POINT,
    PointLog,
    decode_point,
    point_file,
)
from odradek.broker.cluster.store_embedded import COPY, FILE, DamagedStore
from odradek.broker.cluster.two_copies import encode_body, merge
from odradek.broker.config.addresses import parse_address
from odradek.broker.config.settings import ConfigError
from odradek.broker.inspect.directory_locks import errors_of, locked
from odradek.broker.inspect.new_directory import begin, check_is_new, check_is_outside, check_room
from odradek.broker.inspect.progress import CopyProgress, in_bytes
from odradek.broker.inspect.rebuild import Salvaged
from odradek.broker.inspect.refusal import CannotCopy
from odradek.broker.inspect.transfer import LogSource, SegmentSource, TopicSource, Transfer
from odradek.broker.storage.disk import SystemDisk, read_only
from odradek.broker.storage.files import SNAPSHOT
from odradek.broker.storage.origin import DirectoryOrigin
from odradek.broker.values.topic_partition import TopicPartition
from odradek.client.cli.common import connection_options, limits
from odradek.client.cluster.cluster import Cluster
from odradek.client.config import ClientConfig, ClientOptions
from odradek.client.errors import OdradekError
from odradek.late import dataclass
from odradek.protocol.apis.log_dirs import (
    ALTER_REPLICA_LOG_DIRS,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from odradek.protocol.errors import name_of

ANSWER_MS: Final = 60_000
REMEDY: Final = (
    "It is damaged in the broker's directory, too: see 'Repair a damaged log' in "
    "docs/operations.md."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """The contents of a backup point, to be copied."""

    cluster_id: str
    node_id: int
    at_ms: int
    topics: list[TopicSource]
    metadata: bytes

    @property
    def size_bytes(self) -> int:
        return sum(topic.size_bytes for topic in self.topics)


@click.command("backup", short_help="Copy a running broker, as of one moment.")
@click.argument("target", metavar="DIR", type=click.Path(file_okay=False))
@connection_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; the keys are above.")
def backup(target: str, bootstrap: str, timeout_s: float, as_json: bool) -> None:
    """Copy the data of a running broker into DIR, a new or an empty directory.

    --bootstrap names that broker, which runs on this machine.

    The copy is of one moment: records, offsets and transactions fit together. Clients wait for
    some milliseconds. Every batch of the copy is read. To restore it, start a broker on DIR, or on
    a copy of DIR. A backup that was interrupted begins anew.

    \b
    Keys of --json: directory, at_ms (the moment), cluster, node_id, topics (their
    number), bytes. The text goes to standard error then.
    """
    target = os.path.abspath(target)
    told = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    with errors_of(target), told:
        found = _back_up(target, bootstrap, limits(timeout_s))
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found.at_ms / 1000))
        click.echo(
            f"Done: {target} has what the broker had at {when}: {len(found.topics)} topics, "
            f"{in_bytes(found.size_bytes)}. Every batch was read."
        )
        node = "" if found.node_id == 1 else f" --set node.id={found.node_id}"
        click.echo(f"To restore: odradek serve --data-dir {shlex.quote(target)}{node}")
    if as_json:
        facts = {
            "directory": target,
            "at_ms": found.at_ms,
            "cluster": found.cluster_id,
            "node_id": found.node_id,
            "topics": len(found.topics),
            "bytes": found.size_bytes,
        }
        click.echo(json.dumps(facts))


def _back_up(target: str, bootstrap: str, options: ClientOptions) -> Backup:
    """Make a backup, and return what is in it. Raises ClickException, OSError."""
    check_is_new(target)
    point = trio.run(_make_point, bootstrap, options)
    _check_is_point(point, bootstrap)
    try:
        with _held(point):
            source = os.path.dirname(os.path.dirname(point))
            check_is_outside(target, source)
            found = _read_point(point)
            check_room(target, found.size_bytes)
            _copy(target, found, source, bootstrap)
    except CannotCopy as error:
        reasons = "\n  ".join(["There is no backup.", *error.reasons])
        raise click.ClickException(reasons) from None
    return found


def _check_is_point(point: str, bootstrap: str) -> None:
    """Raise ClickException unless a path that a broker has returned is that of a backup point.

    The directory is removed in the end, so no other program may name just any.
    """
    root, name = os.path.split(point)
    if not (os.path.isabs(point) and os.path.basename(root) == POINT and name.isdigit()):
        raise click.ClickException(f"{bootstrap} is no broker that makes backups.")
    if not os.path.isfile(f"{point}/{META}"):
        raise click.ClickException(
            f"The broker has made the backup point {point}, which is not here, or may not be read: "
            "run this command where the broker runs, in its container for example, and as its user."
        )


@contextlib.contextmanager
def _held(point: str) -> Iterator[None]:
    """Keep a backup point from being removed, and remove it in the end. Raises ClickException."""
    root = os.path.dirname(point)
    try:
        lock = SystemDisk().lock(f"{root}/{LOCK}")
    except BlockingIOError:
        raise click.ClickException("Another backup of this broker is being copied.") from None
    try:
        yield
    finally:
        shutil.rmtree(root, ignore_errors=True)
        lock.release()


async def _make_point(bootstrap: str, options: ClientOptions) -> str:
    """Request a backup point of the broker. Raises ClickException."""
    try:
        parse_address(bootstrap, "--bootstrap")  # one, and not a list
        with_time: ClientOptions = {**options, "request_timeout_ms": ANSWER_MS}
        config = ClientConfig(**with_time)
    except (ConfigError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    try:
        async with Cluster(bootstrap, config) as cluster:
            connection = await cluster.connections.to_any(())
            response: AlterReplicaLogDirsResponse = await connection.request(
                ALTER_REPLICA_LOG_DIRS,
                ALTER_REPLICA_LOG_DIRS.max_version,
                AlterReplicaLogDirsRequest(dirs=(), makes_backup_point=True),
            )
    except OdradekError as error:
        raise click.ClickException(
            f"{bootstrap} cannot be asked: {error}. Name the running broker with --bootstrap. To "
            "back up a broker that is stopped, copy its data directory."
        ) from None
    if response.backup_error:
        raise click.ClickException(response.backup_error_message or name_of(response.backup_error))
    if response.backup_point is None:
        raise click.ClickException(f"{bootstrap} is no broker that makes backups.")
    return response.backup_point


def _read_point(point: str) -> Backup:
    """Read a backup point. Raises `CannotCopy`, OSError."""
    meta = decode_point(bytes(read_only(f"{point}/{META}")))
    if meta is None:
        raise CannotCopy([f"{point}/{META} is damaged."])
    stored = [bytes(read_only(f"{point}/{name}")[: meta.metadata[name]]) for name in (FILE, COPY)]
    try:
        merged = merge(stored[0], stored[1], (FILE, COPY))
    except DamagedStore as error:
        raise CannotCopy([f"{point}: {error}."]) from None
    try:
        salvaged = Salvaged.of(merged.bodies)
    except ConfigError as error:
        raise CannotCopy([str(error)]) from None
    logs = {log.where: log for log in meta.logs}
    topics, missing = [], []
    for topic in salvaged.topics.values():
        places = [TopicPartition(topic.name, index) for index in range(len(topic.partitions))]
        missing += [place for place in places if place not in logs]
        if not missing:
            sources = [_source(point, logs[place]) for place in places]
            topics.append(TopicSource(topic=topic, logs=sources))
    if missing:
        raise CannotCopy([f"{place} is offline in the broker: see its log." for place in missing])
    return Backup(
        cluster_id=salvaged.cluster_id or "",
        node_id=meta.node_id,
        at_ms=meta.at_ms,
        topics=topics,
        metadata=b"".join(map(encode_body, merged.bodies)),
    )


def _source(point: str, log: PointLog) -> LogSource:
    first = log.segments[0][0]
    return LogSource(
        where=log.where,
        segments=[
            SegmentSource(
                base_offset=base, path=point_file(point, log.number, base), size_bytes=size
            )
            for base, size in log.segments
        ],
        producers=point_file(point, log.number, first, SNAPSHOT) if log.has_producers else None,
        log_start_offset=log.log_start_offset,
        remedy=REMEDY,
    )


def _copy(target: str, found: Backup, source: str, bootstrap: str) -> None:
    disk = SystemDisk()
    disk.mkdir(target)
    origin = DirectoryOrigin(
        command=shlex.join(["odradek", "storage", "backup", target, "--bootstrap", bootstrap]),
        source=source,
        fingerprint=str(found.at_ms),
        is_complete=False,
        at_ms=found.at_ms,
    )

    async def run() -> None:
        await begin(disk, target, origin)
        with CopyProgress("copied", found.size_bytes) as progress:
            transfer = Transfer(
                disk,
                target,
                found.topics,
                cluster_id=found.cluster_id,
                now_ms=found.at_ms,
                copied=progress.add,
            )
            await transfer.run()
        await transfer.finish(found.metadata, replace(origin, is_complete=True))

    with locked(target, is_unfinished=True):
        trio.run(run)

"""The metadata store of a single node: two append-only files, and a dictionary in memory.

`cluster.meta` and `cluster.meta.copy` hold the same records (`two_copies.py`). Each change is
appended to the first file and flushed, then to the second and flushed, and only then acknowledged.
So a crash leaves at most one torn record, in one of the files. A damaged record differs from a torn
one: it is whole in the other file. Opening takes it from there, logs that, and writes the damaged
file anew. Opening fails if both files are damaged, or if there are logs of topics and no records at
all: for these cases there is `odradek storage rebuild`.

An earlier version had `cluster.meta` alone, in the same format; its copy is made at the first
start. Without a copy a torn last record cannot be distinguished from a damaged one, so opening
fails.

When the files are much larger than their contents, new ones are written beside them, flushed, and
renamed over them. At every moment the directory has two complete files with the same contents.
Leftovers with `.new` are removed.

The values have the hashes of passwords, so only the user of the broker may read the files.

Watches and leases are in memory (`keys_in_memory.py`). The keys of a lease are not written to the
files: the only process that can hold a lease is this one, so its keys end with it, and not before.
A revision in which only such keys changed can be given again after a restart. No other key has that
revision.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from math import inf
from typing import Final

import trio

from odradek.broker.cluster.keys_in_memory import KeysInMemory, KeysWatch
from odradek.broker.cluster.two_copies import (
    DamagedStore,
    decode_body,
    encode_body,
    encode_record,
    merge,
)
from odradek.broker.environment.env import NO_PUTS, Changes, Compare, Disk, File, Versioned
from odradek.broker.storage.checkpoint import CHECKPOINT
from odradek.broker.storage.files import LOG, parent_of
from odradek.broker.storage.identity import IDENTITY
from odradek.broker.values.topic_partition import partition_of
from odradek.protocol.errors import ErrorCode, KafkaError

__all__ = ["COPY", "FILE", "DamagedStore", "EmbeddedStore"]

FILE: Final = "cluster.meta"
COPY: Final = "cluster.meta.copy"
NAMES: Final = (FILE, COPY)
COMPACT_ABOVE_BYTES: Final = 1024 * 1024
COMPACT_AT_FACTOR: Final = 4
"""A file above COMPACT_ABOVE_BYTES and this many times its last snapshot is written anew."""
LOGS_SHOWN: Final = 3
OF_KAFKA: Final = (
    "meta.properties",
    "__cluster_metadata-0",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)
"""Files and directories that Apache Kafka makes in each of its `log.dirs`."""

LOGGER: Final = logging.getLogger(__name__)


class EmbeddedStore:
    """A `MetaStore` in two files of `directory`. Make it with `open`."""

    max_operations: Final = None

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._paths = [f"{directory}/{name}" for name in NAMES]
        self._files: list[File] = []
        self._keys = KeysInMemory()
        self._snapshot_bytes = 0
        self._writing = trio.Lock()
        self._failure: OSError | None = None

    @classmethod
    async def open(cls, disk: Disk, directory: str) -> "EmbeddedStore":
        """Read the files, or create them. Raises `DamagedStore`, OSError."""
        disk.mkdir(directory)
        store = cls(disk, directory)
        await store._recover()
        store._files = [disk.open(path, is_private=True) for path in store._paths]
        # A broker that was killed may have left bytes and names in the page cache only. If this
        # broker appended after them, a power cut could tear both files.
        for file in store._files:
            await file.fsync()
        await disk.fsync_dir(directory)
        with contextlib.suppress(PermissionError):  # then it existed before
            await disk.fsync_dir(parent_of(directory))
        return store

    async def range(self, prefix: str) -> tuple[dict[str, Versioned], int]:
        await trio.lowlevel.checkpoint()
        return self._keys.starting_with(prefix), self._keys.revision

    async def txn(
        self,
        compares: Sequence[Compare],
        puts: Mapping[str, bytes | None],
        *,
        lease: int | None = None,
        lasting: Mapping[str, bytes | None] = NO_PUTS,
    ) -> tuple[bool, int]:
        async with self._writing, _uninterrupted():
            if not self._keys.hold(compares):
                return False, self._keys.revision
            if lease is not None:
                self._keys.check_lease(lease)
            assert not puts.keys() & lasting.keys(), (list(puts), list(lasting))
            stored = {**self._without_leased(puts, lease), **lasting}
            revision = self._keys.revision + 1
            if stored or not puts:
                await self._write(encode_record([revision, stored]))
            self._keys.apply(puts, lease=lease, lasting=lasting)
            assert self._keys.revision == revision, (self._keys.revision, revision)
            size = self._files[0].size
            if size > max(COMPACT_ABOVE_BYTES, COMPACT_AT_FACTOR * self._snapshot_bytes):
                await self._compact()
            return True, self._keys.revision

    def _without_leased(
        self, puts: Mapping[str, bytes | None], lease: int | None
    ) -> dict[str, bytes | None]:
        """Return what of a change is in the files: a key that gets a lease is deleted there."""
        if lease is None:
            return dict(puts)
        return {
            key: None for key in puts if key in self._keys.values and not self._keys.is_leased(key)
        }

    async def grant_lease(self, ttl_s: int) -> int:
        """Return a lease that ends with this process, which nobody else can take the place of.

        It does not end by time: a machine that slept, or a process that was stopped, goes on.
        """
        await trio.lowlevel.checkpoint()
        return self._keys.grant(inf, trio.current_time())

    async def keep_lease(self, lease: int) -> int:
        await trio.lowlevel.checkpoint()
        self._keys.keep(lease, trio.current_time())
        return self._keys.revision

    async def show_progress(self) -> None:
        """Do nothing: no other program writes to this store."""

    async def revoke_lease(self, lease: int) -> None:
        async with self._writing:
            self._keys.revoke(lease)

    @contextlib.asynccontextmanager
    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[AsyncIterator[Changes]]:
        yield KeysWatch(self._keys, prefix, from_revision)

    def close(self) -> None:
        for file in self._files:
            file.close()

    async def _write(self, record: bytes) -> None:
        """Append a record to both files, one after the other, each flushed. Raises KafkaError."""
        # A failed append changes nothing. After a failed flush it is not known what is on disk, so
        # the store accepts nothing more until a restart has read the files (KAFKA-10778).
        # invariant disk 9: A change of the metadata is in both files before it counts, in one
        # before the other.
        # tests/broker/cluster/test_store_embedded.py
        for path, file in zip(self._paths, self._files, strict=True):
            if self._failure is not None:
                raise _storage_error(path, self._failure)
            try:
                file.append(record)
            except OSError as error:
                if file is not self._files[0]:
                    await self._take_back(len(record))
                raise _storage_error(path, error) from error
            try:
                await file.fsync()
            except OSError as error:
                self._failure = error
                raise _storage_error(path, error) from error

    async def _take_back(self, record_bytes: int) -> None:
        """Remove a record from the first file, because the append to the second failed."""
        file = self._files[0]
        try:
            await file.truncate(file.size - record_bytes)
            await file.fsync()
        except OSError as error:
            self._failure = error

    async def _recover(self) -> None:
        """Read both files, apply their records, and write the files anew that differ from them."""
        await _remove_leftovers(self._disk, self._directory)
        found = [await read_file(self._disk, path) for path in self._paths]
        try:
            merged = merge(found[0] or b"", found[1] or b"", (self._paths[0], COPY))
            for body in merged.bodies:
                self._keys.restore(*decode_body(body))
        except DamagedStore as error:
            raise DamagedStore(
                f"{error}. A change that was acknowledged may be lost there, so the broker changes "
                f"nothing. {_how_to_go_on(self._directory)}"
            ) from None
        if not merged.bodies:
            self._check_no_logs(found[0])
        whole = b"".join(map(encode_body, merged.bodies))
        self._snapshot_bytes = len(encode_body(merged.bodies[0])) if merged.bodies else 0
        for note in merged.notes:
            LOGGER.warning("%s", note)
        changed = [path for path, data in zip(self._paths, found, strict=True) if data != whole]
        await write_files(self._disk, changed, whole)

    def _check_no_logs(self, found: bytes | None) -> None:
        """Raise `DamagedStore` if there are logs of topics, although the store has no records."""
        # Logs are made together with records, so the records were lost. A new store would give the
        # topics new ids, and the broker would set their directories aside.
        names = self._disk.listdir(self._directory)
        check_not_kafkas(self._directory, names)
        logs = [
            name
            for name in names
            if partition_of(name) is not None and _holds_a_log(self._disk, self._directory, name)
        ]
        if logs:
            is_what = "missing" if found is None else "damaged at byte 0" if found else "empty"
            shown = ", ".join(logs[:LOGS_SHOWN])
            more = f" and {len(logs) - LOGS_SHOWN} more" if logs[LOGS_SHOWN:] else ""
            raise DamagedStore(
                f"{self._paths[0]} is {is_what}, while there are logs of topics ({shown}{more}), "
                f"which the broker would no longer know. {_how_to_go_on(self._directory)}"
            )

    async def _compact(self) -> None:
        """Replace both files by a snapshot of the contents. Failures are logged."""
        kept = {
            key: found for key, found in self._keys.values.items() if not self._keys.is_leased(key)
        }
        puts = {key: found.value for key, found in kept.items()}
        versions = {key: [found.create_revision, found.mod_revision] for key, found in kept.items()}
        snapshot = encode_record([self._keys.revision, puts, versions])
        fresh: list[File] = []
        renamed = 0
        try:
            for path in self._paths:
                fresh.append(await _write_beside(self._disk, path, snapshot))
            for path in self._paths:
                self._disk.rename(f"{path}.new", path)
                renamed += 1
        except OSError as error:
            LOGGER.warning("%s was not compacted, and stays in use: %s", self._paths[0], error)
            for file in fresh:
                file.close()
            if renamed:
                # The copies begin differently now. `merge` can read them, but not with more
                # records.
                self._failure = error
            return
        self.close()
        self._files = fresh
        self._snapshot_bytes = len(snapshot)
        try:
            await self._disk.fsync_dir(self._directory)
        except OSError as error:
            self._failure = error


def check_not_kafkas(directory: str, names: Iterable[str]) -> None:
    """Raise `DamagedStore` if the files in a directory are those of Apache Kafka."""
    found = sorted(set(OF_KAFKA).intersection(names))
    if found:
        raise DamagedStore(
            f"{directory} looks like the data directory of another broker, Apache Kafka: it has "
            f"{', '.join(found)}. `odradek storage import {directory} --data-dir NEW` makes a data "
            "directory of it, and leaves it as it is (docs/migrating.md); or choose another "
            "--data-dir. If the logs are Odradek's all the same, move these files away first."
        )


async def read_file(disk: Disk, path: str) -> bytes | None:
    """Return a file's bytes; None if it does not exist. Raises OSError."""
    if not disk.exists(path):
        return None
    file = disk.open(path, is_private=True)
    try:
        return bytes(await file.pread(0, file.size))
    finally:
        file.close()


async def write_files(disk: Disk, paths: Iterable[str], data: bytes) -> None:
    """Replace files by durable ones with these bytes. Raises OSError."""
    for path in paths:
        (await _write_beside(disk, path, data)).close()
    for path in paths:
        disk.rename(f"{path}.new", path)
        await disk.fsync_dir(parent_of(path))


async def _write_beside(disk: Disk, path: str, data: bytes) -> File:
    beside = f"{path}.new"
    if disk.exists(beside):
        disk.remove(beside)
    file = disk.open(beside, is_private=True)
    try:
        file.append(data)
        await file.fsync()
    except OSError:
        file.close()
        raise
    return file


async def _remove_leftovers(disk: Disk, directory: str) -> None:
    for name in NAMES:
        if disk.exists(f"{directory}/{name}.new"):
            disk.remove(f"{directory}/{name}.new")


def _holds_a_log(disk: Disk, directory: str, name: str) -> bool:
    try:
        names = disk.listdir(f"{directory}/{name}")
    except NotADirectoryError:
        return False
    return any(file in (IDENTITY, CHECKPOINT) or file.endswith(LOG) for file in names)


def _how_to_go_on(directory: str) -> str:
    return (
        f"Restore {FILE} and {COPY} from a backup, or run `odradek storage rebuild {directory}`, "
        "which makes them anew from what the directories of the partitions keep."
    )


@contextlib.asynccontextmanager
async def _uninterrupted() -> AsyncIterator[None]:
    """Shield a write from cancellation: after half of it the contents of the disk are unknown."""
    with trio.CancelScope(shield=True):
        yield


def _storage_error(path: str, error: OSError) -> KafkaError:
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR, f"{path} cannot be written: {error.strerror or error}."
    )

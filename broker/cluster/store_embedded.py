"""The metadata store of a single node: one append-only file, and a dictionary in memory.

File `cluster.meta`: records one after the other, each

    u32 length of the body | u32 CRC-32C of the body | body: msgpack [revision, {key: value | nil}]

The first record of a compacted file is a snapshot: [revision, {...}, {key: [create, mod]}]. Each
is written with one append and is on disk before it counts, so a crash leaves at most one record at
the end that is cut off or has a wrong CRC; opening cuts that off, and says so. A broken record with
whole ones behind it is not a crash but a damaged disk, and opening refuses to guess. So is a broken
one that is all there is, where the directory has logs: they were made when it was whole.

When the file has outgrown what lives in it, a new one is written beside it, flushed, and renamed
over it: at every moment the directory has one complete file. A leftover `.new` is thrown away.
"""

import logging
import re
import struct
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import crc32c
import msgpack
import trio

from odradek.broker.env import Compare, Disk, File, Versioned
from odradek.protocol.errors import ErrorCode, KafkaError

FILE: Final = "cluster.meta"
COMPACT_ABOVE_BYTES: Final = 1024 * 1024
COMPACT_AT_FACTOR: Final = 4
"""A file above COMPACT_ABOVE_BYTES and this many times its last snapshot is written anew."""

LOG_DIRECTORY: Final = re.compile(r".+-\d+")
"""What a partition's directory is called."""

_HEAD: Final = struct.Struct(">II")

LOGGER: Final = logging.getLogger(__name__)


class DamagedStore(Exception):
    """The file is broken in a way that no crash explains; the message names the place."""


class EmbeddedStore:
    """A `MetaStore` in one file of `directory`. Make it with `open`."""

    def __init__(self, disk: Disk, directory: str, file: File) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{FILE}"
        self._file = file
        self._values: dict[str, Versioned] = {}
        self._revision = 0
        self._snapshot_bytes = 0
        self._writing = trio.Lock()
        self._failure: OSError | None = None

    @classmethod
    async def open(cls, disk: Disk, directory: str) -> "EmbeddedStore":
        """Read the file, made if it is not there. Raises `DamagedStore`, OSError."""
        disk.mkdir(directory)
        path = f"{directory}/{FILE}"
        if disk.exists(f"{path}.new"):
            disk.remove(f"{path}.new")
        is_new = not disk.exists(path)
        store = cls(disk, directory, disk.open(path))
        if is_new:
            await store._file.fsync()
            await disk.fsync_dir(directory)
            await disk.fsync_dir(_parent(directory))
        else:
            await store._recover()
        return store

    async def range(self, prefix: str) -> tuple[dict[str, Versioned], int]:
        await trio.lowlevel.checkpoint()
        found = {key: self._values[key] for key in sorted(self._values) if key.startswith(prefix)}
        return found, self._revision

    async def txn(
        self, compares: Sequence[Compare], puts: dict[str, bytes | None]
    ) -> tuple[bool, int]:
        async with self._writing, _uninterrupted():
            if not all(self._holds(compare) for compare in compares):
                return False, self._revision
            await self._write(_record([self._revision + 1, puts]))
            self._apply(self._revision + 1, puts)
            if self._file.size > max(COMPACT_ABOVE_BYTES, COMPACT_AT_FACTOR * self._snapshot_bytes):
                await self._compact()
            return True, self._revision

    def close(self) -> None:
        self._file.close()

    def _holds(self, compare: Compare) -> bool:
        found = self._values.get(compare.key)
        mod, create = (found.mod_revision, found.create_revision) if found else (0, 0)
        return compare.mod_revision in (None, mod) and compare.create_revision in (None, create)

    async def _write(self, record: bytes) -> None:
        """Append a record and flush it.

        A failed append changes nothing. After a failed flush nobody knows what is on disk, so the
        store takes nothing more until the broker has been started anew and has read the file.
        """
        if self._failure is not None:
            raise _storage_error(self._path, self._failure)
        try:
            self._file.append(record)
        except OSError as error:
            raise _storage_error(self._path, error) from error
        try:
            await self._file.fsync()
        except OSError as error:
            self._failure = error
            raise _storage_error(self._path, error) from error

    def _apply(self, revision: int, puts: Mapping[str, bytes | None]) -> None:
        self._revision = revision
        for key, value in puts.items():
            if value is None:
                self._values.pop(key, None)
                continue
            before = self._values.get(key)
            create = before.create_revision if before else revision
            self._values[key] = Versioned(
                value=value, create_revision=create, mod_revision=revision
            )

    async def _recover(self) -> None:
        data = bytes(await self._file.pread(0, self._file.size))
        end = 0
        for start, body in _records(data):
            self._read(body, start)
            end = start + _HEAD.size + len(body)
            if start == 0:
                self._snapshot_bytes = end
        if end < len(data):
            if any(_records_from(data, place) for place in range(end + 1, len(data))):
                raise DamagedStore(
                    f"{self._path} is damaged at byte {end}, and what follows is not the trace of "
                    "a crash. Restore the file from a backup."
                )
            if end == 0 and self._has_logs():
                raise DamagedStore(
                    f"{self._path} is damaged at its first byte, while {self._directory} has logs "
                    "of topics, which it would no longer know. Restore the file from a backup."
                )
            LOGGER.warning(
                "%s: the last %d bytes are no record and are cut off", self._path, len(data) - end
            )
            await self._file.truncate(end)
            await self._file.fsync()

    def _has_logs(self) -> bool:
        names = self._disk.listdir(self._directory)
        return any(LOG_DIRECTORY.fullmatch(name) for name in names)

    def _read(self, body: bytes, start: int) -> None:
        try:
            revision, puts, *versions = msgpack.unpackb(body, raw=False)
        except (ValueError, msgpack.UnpackException) as error:
            raise DamagedStore(f"{self._path}: no record at byte {start}: {error}") from error
        self._apply(revision, puts)
        for key, (create, mod) in (versions[0] if versions else {}).items():
            self._values[key] = Versioned(value=puts[key], create_revision=create, mod_revision=mod)

    async def _compact(self) -> None:
        puts = {key: found.value for key, found in self._values.items()}
        versions = {
            key: [found.create_revision, found.mod_revision] for key, found in self._values.items()
        }
        snapshot = _record([self._revision, puts, versions])
        beside = f"{self._path}.new"
        fresh: File | None = None
        try:
            if self._disk.exists(beside):
                self._disk.remove(beside)
            fresh = self._disk.open(beside)
            fresh.append(snapshot)
            await fresh.fsync()
            self._disk.rename(beside, self._path)
        except OSError as error:
            LOGGER.warning("%s is not rewritten, and goes on as it is: %s", self._path, error)
            if fresh is not None:
                fresh.close()
            return
        self._file.close()
        self._file = fresh
        self._snapshot_bytes = len(snapshot)
        try:
            await self._disk.fsync_dir(self._directory)
        except OSError as error:
            self._failure = error


@asynccontextmanager
async def _uninterrupted() -> AsyncIterator[None]:
    """A write that was half waited for would leave nobody knowing what is on disk."""
    with trio.CancelScope(shield=True):
        yield


def _parent(directory: str) -> str:
    return directory.rpartition("/")[0] or ("/" if directory.startswith("/") else ".")


def _record(content: list[Any]) -> bytes:
    body: bytes = msgpack.packb(content, use_bin_type=True)
    return _HEAD.pack(len(body), crc32c.crc32c(body)) + body


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The whole records from the beginning, each with its place, until one is broken."""
    place = 0
    while (body := _records_from(data, place)) is not None:
        yield place, body
        place += _HEAD.size + len(body)


def _records_from(data: bytes, place: int) -> bytes | None:
    """The body of the record at `place`, None if there is no whole and correct one."""
    start = place + _HEAD.size
    if start > len(data):
        return None
    length, crc = _HEAD.unpack_from(data, place)
    body = data[start : start + length]
    if length == 0 or len(body) < length or crc32c.crc32c(body) != crc:
        return None
    return body


def _storage_error(path: str, error: OSError) -> KafkaError:
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR, f"{path} cannot be written: {error.strerror or error}."
    )

"""The directories of partitions in the data directory: their owners, and how they are removed.

A log is never created over an existing directory. A directory in which nothing was ever appended
was left by an interrupted creation, and is removed. Any other is set aside: it gets a name that
ends in `.set-aside`, and the broker does not touch it again. A directory whose `topic.meta` names
another topic is not opened (`ForeignDirectory`).

Only directories of deleted topics are removed. Such a directory is first renamed to a name that
ends in `.deleted`: then its old name is free, and a crash does not leave half a log behind.
"""

import contextlib
import errno
import logging
import math
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Final
from uuid import UUID

import trio

from odradek.broker.environment.turns import Turns
from odradek.broker.storage.identity import Identity, Owner, is_empty_log, owner_of
from odradek.broker.storage.lost import forget_given_up, has_log, is_given_up, set_aside
from odradek.broker.storage.reserve import ReservedDisk
from odradek.broker.values.topic_partition import TopicPartition, partition_of

LOGGER: Final = logging.getLogger(__name__)
DELETED: Final = ".deleted"
TRY_AGAIN_SECONDS_MAX: Final = 60.0
_THROWN_AWAY: Final = re.compile(r"[0-9a-f]{32}-[0-9]+(\.[0-9]+)?\.deleted")
"""A user may end a name with `.deleted`, too. The broker does not remove such a directory."""
STRANGERS_SHOWN: Final = 10


class ForeignDirectory(OSError):
    """A partition's directory holds the log of another one."""

    def __init__(self, path: str, found: Owner, topic_id: UUID) -> None:
        super().__init__(
            errno.EEXIST,
            f"the directory holds the log of {found}, and not that of topic id {topic_id}; "
            "move it away, or put back the directory that was there",
            path,
        )

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class PartitionDirectories:
    """The directories in one data directory. `run` removes what is thrown away."""

    def __init__(self, disk: ReservedDisk, directory: str, try_again_seconds: float) -> None:
        self._disk = disk
        self._directory = directory
        self._try_again_seconds = min(try_again_seconds, TRY_AGAIN_SECONDS_MAX)
        self._garbage: list[str] = []
        self._has_garbage = trio.Event()

    def of(self, where: TopicPartition) -> str:
        """Return the path of a partition's directory."""
        return f"{self._directory}/{where}"

    def keep_names(self, where: TopicPartition) -> AbstractContextManager[None]:
        """Read the names in a partition's directory once while its log is opened."""
        return self._disk.keep_names(self.of(where))

    async def has_log(self, where: TopicPartition) -> bool:
        """Return True if the directory of a partition has a log. Raises OSError."""
        return await has_log(self._disk, self.of(where))

    def is_given_up(self, where: TopicPartition) -> bool:
        """Return True if a person has said that the lost log of a partition may begin anew."""
        return is_given_up(self._disk, self.of(where))

    async def forget_given_up(self, where: TopicPartition) -> None:
        """See `lost.py`. Raises OSError."""
        await forget_given_up(self._disk, self.of(where))

    async def flush_names(self, directories: Iterable[str]) -> frozenset[str]:
        """Wait until directories of partitions, and their names, are on disk.

        Return those that are. Raises OSError if names cannot be flushed at all.
        """
        there: list[str] = []

        async def flush_one(directory: str) -> None:
            with contextlib.suppress(OSError):  # its topic was deleted, say
                await self._disk.fsync_dir(directory)
                there.append(directory)

        async with trio.open_nursery() as nursery:
            for directory in directories:
                nursery.start_soon(flush_one, directory)
        if there:
            await self.sync()
        return frozenset(there)

    async def check_owner(self, where: TopicPartition, topic_id: UUID) -> Identity | None:
        """Return the identity that the directory of a partition names.

        Raises `ForeignDirectory` if it is another's, OSError.
        """
        directory = f"{self._directory}/{where}"
        if not self._disk.exists(directory):
            return None
        owner = await owner_of(self._disk, directory)
        if not owner.may_be(where, topic_id):
            raise ForeignDirectory(directory, owner, topic_id)
        return owner.identity

    async def may_be(self, where: TopicPartition, topic_id: UUID) -> bool:
        """Return True if a partition's directory is there and not another's. Raises OSError."""
        try:
            await self.check_owner(where, topic_id)
        except ForeignDirectory:
            return False
        return self._disk.exists(f"{self._directory}/{where}")

    async def remove_empty(self, where: TopicPartition) -> bool:
        """Remove a directory in which nothing was ever appended; False for any other."""
        if not is_empty_log(self._disk, f"{self._directory}/{where}"):
            return False
        await self.make_way(where)
        return True

    async def make_way(self, where: TopicPartition) -> None:
        """Free the name for a new log: remove an empty directory, set any other aside.

        It is durable on return, because a crash must not bring the directory back to where another
        log is by then. Raises OSError.
        """
        directory = f"{self._directory}/{where}"
        if not self._disk.exists(directory):
            return
        # invariant disk 10: A directory with records is never removed to make room for a new
        # partition. It is set aside.
        # tests/broker/storage/test_directories.py
        if self.is_directory(str(where)) and is_empty_log(self._disk, directory):
            await self._disk.rmtree(directory)
        else:
            aside = set_aside(self._disk, directory)
            LOGGER.warning(
                "%s belongs to no topic, or its log is damaged: it is set aside as %s, and an "
                "empty log takes its place",
                directory,
                aside,
            )
        await self._disk.fsync_dir(self._directory)

    async def remove_deleted(self, topic: str, topic_id: UUID) -> None:
        """Remove every directory that is left of a deleted topic. Raises OSError.

        A directory that does not say that it is of this topic id stays.
        """
        turns = Turns()
        for name in self._disk.listdir(self._directory):
            await turns.take()
            where = partition_of(name)
            if where is None or where.topic != topic or not self.is_directory(name):
                continue
            owner = await owner_of(self._disk, f"{self._directory}/{name}")
            if owner.topic_id == topic_id and owner.may_be(where, topic_id):
                self.throw_away(where, topic_id)
        await self.sync()

    def throw_away(self, where: TopicPartition, topic_id: UUID) -> None:
        """Rename the directory of a deleted topic, and have it removed. Raises OSError.

        The new name is durable after `sync`.
        """
        number, repeated = 1, ""
        while self._disk.exists(self._deleted_path(where, topic_id, repeated)):
            number += 1
            repeated = f".{number}"
        target = self._deleted_path(where, topic_id, repeated)
        self._disk.rename(f"{self._directory}/{where}", target)
        self._to_remove(target)

    def _deleted_path(self, where: TopicPartition, topic_id: UUID, repeated: str) -> str:
        return f"{self._directory}/{topic_id.hex}-{where.partition}{repeated}{DELETED}"

    async def sync(self) -> None:
        """Wait until the names in the data directory are on disk. Raises OSError."""
        await self._disk.fsync_dir(self._directory)

    def find_thrown_away(self) -> None:
        """Find the `.deleted` directories of earlier runs, for `run` to remove. Raises OSError."""
        for name in self._disk.listdir(self._directory):
            if _THROWN_AWAY.fullmatch(name):
                self._to_remove(f"{self._directory}/{name}")

    def _to_remove(self, path: str) -> None:
        self._garbage.append(path)
        self._has_garbage.set()

    async def run(self) -> None:
        """Remove what is thrown away, until cancelled."""
        while True:
            # Without a free file descriptor, say, a directory stays. It is tried again later.
            with trio.move_on_after(self._try_again_seconds if self._garbage else math.inf):
                await self._has_garbage.wait()
            self._has_garbage = trio.Event()
            failed: list[str] = []
            while self._garbage:
                path = self._garbage.pop()
                try:
                    await self._disk.rmtree(path)
                except OSError as error:
                    if self._disk.exists(path):
                        failed.append(path)
                        LOGGER.warning("%s cannot be removed yet: %s", path, error)
            self._garbage += failed

    def warn_of_strangers(self, known: set[str]) -> None:
        """Log the directories that belong to no topic: a user may miss them. Raises OSError."""
        strangers = [
            name
            for name in self._disk.listdir(self._directory)
            if name not in known and not _THROWN_AWAY.fullmatch(name) and self.is_directory(name)
        ]
        if strangers:
            shown = ", ".join(strangers[:STRANGERS_SHOWN])
            left_out = len(strangers) - STRANGERS_SHOWN
            LOGGER.warning(
                "%s has directories that belong to no topic and are left alone: %s%s",
                self._directory,
                shown,
                f" and {left_out} more" if left_out > 0 else "",
            )

    def is_directory(self, name: str) -> bool:
        try:
            self._disk.listdir(f"{self._directory}/{name}")
        except NotADirectoryError:
            return False
        return True

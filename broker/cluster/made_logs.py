"""The notes of the logs that were made on this broker.

A log whose directory is gone looks like one that is not made yet: the metadata store has its
partition, and the disk has nothing. If the partition has no other replica, the broker would make it
anew, empty. So once a log and its name are on disk, the broker notes in the store that it has made
it. Nothing in a log is acknowledged before it is noted. So a log that is noted is never made again
without being told, and one that is not may be: it was never there, or has acknowledged nothing.

    /logs/NODE/          {}: an earlier run has noted all logs that it found
    /logs/NODE/TOPIC_ID  {"partitions": [...]}

A version that does not note its logs leaves none of these keys. The first start of this one notes
what is there. It cannot know what was lost before. A broker without replicas has nothing to find,
so it writes the first key before it registers, and with that before it gets any.

Only the broker NODE writes its keys. Notes are written in the background, many at once. Those of a
topic that is deleted, or of a replica that moves away, are removed.
"""

import errno
import logging
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Final
from uuid import UUID

import trio

from odradek.broker.cluster.guarded_write import guarded_write
from odradek.broker.cluster.image import ClusterImage
from odradek.broker.cluster.store import made_logs_key, pack, unpack
from odradek.broker.environment.env import Compare, MetaStore, StoreUnreachable
from odradek.protocol.errors import KafkaError

LOGGER: Final = logging.getLogger(__name__)
SETTLE_SECONDS: Final = 0.05
"""Logs that are made within this time are noted by one write, unless an answer waits for it."""
RETRY_SECONDS: Final = 1.0
AT_ONCE: Final = 50
"""The keys of one write, and the directories that are flushed before it."""

Partitions = frozenset[int]
NOTHING: Final[Partitions] = frozenset()
Flush = Callable[[Iterable[str]], Awaitable[frozenset[str]]]
"""Waits until directories and their names are on disk. Returns those that are; raises OSError."""


class MadeLogs:
    """The logs that were made on one broker, as the metadata store has them, and as they are."""

    def __init__(self, store: MetaStore, node_id: int) -> None:
        self._store = store
        self._node_id = node_id
        self._stored: dict[str, tuple[Partitions, int]] = {}
        """The partitions in each key, and its revision."""
        self._made: dict[UUID, Partitions] = {}
        self._new: dict[tuple[UUID, int], str] = {}
        """The directories of logs that are not noted, and may not be on disk."""
        self._to_call: dict[tuple[UUID, int], Callable[[], None]] = {}
        """Called when the log is noted."""
        self._made_now: list[tuple[UUID, int]] = []
        """Logs that are on disk, and for whose note something is to be called."""
        self._unsettled: dict[UUID, None] = {}
        """The topics whose keys may differ from what is here. No others are looked at."""
        self._urgent: dict[tuple[UUID, int], None] = {}
        """The logs whose first records wait for their note."""
        self._is_urgent = trio.Event()
        self._changed = trio.Event()
        self._writing = trio.Lock()
        self.is_first_run = True
        """True if no earlier run has noted its logs."""

    @classmethod
    async def load(cls, store: MetaStore, node_id: int, image: ClusterImage) -> "MadeLogs":
        """Read the notes of earlier runs. Waits while the store is away."""
        made_logs = cls(store, node_id)
        while True:
            try:
                await made_logs._read()
                made_logs._take_over(image)
                await made_logs._begin(image)
                return made_logs
            except StoreUnreachable as error:
                LOGGER.warning("the metadata store does not answer: %s", error)
                await trio.sleep(RETRY_SECONDS)

    async def _begin(self, image: ClusterImage) -> None:
        """Write the first key if there is no log to find. Raises StoreUnreachable."""
        topics = image.topics.values()
        partitions = (partition for topic in topics for partition in topic.partitions)
        if not self.is_first_run or any(self._node_id in each.replicas for each in partitions):
            return
        first = made_logs_key(self._node_id)
        try:
            absent = Compare(key=first, mod_revision=0)
            await guarded_write(self._store, [absent], {first: _pack(NOTHING)})
            await self._read()
        except StoreUnreachable:
            raise
        except KafkaError as error:  # a full disk, say
            LOGGER.warning("it is not noted that no logs were made here: %s", error)
        self.is_first_run = first not in self._stored

    def _take_over(self, image: ClusterImage) -> None:
        """Take over the notes that are right in an image; the others are to be removed."""
        self.is_first_run = made_logs_key(self._node_id) not in self._stored
        for key, (noted, _) in self._stored.items():
            topic_id = _topic_id(key)
            topic = None if topic_id is None else image.topic_by_id(topic_id)
            if topic is not None:
                here = (n for n in noted if n < len(topic.partitions))
                kept = (n for n in here if self._node_id in topic.partitions[n].replicas)
                self._made[topic.topic_id] = frozenset(kept)
        self._changed.set()

    async def _read(self) -> None:
        found, _ = await self._store.range(made_logs_key(self._node_id))
        self._stored = {
            key: (frozenset(unpack(stored.value).get("partitions", ())), stored.mod_revision)
            for key, stored in found.items()
        }
        noted = [topic_id for key in self._stored if (topic_id := _topic_id(key)) is not None]
        self._unsettled = dict.fromkeys((*noted, *self._made))

    def has(self, topic_id: UUID, index: int) -> bool:
        """Return True if a log was made here."""
        return index in self._made.get(topic_id, NOTHING)

    def note_made(
        self, topic_id: UUID, index: int, directory: str, on_noted: Callable[[], None]
    ) -> None:
        """Note soon that a log was made, in a directory that may not be on disk yet.

        It is not noted yet. `on_noted` is called when it is.
        """
        self._new[topic_id, index] = directory
        self._to_call[topic_id, index] = on_noted
        self._changed.set()

    def hurry(self, topic_id: UUID, index: int) -> None:
        """Note a log that was made before others: its first records wait for that."""
        self._urgent[topic_id, index] = None
        self._is_urgent.set()

    def note_gone(self, topic_id: UUID, indexes: Iterable[int]) -> None:
        """Note soon that logs of a topic are not here any more."""
        for index in indexes:
            self._new.pop((topic_id, index), None)
            self._to_call.pop((topic_id, index), None)
            self._urgent.pop((topic_id, index), None)
            if self.has(topic_id, index):
                self._made[topic_id] -= {index}
                self._unsettled[topic_id] = None
                self._changed.set()

    async def run(self, flush: Flush) -> None:
        """Write notes until cancelled. A write that fails is tried again."""
        level = logging.WARNING
        while True:
            await self._changed.wait()
            with trio.move_on_after(SETTLE_SECONDS):
                await self._is_urgent.wait()
            try:
                await self.write(flush)
                level = logging.WARNING
            except (OSError, KafkaError) as error:
                LOGGER.log(level, "it is not noted yet which logs were made: %s", error)
                level = logging.DEBUG
                self._changed.set()
                await trio.sleep(RETRY_SECONDS)

    async def write(self, flush: Flush) -> None:
        """Write what is not noted yet. Raises OSError, KafkaError."""
        async with self._writing:
            self._changed = trio.Event()
            while True:
                left = await self._flush_some(flush)
                await self._write_due()
                if left is not None:
                    raise OSError(errno.EIO, "the directory is not on disk yet", left)
                if not self._new:
                    break

    # invariant disk 12
    async def _flush_some(self, flush: Flush) -> str | None:
        """Take new logs for noted, the urgent ones first, once their directories are on disk.

        Return a directory that is not.
        """
        urgent, self._urgent, self._is_urgent = self._urgent, {}, trio.Event()
        chosen = [where for where in urgent if where in self._new]
        chosen = chosen or list(islice(self._new, AT_ONCE))
        new = {where: self._new[where] for where in chosen}
        flushed = await flush(new.values())
        left = None
        made: dict[UUID, list[int]] = {}
        for where, directory in new.items():
            if where not in self._new:
                continue  # deleted meanwhile
            if directory in flushed:
                topic_id, index = where
                del self._new[where]
                made.setdefault(topic_id, []).append(index)
                self._made_now.append(where)
            else:
                left = directory
        for topic_id, indexes in made.items():
            self._made[topic_id] = self._made.get(topic_id, NOTHING).union(indexes)
            self._unsettled[topic_id] = None
        return left

    async def _write_due(self) -> None:
        while due := self._due():
            at_once = dict(list(due.items())[:AT_ONCE])
            compares = [
                Compare(key=key, mod_revision=self._stored.get(key, (NOTHING, 0))[1])
                for key in at_once
            ]
            puts = {key: _pack(partitions) for key, partitions in at_once.items()}
            is_written, revision = await guarded_write(self._store, compares, puts)
            if not is_written:  # by an earlier run, whose write came late
                await self._read()
                continue
            for key, partitions in at_once.items():
                self._stored[key] = partitions or NOTHING, revision
                if partitions is None:
                    del self._stored[key]
        noted, self._made_now = self._made_now, []
        for where in noted:
            if where in self._to_call and self.has(*where):  # not removed meanwhile, or made anew
                self._to_call.pop(where)()

    def _due(self) -> dict[str, Partitions | None]:
        """Return the keys that differ from what is here; the one that ends the first run last."""
        due: dict[str, Partitions | None] = {}
        for topic_id in list(self._unsettled):
            key, partitions = made_logs_key(self._node_id, topic_id), self._made.get(topic_id)
            stored, _ = self._stored.get(key, (NOTHING, 0))
            if partitions and partitions != stored:
                due[key] = partitions
            elif not partitions and key in self._stored:
                due[key] = None
            else:
                del self._unsettled[topic_id]
        first = made_logs_key(self._node_id)
        if first not in self._stored and any(self._made.values()):
            due[first] = NOTHING
        return due


def _pack(partitions: Partitions | None) -> bytes | None:
    if partitions is None:
        return None
    return pack({"partitions": sorted(partitions)} if partitions else {})


def _topic_id(key: str) -> UUID | None:
    """Return the topic id in a key; None for the key of the broker."""
    name = key.rpartition("/")[2]
    return UUID(hex=name) if name else None

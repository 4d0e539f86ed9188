"""Reading a partition of `__consumer_offsets` when a broker begins to coordinate its groups.

Records are applied in log order, as they took effect when they were written. Plain offsets, which
are nearly all records, are an exception. Of two of them the later one in the log wins, whenever it
is applied. So only the last of those in a row for one partition of one group is decoded, at the end
or before the tombstone that removes it. Its decoder decodes exactly what this version writes; any
other record goes to `read_entry`.
"""

import logging
import struct
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final, TypeGuard
from uuid import UUID

import trio

from odradek.broker.group.changes import ClassicBegun, ConsumerChanged
from odradek.broker.group.classic_group import ClassicGroup
from odradek.broker.group.consumer.consumer_group_records import ConsumerEntry, GroupBeingRead
from odradek.broker.group.store import (
    Entry,
    GroupEntry,
    OffsetEntry,
    StoredOffset,
    read_entry,
)
from odradek.broker.group.stored_offsets import Offsets
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from odradek.protocol.control import read_marker
from odradek.protocol.errors import ProtocolError
from odradek.protocol.record import Record
from odradek.protocol.schema import ZERO_UUID, Buffer
from odradek.protocol.state_records import iter_state_records
from odradek.protocol.state_topics import ConsumerGroupMetadataKey

APPLIED_PER_CHECKPOINT: Final = 500
"""The number of offsets that are decoded and applied between two checkpoints, about 5 ms."""

OFFSET_KEY: Final = b"\0\1"
OLD_OFFSET_KEY: Final = b"\0\0"
"""A key of version 0, which stands for the same offset as one of version 1."""

_OFFSET_AND_EPOCH: Final = struct.Struct(">hqi")
"""Version, offset, leader epoch; the metadata follows, and then the time."""
_STATIC: Final = 3
_FLEXIBLE: Final = 4
_TOPIC_ID_FIELD: Final = b"\1\0\x10"
"""One tagged field: number 0, 16 bytes."""
_TIME: Final = struct.Struct(">q")
_PARTITION: Final = struct.Struct(">i")

log: Final = logging.getLogger(__name__)

Found = dict[str, tuple[ClassicGroup | None, int]]
"""The newest record of each group by its id, and the offset after the record."""

NO_GROUP: Final = (None, 0)


class GroupReader:
    """Reads one partition: it fills `offsets`, and finds the newest value of each group.

    What a later record replaces is never made.
    """

    def __init__(self, offsets: Offsets, name: str) -> None:
        self.classic: Found = {}
        self._consumers: dict[str, GroupBeingRead] = {}
        self._downgraded: set[str] = set()
        """Classic groups that were consumer groups, and whose rebalance has not ended since."""
        self._ended: dict[str, int] = {}
        """The offset after the last tombstone of each consumer group."""
        self._offsets = offsets
        self._partition_name = name
        self._newest: dict[bytes, tuple[int, bytes]] = {}
        self._names: dict[bytes, str] = {}
        self._topic_ids: dict[bytes, UUID] = {}

    def group_ids(self) -> Iterable[str]:
        """Return the ids of all groups that have a record."""
        return [*self.classic, *self._consumers, *self._offsets.group_ids()]

    def groups_found(self) -> Iterator[tuple[ClassicBegun | ConsumerChanged, int]]:
        """Yield the groups, each with the offset of a record of it."""
        for group_id, (group, next_offset) in self.classic.items():
            if group is not None:
                yield ClassicBegun(group, group_id in self._downgraded), next_offset - 1
        for group_id, being_read in self._consumers.items():
            if being_read.is_there:
                if self.classic.get(group_id, NO_GROUP)[0] is not None:
                    # No broker writes this: the new records stand behind a tombstone.
                    log.error("%s: %r is of both protocols", self._partition_name, group_id)
                yield ConsumerChanged(being_read.group()), 0

    async def read(self, runs: AsyncIterator[Buffer]) -> None:
        """Apply all records. A record that cannot be decoded is logged and left out.

        Raises KafkaError for a batch that cannot be read.
        """
        async for run in runs:
            self._read_run(bytes(run))
            await trio.lowlevel.checkpoint()
        for count, (key, (offset, value)) in enumerate(self._newest.items(), 1):
            self._apply(key, value, offset)
            if count % APPLIED_PER_CHECKPOINT == 0:
                await trio.lowlevel.checkpoint()

    def _read_run(self, run: bytes) -> None:
        newest = self._newest
        for offset, attributes, producer_id, key, value in iter_state_records(run):
            # A marker decides what is pending before it in the log, so it is applied in its place.
            # Plain offsets may wait: `Offsets` compares the places of their records.
            if attributes & CONTROL_BIT:
                committed = read_marker(Record(key=key, value=value)).committed
                self._offsets.end_transaction(
                    producer_id, committed=committed, marker_offset=offset
                )
            elif attributes & TRANSACTIONAL_BIT:
                entry = self._entry(key, value, offset)
                if isinstance(entry, OffsetEntry) and entry.stored is not None:
                    one = ((entry.partition, entry.stored),)
                    self._offsets.add_pending(producer_id, entry.group_id, one, offset)
            elif key is not None and key[:2] == OFFSET_KEY and is_usual(value):
                newest[key] = (offset, value)
            else:
                self._apply_what_waits_for(key)
                self._apply(key, value, offset)

    def _apply_what_waits_for(self, key: bytes | None) -> None:
        """Apply the offset that waits for its turn under the same key as this record."""
        if key is not None and key[:2] in (OFFSET_KEY, OLD_OFFSET_KEY):
            waiting = OFFSET_KEY + key[2:]
            if waiting in self._newest:
                offset, value = self._newest.pop(waiting)
                self._apply(waiting, value, offset)

    def _apply(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        entry = self._entry(key, value, offset)
        if isinstance(entry, GroupEntry):
            self.classic[entry.group_id] = (entry.group, offset + 1)
            # A downgraded group is one batch, which ends with the classic group. The rebalance that
            # begins with it is not stored before its end: a coordinator that loads it repeats it.
            if entry.group is not None and self._ended.get(entry.group_id) == offset:
                self._downgraded.add(entry.group_id)
            else:
                self._downgraded.discard(entry.group_id)
        elif isinstance(entry, ConsumerEntry):
            group_id = entry.key.group_id
            if isinstance(entry.key, ConsumerGroupMetadataKey) and entry.value is None:
                self._ended[group_id] = offset + 1
            self._consumers.setdefault(group_id, GroupBeingRead(group_id)).apply(entry)
        elif entry is not None:
            self._offsets.apply(entry, offset)

    def _entry(self, key: bytes | None, value: bytes | None, offset: int) -> Entry | None:
        if key is not None and key[:2] == OFFSET_KEY and is_usual(value):
            place = self._place_of(key)
            if place is not None:
                return OffsetEntry(*place, self._decode_usual(value))
        try:
            return read_entry(Record(key=key, value=value))
        except ProtocolError as error:
            log.error("%s, offset %d: %s", self._partition_name, offset, error)
            return None

    def _place_of(self, key: bytes) -> tuple[str, TopicPartition] | None:
        """Return the group and the partition of a key; None if the key is not in the usual form."""
        group_end = 4 + int.from_bytes(key[2:4])
        topic_end = group_end + 2 + int.from_bytes(key[group_end : group_end + 2])
        if len(key) != topic_end + _PARTITION.size:
            return None
        try:
            group = self._name(key[4:group_end])
            topic = self._name(key[group_end + 2 : topic_end])
        except UnicodeDecodeError:
            return None
        return group, TopicPartition(topic, _PARTITION.unpack_from(key, topic_end)[0])

    def _name(self, data: bytes) -> str:
        name = self._names.get(data)
        if name is None:
            name = self._names[data] = str(data, "utf-8")
        return name

    def _decode_usual(self, value: bytes) -> StoredOffset:
        """Decode a value for which `is_usual` is True."""
        version, offset, leader_epoch = _OFFSET_AND_EPOCH.unpack_from(value)
        start, end = _metadata_of(value)
        topic_id = ZERO_UUID
        if version == _FLEXIBLE and value[end + _TIME.size]:
            packed = value[-16:]
            known = self._topic_ids.get(packed)
            topic_id = known or self._topic_ids.setdefault(packed, UUID(bytes=packed))
        return StoredOffset(
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=value[start:end].decode(),
            commit_timestamp_ms=_TIME.unpack_from(value, end)[0],
            topic_id=topic_id,
        )


def is_usual(value: bytes | None) -> TypeGuard[bytes]:
    """Return True if the value has the form that this version writes, so that it can be decoded."""
    if value is None or len(value) < _OFFSET_AND_EPOCH.size + 2 + _TIME.size or value[0]:
        return False
    start, end = _metadata_of(value)
    after = end + _TIME.size
    if start < end and not value[start:end].isascii():
        return False
    if value[1] == _STATIC:
        return len(value) == after and value[start - 2] < 0x80
    if value[1] != _FLEXIBLE or start > end or value[start - 1] > 0x7F:
        return False
    if len(value) == after + 1:
        return value[after] == 0
    return len(value) == after + 19 and value[after : after + 3] == _TOPIC_ID_FIELD


def _metadata_of(value: bytes) -> tuple[int, int]:
    """Return the start and the end of the metadata in a value of version 3 or 4."""
    at = _OFFSET_AND_EPOCH.size
    if value[1] == _STATIC:
        return at + 2, at + 2 + (value[at] << 8) + value[at + 1]
    return at + 1, at + value[at]

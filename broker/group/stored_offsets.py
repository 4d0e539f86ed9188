"""The offsets of the groups of one partition of `__consumer_offsets`, in memory.

An offset is *stored* once its record is durable. An offset that was sent in a transaction is
*pending* from the moment it is in the log, and invisible. The transaction's marker makes it stored
or removes it (KIP-447). If two requests store an offset for the same partition, the later record in
the log wins, not the later marker, as in Kafka: 70 in a transaction, then a plain 80, then the
commit leaves 80. Therefore every offset here has the place of its record. After a restart the same
functions, called in log order, rebuild the same offsets.

Everything is synchronous. The caller decides what is durable.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Final
from uuid import UUID

from odradek.broker.group.store import OffsetEntry, PartitionOffset, StoredOffset
from odradek.broker.values.topic_partition import TopicPartition
from odradek.late import dataclass
from odradek.protocol.schema import ZERO_UUID

OFFSET_BASE_BYTES: Final = 256
"""The size that an offset counts for, without its metadata, in memory limits."""


Placed = tuple[StoredOffset, int]
"""An offset and the place of its record in the log."""


@dataclass(frozen=True, slots=True)
class PendingOffset:
    """An offset of a transaction without a marker yet."""

    group_id: str
    partition: TopicPartition
    stored: StoredOffset
    log_offset: int


GroupOffsets = dict[TopicPartition, Placed]


def cost(stored: StoredOffset) -> int:
    """Return roughly the memory that an offset takes, in bytes."""
    return OFFSET_BASE_BYTES + len(stored.metadata)


@dataclass(slots=True)
class Offsets:
    size_bytes: int = 0
    _stored: dict[str, GroupOffsets] = field(default_factory=dict)
    _pending: dict[int, list[PendingOffset]] = field(default_factory=dict)
    """By producer id, in log order. A later one does not replace an earlier one: there may be a
    marker between them that is in the log and has not been applied yet."""
    _unstable: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    """The number of pending offsets of each partition, by group."""

    # what is there

    def find(self, group_id: str, partition: TopicPartition) -> StoredOffset | None:
        placed = self._stored.get(group_id, {}).get(partition)
        return None if placed is None else placed[0]

    def all_stored(self, group_id: str) -> Iterator[tuple[TopicPartition, StoredOffset]]:
        for partition, (stored, _) in self._stored.get(group_id, {}).items():
            yield partition, stored

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Return True if an open transaction may change the offset."""
        return partition in self._unstable.get(group_id, {})

    def all_unstable(self, group_id: str) -> Iterable[TopicPartition]:
        return self._unstable.get(group_id, {}).keys()

    def count(self, group_id: str) -> int:
        """Return an upper limit of the number of offsets of a group, stored or pending."""
        return len(self._stored.get(group_id, {})) + len(self._unstable.get(group_id, {}))

    def of_group(self, group_id: str) -> "Offsets":
        """Return a copy of one group's offsets."""
        stored, unstable = self._stored.get(group_id), self._unstable.get(group_id)
        return Offsets(
            _stored={} if stored is None else {group_id: stored.copy()},
            _unstable={} if unstable is None else {group_id: unstable.copy()},
        )

    def has_any(self, group_id: str) -> bool:
        """Return True if the group has an offset, stored or pending."""
        return group_id in self._stored or group_id in self._unstable

    def group_ids(self) -> list[str]:
        """Return all groups with an offset, stored or pending."""
        return list({**self._stored, **self._unstable})

    def partitions_of_topic(self, topic: str, topic_id: UUID) -> list[tuple[str, TopicPartition]]:
        """Return all groups and partitions with an offset, stored or pending, of one topic.

        Offsets of a topic of the same name and another id are left out, and so is what is stored
        for a partition with a pending one. Offsets without an id, from older brokers, count for
        every topic of the name.
        """
        ids = (ZERO_UUID, topic_id)
        found = {
            (group_id, partition): None
            for group_id, partitions in self._stored.items()
            for partition, (stored, _) in partitions.items()
            if partition.topic == topic and stored.topic_id in ids
        }
        others = set()
        for all_pending in self._pending.values():
            for pending in all_pending:
                if pending.partition.topic == topic:
                    place = pending.group_id, pending.partition
                    if pending.stored.topic_id in ids:
                        found[place] = None
                    else:
                        others.add(place)
        return [place for place in found if place not in others]

    # what happens

    def apply(self, entry: OffsetEntry, log_offset: int) -> None:
        """Apply a record outside a transaction, unless a later one was applied."""
        if entry.stored is None:
            self._remove(entry.group_id, entry.partition, log_offset)
        else:
            self.store(entry.group_id, ((entry.partition, entry.stored),), log_offset)

    def store(self, group_id: str, offsets: Iterable[PartitionOffset], base_offset: int) -> None:
        """Store offsets whose records are one behind the other in the log, as `apply` does."""
        group = self._stored.setdefault(group_id, {})
        for log_offset, (partition, stored) in enumerate(offsets, base_offset):
            self._store(group, partition, (stored, log_offset))

    def add_pending(
        self, producer_id: int, group_id: str, offsets: Iterable[PartitionOffset], base_offset: int
    ) -> None:
        """Add offsets of an open transaction whose records are one behind the other in the log."""
        unstable = self._unstable.setdefault(group_id, {})
        all_pending = self._pending.setdefault(producer_id, [])
        for log_offset, (partition, stored) in enumerate(offsets, base_offset):
            unstable[partition] = unstable.get(partition, 0) + 1
            self.size_bytes += cost(stored)
            all_pending.append(PendingOffset(group_id, partition, stored, log_offset))

    def end_transaction(self, producer_id: int, *, committed: bool, marker_offset: int) -> None:
        """Apply a marker: store or remove what the producer has pending."""
        # Only what stands before the marker in the log: offsets of the producer's next transaction
        # may be pending already, while the marker is being made durable (KAFKA-15784).

        def is_decided(pending: PendingOffset) -> bool:
            return pending.log_offset < marker_offset

        for pending in self._take_pending(producer_id, is_decided):
            if committed:
                group = self._stored.setdefault(pending.group_id, {})
                self._store(group, pending.partition, (pending.stored, pending.log_offset))

    def _store(self, group: GroupOffsets, partition: TopicPartition, placed: Placed) -> None:
        stored, log_offset = placed
        previous = group.get(partition)
        if previous is None:
            self.size_bytes += cost(stored)
        else:
            stored_before, log_offset_before = previous
            if log_offset_before > log_offset:
                return
            if stored_before.metadata is not stored.metadata:
                self.size_bytes += cost(stored) - cost(stored_before)
        group[partition] = placed

    def _remove(self, group_id: str, partition: TopicPartition, log_offset: int) -> None:
        """Apply a tombstone."""
        # It also removes what is pending before it. Otherwise the commit of an open transaction
        # would bring back an offset of a group or topic that was deleted.
        group = self._stored.get(group_id, {})
        placed = group.get(partition)
        if placed is not None:
            del group[partition]
            self.size_bytes -= cost(placed[0])
            if not group:
                del self._stored[group_id]
        if self.is_unstable(group_id, partition):
            for producer_id in list(self._pending):
                self._take_pending(
                    producer_id,
                    lambda pending: (
                        (pending.group_id, pending.partition) == (group_id, partition)
                        and pending.log_offset < log_offset
                    ),
                )

    def _take_pending(
        self, producer_id: int, is_taken: Callable[[PendingOffset], bool]
    ) -> list[PendingOffset]:
        """Remove and return the pending offsets of a producer for which `is_taken` is True."""
        pending = self._pending.get(producer_id, [])
        taken = [each for each in pending if is_taken(each)]
        kept = [each for each in pending if not is_taken(each)]
        for each in taken:
            unstable = self._unstable[each.group_id]
            unstable[each.partition] -= 1
            if not unstable[each.partition]:
                del unstable[each.partition]
            if not unstable:
                del self._unstable[each.group_id]
            self.size_bytes -= cost(each.stored)
        if kept:
            self._pending[producer_id] = kept
        else:
            self._pending.pop(producer_id, None)
        return taken

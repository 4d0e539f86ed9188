"""The offsets of the groups of one partition of `__consumer_offsets`, in memory.

An offset is *stored* once its record is durable. An offset that was sent in a transaction is
*pending* from the moment it is in the log, and nobody sees it; the transaction's marker makes it
stored or makes it vanish (KIP-447). Where two writers meet, the later record in the log wins, not
the later marker: 70 in a transaction, then a plain 80, then the commit leaves 80. That is why every
offset here knows the place of its record. The same functions, called in log order, rebuild all this
after a restart.

Everything is synchronous; who calls it decides when something is durable.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from odradek.broker.group.store import OffsetEntry, StoredOffset
from odradek.broker.topic_partition import TopicPartition

OFFSET_BASE_BYTES: Final = 256
"""What an offset is counted as, besides its metadata, where memory is bounded."""


@dataclass(frozen=True, slots=True)
class Placed:
    """An offset and the place of its record in the log."""

    stored: StoredOffset
    log_offset: int


@dataclass(frozen=True, slots=True)
class Pending:
    """An offset of a transaction whose end is not known."""

    group_id: str
    partition: TopicPartition
    placed: Placed


GroupOffsets = dict[TopicPartition, Placed]


def cost(stored: StoredOffset) -> int:
    """What an offset takes of the memory that offsets may take, in bytes, roughly."""
    return OFFSET_BASE_BYTES + len(stored.metadata)


@dataclass(slots=True)
class Offsets:
    size_bytes: int = 0
    _stored: dict[str, GroupOffsets] = field(default_factory=dict)
    _pending: dict[int, list[Pending]] = field(default_factory=dict)
    """By producer id, in log order. All are kept: between two there may be a marker that is in the
    log already and has not been heard of."""
    _unstable: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    """By group: how many pending offsets there are for a partition."""

    # what is there

    def stored(self, group_id: str, partition: TopicPartition) -> StoredOffset | None:
        placed = self._stored.get(group_id, {}).get(partition)
        return None if placed is None else placed.stored

    def all_stored(self, group_id: str) -> Iterator[tuple[TopicPartition, StoredOffset]]:
        for partition, placed in self._stored.get(group_id, {}).items():
            yield partition, placed.stored

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction may change it."""
        return partition in self._unstable.get(group_id, {})

    def all_unstable(self, group_id: str) -> Iterable[TopicPartition]:
        return self._unstable.get(group_id, {}).keys()

    def count(self, group_id: str) -> int:
        """Return how many offsets a group has, stored or pending, at most."""
        return len(self._stored.get(group_id, {})) + len(self._unstable.get(group_id, {}))

    def of_group(self, group_id: str) -> "Offsets":
        """Return one group's offsets as they are now, which do not change any more."""
        stored, unstable = self._stored.get(group_id), self._unstable.get(group_id)
        return Offsets(
            _stored={} if stored is None else {group_id: stored.copy()},
            _unstable={} if unstable is None else {group_id: unstable.copy()},
        )

    def has_any(self, group_id: str) -> bool:
        """Whether the group has an offset, stored or pending."""
        return group_id in self._stored or group_id in self._unstable

    def group_ids(self) -> list[str]:
        """Every group with an offset, stored or pending."""
        return list({**self._stored, **self._unstable})

    def partitions_of_topic(self, topic: str) -> list[tuple[str, TopicPartition]]:
        """Every group and partition with an offset, stored or pending, of `topic`."""
        found = {
            (group_id, partition): None
            for groups in (self._stored, self._unstable)
            for group_id, partitions in groups.items()
            for partition in partitions
            if partition.topic == topic
        }
        return list(found)

    # what happens

    def apply(self, entry: OffsetEntry, log_offset: int) -> None:
        """A record outside a transaction. Later than others in the log, it is later here."""
        if entry.stored is None:
            self._remove(entry.group_id, entry.partition, log_offset)
        else:
            self._store(entry.group_id, entry.partition, Placed(entry.stored, log_offset))

    def add_pending(self, producer_id: int, entry: OffsetEntry, log_offset: int) -> None:
        """A record in a transaction that is open."""
        if entry.stored is None:
            return
        unstable = self._unstable.setdefault(entry.group_id, {})
        unstable[entry.partition] = unstable.get(entry.partition, 0) + 1
        self.size_bytes += cost(entry.stored)
        pending = Pending(entry.group_id, entry.partition, Placed(entry.stored, log_offset))
        self._pending.setdefault(producer_id, []).append(pending)

    def end_transaction(self, producer_id: int, *, committed: bool, marker_offset: int) -> None:
        """A marker at `marker_offset` decides what the producer has pending before it."""

        def is_decided(pending: Pending) -> bool:
            return pending.placed.log_offset < marker_offset

        for pending in self._take_pending(producer_id, is_decided):
            if committed:
                self._store(pending.group_id, pending.partition, pending.placed)

    def _store(self, group_id: str, partition: TopicPartition, placed: Placed) -> None:
        group = self._stored.setdefault(group_id, {})
        previous = group.get(partition)
        if previous is not None:
            if previous.log_offset > placed.log_offset:
                return
            self.size_bytes -= cost(previous.stored)
        group[partition] = placed
        self.size_bytes += cost(placed.stored)

    def _remove(self, group_id: str, partition: TopicPartition, log_offset: int) -> None:
        """A tombstone also takes what is pending before it: a later commit does not revive it."""
        group = self._stored.get(group_id, {})
        placed = group.get(partition)
        if placed is not None:
            del group[partition]
            self.size_bytes -= cost(placed.stored)
            if not group:
                del self._stored[group_id]
        if self.is_unstable(group_id, partition):
            for producer_id in list(self._pending):
                self._take_pending(
                    producer_id,
                    lambda pending: (
                        (pending.group_id, pending.partition) == (group_id, partition)
                        and pending.placed.log_offset < log_offset
                    ),
                )

    def _take_pending(self, producer_id: int, is_taken: Callable[[Pending], bool]) -> list[Pending]:
        """Remove those of a producer's pending offsets that are chosen."""
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
            self.size_bytes -= cost(each.placed.stored)
        if kept:
            self._pending[producer_id] = kept
        else:
            self._pending.pop(producer_id, None)
        return taken

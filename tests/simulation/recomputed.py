"""What a partition must know of its producers and transactions: computed again from its log."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from odradek.broker.partitions.partition import Partition
from odradek.broker.storage.aborted import AbortedEntry, AbortedIndex
from odradek.broker.storage.files import ABORTED_INDEX, OFFSET_INDEX, TIME_INDEX
from odradek.broker.storage.index import OffsetIndex, TimeIndex
from odradek.broker.storage.producer_entry import WINDOW
from odradek.broker.storage.segment import Segment
from odradek.broker.storage.segment_indexes import OffsetsAndTimes
from odradek.broker.values.topic_partition import TopicPartition
from tests.simulation.logs import Batch, Logs
from tests.simulation.machine import Machine


@dataclass(slots=True)
class Known:
    """One producer: its epoch, its open transaction, and the sequences of its last batches."""

    epoch: int = -1
    first_offset: int = -1
    coordinator_epoch: int = -1
    sequences: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """Last sequence and last offset of each."""

    def follows_from(self, logged: "Known") -> bool:
        """Return True if a log says this. A truncation may leave only the last of the batches."""
        mine, all_of_them = list(self.sequences), list(logged.sequences)
        return (
            (self.epoch, self.first_offset) == (logged.epoch, logged.first_offset)
            and self.coordinator_epoch == logged.coordinator_epoch
            and mine == all_of_them[len(all_of_them) - len(mine) :]
            and bool(mine) == bool(all_of_them)
        )


@dataclass(slots=True)
class Recomputed:
    """The producers and the aborted transactions of a log. More of the same log can follow."""

    read: list[Batch] = field(default_factory=list)
    producers: dict[int, Known] = field(default_factory=dict)
    aborted: list[AbortedEntry] = field(default_factory=list)

    def is_continued_by(self, batches: Sequence[Batch]) -> bool:
        """Return True if these batches begin with those that were read."""
        count = len(self.read)
        return count == 0 or (len(batches) >= count and batches[count - 1] is self.read[-1])

    def follow(self, batches: Sequence[Batch]) -> None:
        for batch in batches[len(self.read) :]:
            self.read.append(batch)
            if batch.header.has_producer:
                self._add(batch)

    def _add(self, batch: Batch) -> None:
        header = batch.header
        known = self.producers.setdefault(header.producer_id, Known())
        if header.producer_epoch != known.epoch:
            known.epoch = header.producer_epoch
            known.sequences.clear()
        if batch.marker is None:
            known.sequences.append((header.last_sequence, header.last_offset))
            if header.is_transactional and known.first_offset < 0:
                known.first_offset = header.base_offset
            return
        known.coordinator_epoch = max(known.coordinator_epoch, batch.marker.coordinator_epoch)
        first, known.first_offset = known.first_offset, -1
        if first >= 0 and not batch.marker.committed:
            still_open = [k.first_offset for k in self.producers.values() if k.first_offset >= 0]
            stable = min(still_open, default=header.next_offset)
            ended = AbortedEntry(header.producer_id, first, header.base_offset, stable)
            self.aborted.append(ended)


class Recomputation:
    """Computes the producers of partitions again, each log from where it was read to before."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._of: dict[tuple[int, TopicPartition], Recomputed] = {}

    def wrong(self, machine: Machine, partition: Partition) -> Iterator[str]:
        """Yield what a broker knows of producers and transactions and its log does not say."""
        where = TopicPartition(partition.topic, partition.index)
        batches = self._logs.batches(machine, where)
        log = self._of.get((machine.node_id, where))
        if log is None or not log.is_continued_by(batches):
            log = self._of[machine.node_id, where] = Recomputed()
        log.follow(batches)
        known = {
            each.producer_id: Known(
                each.epoch,
                each.first_offset,
                each.coordinator_epoch,
                deque(((b.last_sequence, b.last_offset) for b in each.batches), maxlen=WINDOW),
            )
            for each in partition.log.producers.entries.values()
        }
        for producer in sorted({*known, *log.producers}):
            mine, logged = known.get(producer), log.producers.get(producer)
            if mine is None or logged is None or not mine.follows_from(logged):
                yield f"producers: {partition!r} knows {producer} as {mine}, its log has {logged}"
        open_here = [(e.first_offset, e.producer_id) for e in partition.open_transactions()]
        opened = [(k.first_offset, producer) for producer, k in log.producers.items()]
        if open_here != sorted(each for each in opened if each[0] >= 0):
            yield f"transactions: {partition!r} knows as open {open_here}, its log has {opened}"
        aborted = _aborted(machine, partition)
        if aborted is not None and aborted != log.aborted:
            yield f"aborted: {partition!r} knows {aborted}, its log has {log.aborted}"


def _aborted(machine: Machine, partition: Partition) -> list[AbortedEntry] | None:
    """Return the index of aborted transactions; None while a part of it is damaged."""
    found: list[AbortedEntry] = []
    for segment in partition.log.segments:
        index = segment.indexes.aborted
        if index is None:
            index = _aborted_on_disk(machine, segment)
        if index is None:
            return None
        found += index.entries
    return found


def _aborted_on_disk(machine: Machine, segment: Segment) -> AbortedIndex | None:
    path = segment.path(ABORTED_INDEX)
    return AbortedIndex.decode(_bytes(machine, path, segment.indexes.saved_bytes(ABORTED_INDEX)))


def wrong_indexes(machine: Machine, partition: Partition, logs: Logs) -> Iterator[str]:
    """Yield each entry of an offset or time index that its segment does not bear out."""
    where = TopicPartition(partition.topic, partition.index)
    batches = logs.segments(machine, where)
    for segment in partition.log.segments:
        positions: dict[int, int] = {}
        largest: dict[int, int] = {}
        timestamp = -1
        for batch in batches.get(segment.base_offset, ()):
            positions[batch.header.last_offset] = batch.position
            if batch.header.max_timestamp > timestamp:
                timestamp = batch.header.max_timestamp
                largest[batch.header.last_offset] = timestamp
        offsets, times = _indexes(machine, segment)
        for offset, position in offsets:
            if positions.get(offset) != position:
                yield f"index: {partition!r} has offset {offset} at {position} of its segment"
        for timestamp, offset in times:
            if largest.get(offset) != timestamp:
                yield f"time index: {partition!r} has {timestamp} at offset {offset}"


def _indexes(machine: Machine, segment: Segment) -> OffsetsAndTimes:
    if segment.indexes.loaded is not None:
        return segment.indexes.loaded
    base_offset = segment.base_offset
    offsets = _bytes(machine, segment.path(OFFSET_INDEX), segment.indexes.saved_bytes(OFFSET_INDEX))
    times = _bytes(machine, segment.path(TIME_INDEX), segment.indexes.saved_bytes(TIME_INDEX))
    return OffsetIndex(base_offset, offsets), TimeIndex(base_offset, times)


def _bytes(machine: Machine, path: str, size: int) -> bytes:
    return machine.disk.bytes_of(path)[:size] if size else b""

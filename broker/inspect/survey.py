"""Survey a partition's directory without the metadata store, for rebuilding the store.

The survey changes nothing and trusts nothing: it skips damaged parts and names them. Numbers that
must never be given out again (producer ids, leader and coordinator epochs) are the largest in any
batch, marker, snapshot, checkpoint or transaction state.
"""

import os.path
from collections.abc import Sequence
from dataclasses import field
from typing import Final
from uuid import UUID

from odradek.broker.inspect.found_transactions import states_in
from odradek.broker.inspect.inspection import FoundBatch, Rest, batches_in
from odradek.broker.storage.checkpoint import CHECKPOINT, decode_checkpoint
from odradek.broker.storage.disk import SystemDisk, read_only
from odradek.broker.storage.files import LOG, SNAPSHOT, file_path, offsets_in
from odradek.broker.storage.identity import IDENTITY, Identity, decode_identity
from odradek.broker.storage.producer_entry import ProducerEntry
from odradek.broker.storage.snapshot import decode_snapshot
from odradek.broker.values.member_ids import number_of
from odradek.broker.values.topic_partition import TopicPartition, partition_of
from odradek.late import dataclass
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC

EPOCH_MAX: Final = 1 << 30
"""A higher leader epoch is a flipped bit, because the CRC of a batch does not cover it."""


@dataclass(slots=True)
class Surveyed:
    """The survey of the directory of `where`. -1 stands for an unknown number."""

    where: TopicPartition
    identity: Identity | None = None
    topic_id: UUID | None = None
    size_bytes: int = 0
    has_segment: bool = True
    """False if the log is lost, and only other files are left."""
    max_producer_number: int = -1
    max_epoch: int = -1
    is_compacted: bool = False
    """True if offsets are missing, as after compaction."""
    problems: list[str] = field(default_factory=list)

    def see_producer(self, producer_id: int, coordinator_epoch: int) -> None:
        self.max_producer_number = max(self.max_producer_number, number_of(producer_id))
        self.see_epoch(coordinator_epoch)

    def see_epoch(self, epoch: int) -> None:
        if epoch <= EPOCH_MAX:
            self.max_epoch = max(self.max_epoch, epoch)


def survey_all(directory: str) -> tuple[list[Surveyed], list[str]]:
    """Survey a data directory: its partitions, and its other directories. Raises OSError."""
    found: list[Surveyed] = []
    others: list[str] = []
    for name in SystemDisk().listdir(directory):
        path = f"{directory}/{name}"
        if not os.path.isdir(path):
            continue
        where = partition_of(name)
        if where is None or not _is_partition(path):
            others.append(name)
        else:
            found.append(survey_partition(path, where))
    return sorted(found, key=lambda partition: partition.where), others


def _is_partition(path: str) -> bool:
    names = SystemDisk().listdir(path)
    return bool({IDENTITY, CHECKPOINT}.intersection(names) or offsets_in(names, LOG))


def survey_partition(path: str, where: TopicPartition) -> Surveyed:
    """Survey the directory of one partition. Raises OSError."""
    found = Surveyed(where)
    names = SystemDisk().listdir(path)
    if IDENTITY in names:
        found.identity = decode_identity(bytes(read_only(f"{path}/{IDENTITY}")))
        if found.identity is None:
            found.problems.append(f"{path}/{IDENTITY} is damaged")
        else:
            found.topic_id = found.identity.topic_id
    if CHECKPOINT in names:
        _see_checkpoint(found, path)
    for offset in offsets_in(names, SNAPSHOT):
        entries = decode_snapshot(bytes(read_only(file_path(path, offset, SNAPSHOT))), 0)
        _see_producers(found, entries or ())
    next_offset = -1
    found.has_segment = bool(offsets_in(names, LOG))
    for base in offsets_in(names, LOG):
        next_offset = _see_segment(found, file_path(path, base, LOG), next_offset)
    return found


def _see_checkpoint(found: Surveyed, path: str) -> None:
    checkpoint = decode_checkpoint(bytes(read_only(f"{path}/{CHECKPOINT}")))
    if checkpoint is None:
        found.problems.append(f"{path}/{CHECKPOINT} is damaged")
        return
    if not checkpoint.is_of(found.where, found.topic_id or checkpoint.topic_id):
        found.problems.append(f"{path}/{CHECKPOINT} is that of {checkpoint.owner}")
        return
    found.topic_id = found.topic_id or checkpoint.topic_id
    found.is_compacted |= checkpoint.clean_offset > checkpoint.log_start_offset
    for start in checkpoint.epochs:
        found.see_epoch(start.epoch)
    _see_producers(found, checkpoint.producers)


def _see_producers(found: Surveyed, entries: Sequence[ProducerEntry]) -> None:
    for entry in entries:
        found.see_producer(entry.producer_id, entry.coordinator_epoch)


def _see_segment(found: Surveyed, path: str, next_offset: int) -> int:
    """Note a segment's batches, and return the offset behind them."""
    data = read_only(path)
    found.size_bytes += len(data)
    for batch in batches_in(data):
        if isinstance(batch, Rest):
            found.problems.append(f"{path}: the last {batch.size_bytes} bytes are no batch")
            continue
        if batch.problem is not None:
            found.problems.append(f"{path}: {batch.problem} at byte {batch.position}")
            continue
        header = batch.header
        found.is_compacted |= -1 < next_offset < header.base_offset or batch.lost_count > 0
        next_offset = header.next_offset
        found.see_epoch(header.partition_leader_epoch)
        _see_batch(found, batch)
    return next_offset


def _see_batch(found: Surveyed, batch: FoundBatch) -> None:
    marker = batch.marker()
    found.see_producer(batch.header.producer_id, -1 if marker is None else marker.coordinator_epoch)
    if found.where.topic == TRANSACTION_STATE_TOPIC:
        for _, value in states_in(batch):
            if value is not None:
                for producer_id in (
                    value.producer_id,
                    value.previous_producer_id,
                    value.next_producer_id,
                ):
                    found.see_producer(producer_id, -1)

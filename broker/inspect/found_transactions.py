"""The outcome of each transaction in a partition's log, and its transactional id.

The log itself has producer ids, offsets and markers. If `__transaction_state` is in the same data
directory, its history adds the transactional id, the client, and the cause of an abort. A compacted
history adds less; nothing depends on a complete one.
"""

import os.path
from collections.abc import Iterator
from dataclasses import field
from typing import Final

from odradek.broker.inspect.inspection import (
    TRANSACTION_STATES,
    FoundBatch,
    Rest,
    batches_in,
    state_name,
)
from odradek.broker.inspect.log_files import content_of, segments_in
from odradek.broker.storage.disk import SystemDisk
from odradek.late import dataclass
from odradek.protocol.errors import KafkaError, ProtocolError
from odradek.protocol.state_topics import (
    TRANSACTION_STATE_TOPIC,
    TransactionLogKey,
    TransactionLogValue,
    decode_transaction_state_key,
    decode_value,
)

OPEN: Final = "open"
UNKNOWN: Final = "unknown"
COMPACTED: Final = "compacted away"
"""The last batch of a producer stays without records, and its marker may be removed before it."""
ABORTING: Final = (
    TRANSACTION_STATES.index("PrepareAbort"),
    TRANSACTION_STATES.index("CompleteAbort"),
)
ALL_STATES: Final = tuple(range(len(TRANSACTION_STATES)))
ONGOING: Final = TRANSACTION_STATES.index("Ongoing")


@dataclass(slots=True)
class FoundTransaction:
    """A transaction in one partition, as the log shows it. Times are the batches', in ms."""

    producer_id: int
    producer_epoch: int
    first_offset: int | None
    """None if it began before the inspected batches, or had no records here."""
    last_offset: int
    record_count: int = 0
    outcome: str = OPEN
    """open, committed, aborted, ended (the marker has lost its contents), compacted away, unknown
    (the segment behind it was deleted before it was read)."""
    began_ms: int | None = None
    marker_offset: int | None = None
    marker_epoch: int | None = None
    marker_ms: int | None = None


@dataclass(slots=True)
class FoundTransactions:
    """The transactions of one partition. `see` takes its batches in order."""

    open: dict[int, FoundTransaction] = field(default_factory=dict)
    ended: list[FoundTransaction] = field(default_factory=list)
    log_end_offset: int = 0

    def see(self, batch: FoundBatch) -> None:
        header = batch.header
        self.log_end_offset = header.next_offset
        if not header.is_transactional:
            return
        found = self.open.get(header.producer_id)
        if found is None:
            found = self.open[header.producer_id] = FoundTransaction(
                header.producer_id, header.producer_epoch, None, header.last_offset
            )
        found.last_offset = header.last_offset
        if header.is_control:
            self._end(found, batch)
        else:
            self._go_on(found, batch)

    def note_gap(self) -> None:
        """Note that the next segment was deleted: what is open may have ended in it."""
        for found in self.open.values():
            found.outcome = UNKNOWN
        self.ended += self.open.values()
        self.open.clear()

    def _go_on(self, found: FoundTransaction, batch: FoundBatch) -> None:
        if found.first_offset is None:
            found.first_offset = batch.header.base_offset
            if batch.delete_horizon_ms is None:
                found.began_ms = batch.header.base_timestamp
        found.record_count += batch.header.record_count

    def _end(self, found: FoundTransaction, batch: FoundBatch) -> None:
        marker = batch.marker()
        if marker is None:
            found.outcome = "ended"
        else:
            found.outcome = "committed" if marker.committed else "aborted"
        found.marker_offset = batch.header.base_offset
        found.marker_epoch = batch.header.producer_epoch
        found.marker_ms = batch.header.max_timestamp
        self.ended.append(self.open.pop(found.producer_id))

    def all(self) -> list[FoundTransaction]:
        """Return the ended transactions in the order of their markers, and then the open ones."""
        for found in self.open.values():
            if not found.record_count:
                found.outcome = COMPACTED
        return [*self.ended, *self.open.values()]

    def pinning(self) -> FoundTransaction | None:
        """Return the open transaction that began first: it holds the last stable offset."""
        return min(
            (found for found in self.all() if found.outcome == OPEN),
            key=lambda found: found.first_offset or 0,
            default=None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionOwner:
    """The owner of a producer id, as far as the history of its transactional id shows it."""

    transactional_id: str
    state: str
    """The newest state that is stored for the id."""
    client_id: str | None = None
    client_host: str | None = None
    cause: str | None = None
    """The cause of the abort, if the producer did not request it."""
    by_client_id: str | None = None
    by_client_host: str | None = None
    timeout_ms: int = -1


class History:
    """The states of all transactional ids that a data directory still has."""

    def __init__(self) -> None:
        self._newest: dict[str, TransactionLogValue] = {}
        self._ids: dict[int, str] = {}
        self._by_epoch: dict[tuple[int, int], list[TransactionLogValue]] = {}

    @classmethod
    def read(cls, data_dir: str) -> "History":
        """Read the history. It is empty without a state topic. Damaged batches are skipped."""
        history = cls()
        for transactional_id, value in _stored_in(data_dir):
            if value is None:
                history._newest.pop(transactional_id, None)
                continue
            history._newest[transactional_id] = value
            history._ids[value.producer_id] = transactional_id
            place = (value.producer_id, value.producer_epoch)
            history._by_epoch.setdefault(place, []).append(value)
        return history

    def forgot(self, found: FoundTransaction, partition: str) -> bool:
        """Return True if no transactional id will end an open transaction in a partition."""
        newest = self._newest.get(self._ids.get(found.producer_id, ""))
        return bool(self._ids) and (newest is None or partition not in _partitions(newest))

    def owner_of(self, found: FoundTransaction) -> TransactionOwner | None:
        transactional_id = self._ids.get(found.producer_id)
        if transactional_id is None:
            return None
        newest = self._newest.get(transactional_id)
        of_epoch = self._by_epoch.get((found.producer_id, found.producer_epoch), [])
        of_marker = self._by_epoch.get((found.producer_id, found.marker_epoch or 0), [])
        began = _last(of_epoch, ONGOING) or _last(of_epoch, *ALL_STATES)
        aborted = _last(of_marker, *ABORTING) if found.outcome == "aborted" else None
        if aborted is not None and not _is_by_others(began, aborted):
            aborted = None
        return TransactionOwner(
            transactional_id=transactional_id,
            state="forgotten" if newest is None else state_name(newest.transaction_status),
            client_id=began.client_id if began else None,
            client_host=began.client_host if began else None,
            cause=aborted.epoch_bump_cause if aborted else None,
            by_client_id=aborted.client_id if aborted else None,
            by_client_host=aborted.client_host if aborted else None,
            timeout_ms=began.transaction_timeout_ms if began else -1,
        )


def _is_by_others(began: TransactionLogValue | None, aborted: TransactionLogValue) -> bool:
    """Return True if an epoch bump with a stored cause led to the abort."""
    before_ms = began.epoch_bump_timestamp_ms if began else -1
    return aborted.epoch_bump_cause is not None and before_ms != aborted.epoch_bump_timestamp_ms


def _last(values: list[TransactionLogValue], *states: int) -> TransactionLogValue | None:
    """Return the newest value in one of these states."""
    return next((value for value in reversed(values) if value.transaction_status in states), None)


def _partitions(value: TransactionLogValue) -> Iterator[str]:
    for topic in value.transaction_partitions or ():
        for index in topic.partition_ids:
            yield f"{topic.topic}-{index}"


def _stored_in(data_dir: str) -> Iterator[tuple[str, TransactionLogValue | None]]:
    """Yield the records of the state topic's partitions, in the order of each partition."""
    disk = SystemDisk()
    prefix = f"{TRANSACTION_STATE_TOPIC}-"
    for name in sorted(disk.listdir(data_dir)):
        directory = f"{data_dir}/{name}"
        if not name.startswith(prefix) or not os.path.isdir(directory):
            continue
        for segment in segments_in(directory):
            for batch in batches_in(content_of(segment) or memoryview(b"")):
                if not isinstance(batch, Rest) and batch.problem is None:
                    yield from states_in(batch)


def states_in(batch: FoundBatch) -> Iterator[tuple[str, TransactionLogValue | None]]:
    """Yield the states in a batch of `__transaction_state`, up to the first unreadable record."""
    if batch.header.is_control:
        return
    try:
        for record in batch.records():
            key = decode_transaction_state_key(record.key)
            if isinstance(key, TransactionLogKey):
                value = record.value
                yield (
                    key.transactional_id,
                    None if value is None else decode_value(TransactionLogValue, value),
                )
    except (KafkaError, ProtocolError):
        return  # the dump of that partition shows the error

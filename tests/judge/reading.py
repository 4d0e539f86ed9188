"""What is in a broker's logs, read through Fetch: partitions, and the logs of the coordinators."""

import time
from collections.abc import Iterator
from typing import Final

from odradek.protocol.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from odradek.protocol.apis.offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.batch import BatchHeader, iter_batches
from odradek.protocol.control import read_marker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, decode_batch
from odradek.protocol.state_topics import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionLogKey,
    TransactionLogValue,
    decode_consumer_offsets_key,
    decode_transaction_state_key,
    decode_value,
    state_partition,
)
from tests.judge.line import Line
from tests.judge.names import Names

BY_NAME: Final = 12
"""The last version of Fetch that names topics by name."""
STATE_PARTITIONS: Final = 50
MAX_BYTES: Final = 1 << 20
STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
)
SHOWN_MAX: Final = 20
"""The number of offsets of a batch that are shown; the rest is counted."""
SETTLE_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.001


class NotSettled(Exception):
    """A decided transaction got no Complete* in time."""


def fetch(
    line: Line, topic: str, partition: int, offset: int, *, committed: bool = False, version: int
) -> PartitionData:
    """One partition's answer, at once."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=MAX_BYTES)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=MAX_BYTES,
        isolation_level=int(committed),
        topics=(FetchTopic(topic=topic, partitions=(wanted,)),),
    )
    answer: PartitionData = line.ask(FETCH, version, request).responses[0].partitions[0]
    return answer


def list_offset(
    line: Line, topic: str, partition: int, timestamp: int, *, committed: bool = False
) -> tuple[int, int]:
    """An error code and an offset; `timestamp` -1 asks for the end, -2 for the beginning."""
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=(ListOffsetsTopic(name=topic, partitions=(wanted,)),),
    )
    answer = line.ask(LIST_OFFSETS, 6, request).topics[0].partitions[0]
    return answer.error_code, answer.offset


def read_log(
    line: Line, topic: str, partition: int, from_offset: int | None = None
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield every batch of a partition from an offset on, aborted ones too."""
    offset = list_offset(line, topic, partition, -2)[1] if from_offset is None else from_offset
    while True:
        answer = fetch(line, topic, partition, offset, version=BY_NAME)
        following = offset
        for header, batch in iter_batches(answer.records or b""):
            following = header.next_offset
            yield header, batch
        if answer.error_code != ErrorCode.NONE or following == offset:
            return
        offset = following


def describe_batch(names: Names, header: BatchHeader, batch: memoryview) -> str:
    """A batch in a line: offsets, whose, and its values or the marker that it is."""
    where = f"{header.base_offset}"
    if header.last_offset != header.base_offset:
        where += f"..{header.last_offset}"
    said = [where]
    if header.producer_id != -1 or header.producer_epoch != -1:
        said.append(names.identity(header.producer_id, header.producer_epoch))
    if header.is_control:
        marker = read_marker(batch)
        said.append("COMMIT" if marker.committed else "ABORT")
        said.append(f"by {names.coordinator_epoch(marker.coordinator_epoch)}")
        is_plain = header.is_transactional and header.base_sequence == -1
        return " ".join(said) + ("" if is_plain else f" attributes {header.attributes}")
    if header.base_sequence != -1:
        said.append(f"#{header.base_sequence}")
    if header.is_transactional:
        said.append("txn")
    values = [(record.value or b"null").decode() for record in decode_batch(batch)]
    return " ".join((*said, ",".join(values)))


class StateLog:
    """The records of some transactional ids in the coordinator's log, read as it grows."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._next: dict[int, int] = {}
        self._seen: dict[str, list[TransactionLogValue | None]] = {}

    def watch(self, transactional_id: str) -> None:
        """Take in what is written about this id from here on."""
        if transactional_id not in self._seen:
            self._seen[transactional_id] = []
            partition = state_partition(transactional_id, STATE_PARTITIONS)
            if partition not in self._next:
                _, end = list_offset(self._line, TRANSACTION_STATE_TOPIC, partition, -1)
                self._next[partition] = max(end, 0)

    def watch_from_planted(self, transactional_id: str) -> None:
        """Take in what is written about this id after the record that was planted for it."""
        partition = state_partition(transactional_id, STATE_PARTITIONS)
        self._next[partition] = 0
        self._seen[transactional_id] = []
        give_up = time.monotonic() + SETTLE_SECONDS
        while not self._seen[transactional_id]:
            assert time.monotonic() < give_up, f"{transactional_id} has not been planted"
            self._read(partition)
        self._seen[transactional_id].clear()

    @property
    def ids(self) -> list[str]:
        return list(self._seen)

    def records(self, transactional_id: str) -> list[TransactionLogValue | None]:
        """Everything written about the id since it is watched; None is a tombstone."""
        self.watch(transactional_id)
        self._read(state_partition(transactional_id, STATE_PARTITIONS))
        return self._seen[transactional_id]

    def settle(self, transactional_id: str, *, seconds: float = SETTLE_SECONDS) -> None:
        """Wait until nothing that was decided is unfinished. Raises NotSettled."""
        self.wait_for(transactional_id, "", seconds=seconds)

    def wait_for(
        self, transactional_id: str, state: str, *, count: int = 1, seconds: float = SETTLE_SECONDS
    ) -> None:
        """Wait until the id's last record has this state ("": none that is to be finished, "Dead":
        its tombstone) and there are at least `count` records. Raises NotSettled."""
        give_up = time.monotonic() + seconds
        while True:
            records = self.records(transactional_id)
            label = state_label(records[-1]) if records else ""
            is_there = label == state if state else not label.startswith("Prepare")
            if is_there and (not state or len(records) >= count):
                return
            if time.monotonic() > give_up:
                raise NotSettled(f"{transactional_id!r} is {label} after {seconds} s, not {state}")
            time.sleep(POLL_SECONDS)  # between two questions, not for luck

    def _read(self, partition: int) -> None:
        while True:
            offset = self._next[partition]
            answer = fetch(self._line, TRANSACTION_STATE_TOPIC, partition, offset, version=BY_NAME)
            for header, batch in iter_batches(answer.records or b""):
                if not header.is_control and header.next_offset > offset:
                    self._take_in(batch, offset)
                self._next[partition] = max(self._next[partition], header.next_offset)
            if self._next[partition] == offset:
                return

    def _take_in(self, batch: memoryview, from_offset: int) -> None:
        for record in decode_batch(batch):
            key = decode_transaction_state_key(record.key)
            if record.offset < from_offset or not isinstance(key, TransactionLogKey):
                continue
            seen = self._seen.get(key.transactional_id)
            if seen is not None:
                value = record.value
                seen.append(None if value is None else decode_value(TransactionLogValue, value))


class OffsetsLog:
    """The records of the offsets of some groups, from when they are watched on."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._from: dict[int, int] = {}

    def watch(self, group: str) -> None:
        partition = state_partition(group, STATE_PARTITIONS)
        if partition not in self._from:
            _, end = list_offset(self._line, CONSUMER_OFFSETS_TOPIC, partition, -1)
            self._from[partition] = max(end, 0)

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield what was written since to the partitions of the groups, which others share."""
        for partition, offset in self._from.items():
            yield from read_log(self._line, CONSUMER_OFFSETS_TOPIC, partition, offset)

    def describe(self, names: Names) -> Iterator[str]:
        """A line for each batch of the story's groups and each marker of its producers."""
        for header, batch in self.batches():
            said = describe_offsets(names, header, batch)
            if said is not None:
                yield said


def describe_offsets(names: Names, header: BatchHeader, batch: memoryview) -> str | None:
    """A batch of `__consumer_offsets` without its place, which others share; None for theirs."""
    whose = []
    if header.producer_id != -1:
        if not names.knows_producer(header.producer_id):
            return None
        whose = [names.identity(header.producer_id, header.producer_epoch)]
    if header.is_control:
        marker = read_marker(batch)
        by = names.coordinator_epoch(marker.coordinator_epoch)
        return " ".join((*whose, "COMMIT" if marker.committed else "ABORT", f"by {by}"))
    if header.is_transactional:
        whose.append("txn")
    records = [said for record in decode_batch(batch) if (said := _describe_offset(names, record))]
    more = [f"and {len(records) - SHOWN_MAX} more"] if len(records) > SHOWN_MAX else []
    return " ".join((*whose, *records[:SHOWN_MAX], *more)) if records else None


def _describe_offset(names: Names, record: Record) -> str | None:
    key = decode_consumer_offsets_key(record.key)
    if not isinstance(key, OffsetCommitKey) or not names.is_here(key.group):
        return None
    place = f"{names.here(key.group)} {names.here(key.topic)}-{key.partition}"
    if record.value is None:
        return f"{place} removed"
    value = decode_value(OffsetCommitValue, record.value)
    return f"{place}={value.offset}/{value.leader_epoch} {value.metadata!r}"


def state_label(value: TransactionLogValue | None) -> str:
    return "Dead" if value is None else STATES[value.transaction_status]


def describe_state(names: Names, value: TransactionLogValue | None) -> str:
    """A record of `__transaction_state` in Kafka's fields; ours are left out, and times."""
    if value is None:
        return "tombstone"
    said = [
        state_label(value),
        names.identity(value.producer_id, value.producer_epoch),
        f"{value.transaction_timeout_ms}ms",
        f"TV{value.client_transaction_version}",
    ]
    if value.previous_producer_id != -1:
        said.append(f"previous {names.producer(value.previous_producer_id)}")
    if value.next_producer_id != -1:
        said.append(f"next {names.producer(value.next_producer_id)}")
    if value.next_producer_epoch != -1:
        said.append(f"next epoch {value.next_producer_epoch}")
    said.append("started" if value.transaction_start_timestamp_ms > 0 else "idle")
    partitions = value.transaction_partitions
    if partitions is None:
        said.append("null")
    else:
        said += sorted(
            f"{names.here(p.topic)}-{index}" for p in partitions for index in p.partition_ids
        )
    return " ".join(said)

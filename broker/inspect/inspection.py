"""The batches of a log, and the contents of state topics' records, for display.

This module works on the bytes of files, of a running or stopped broker, and trusts none of them. It
reports incomplete and damaged batches, and continues with the good batches behind them.
"""

from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, Final
from uuid import UUID

from odradek.broker.group.consumer.consumer_group_records import VALUE_OF
from odradek.broker.storage.compaction.batches import delete_horizon
from odradek.late import dataclass
from odradek.protocol.batch import (
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    Codec,
    crc_is_good,
    read_header,
)
from odradek.protocol.control import Marker, read_marker
from odradek.protocol.errors import KafkaError, ProtocolError
from odradek.protocol.record import Record, decode_batch
from odradek.protocol.schema import Buffer
from odradek.protocol.state_topics import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    ConsumerGroupKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionLogKey,
    TransactionLogValue,
    UnknownKey,
    decode_consumer_offsets_key,
    decode_transaction_state_key,
    decode_value,
)

TRANSACTION_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
TEXT_MAX: Final = 120
DECODED_MAX_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FoundBatch:
    """A batch in a file. `problem` describes what is wrong with it."""

    position: int
    header: BatchHeader
    data: memoryview
    problem: str | None = None

    @property
    def codec(self) -> str:
        codec = self.header.codec
        return Codec(codec).name.lower() if codec in list(Codec) else f"codec {codec}"

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which on compaction may remove the batch's tombstones or marker."""
        return delete_horizon(self.header)

    @property
    def lost_count(self) -> int:
        """The number of its records that compaction has removed."""
        return max(self.header.last_offset_delta + 1 - self.header.record_count, 0)

    def marker(self) -> Marker | None:
        """Return the marker in the batch, None if there is none."""
        if not self.header.is_control or self.problem is not None:
            return None
        try:
            return read_marker(self.data)
        except (KafkaError, ProtocolError):
            return None

    def records(self) -> list[Record]:
        """Return the decoded records. Raises KafkaError, ProtocolError."""
        return decode_batch(self.data, max_bytes=DECODED_MAX_BYTES)


@dataclass(frozen=True, slots=True)
class Rest:
    """The bytes at the end of a file that are no batch."""

    position: int
    size_bytes: int


def batches_in(data: memoryview) -> Iterator[FoundBatch | Rest]:
    """Yield every batch of a `.log` file, and then the rest of the file if there is one."""
    position = 0
    while len(data) - position >= HEADER_BYTES:
        header = read_header(data, position)
        end = position + header.size_bytes
        if header.magic != MAGIC or header.size_bytes < HEADER_BYTES or end > len(data):
            break
        batch = data[position:end]
        problem = None if crc_is_good(batch, header) else "the CRC does not match"
        yield FoundBatch(position, header, batch, problem)
        position = end
    if position < len(data):
        yield Rest(position, len(data) - position)


def readable(data: Buffer | None) -> str:
    """Return bytes as text, or in hex if they are not printable, cut to `TEXT_MAX` characters."""
    if data is None:
        return "null"
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or (data and not text):
        text = bytes(data[:TEXT_MAX]).hex(" ", 4)
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."


def describe_record(record: Record, topic: str) -> dict[str, object]:
    """Describe a record, decoded if its topic is a state topic."""
    if topic == TRANSACTION_STATE_TOPIC and record.key is not None:
        return _describe_transaction(record)
    if topic == CONSUMER_OFFSETS_TOPIC and record.key is not None:
        return _describe_group(record)
    said: dict[str, object] = {"key": readable(record.key), "value": readable(record.value)}
    if record.headers:
        said["headers"] = {name: readable(value) for name, value in record.headers}
    return said


def _describe_transaction(record: Record) -> dict[str, object]:
    key = decode_transaction_state_key(record.key)
    if not isinstance(key, TransactionLogKey):
        return {"key": readable(record.key), "value": readable(record.value)}
    said: dict[str, object] = {"transactional_id": key.transactional_id}
    if record.value is None:
        return {**said, "removed": True}
    return said | describe_state(decode_value(TransactionLogValue, record.value))


def describe_state(value: TransactionLogValue) -> dict[str, object]:
    """Describe a state of a transactional id. Unset fields are left out. Times are in ms."""
    said: dict[str, object] = {
        "state": state_name(value.transaction_status),
        "producer_id": value.producer_id,
        "producer_epoch": value.producer_epoch,
        "timeout_ms": value.transaction_timeout_ms,
        "transaction_version": value.client_transaction_version,
    }
    said |= {
        name: number
        for name, number in (
            ("previous_producer_id", value.previous_producer_id),
            ("next_producer_id", value.next_producer_id),
            ("next_producer_epoch", value.next_producer_epoch),
            ("last_producer_epoch", value.last_producer_epoch),
            ("started_ms", value.transaction_start_timestamp_ms),
            ("updated_ms", value.transaction_last_update_timestamp_ms),
            ("epoch_bump_ms", value.epoch_bump_timestamp_ms),
        )
        if number >= 0
    }
    if value.transaction_partitions:
        said["partitions"] = [
            f"{entry.topic}-{index}"
            for entry in value.transaction_partitions
            for index in entry.partition_ids
        ]
    for name, text in (
        ("client_id", value.client_id),
        ("client_host", value.client_host),
        ("epoch_bump_cause", value.epoch_bump_cause),
    ):
        if text is not None:
            said[name] = text
    return said


def state_name(status: int) -> str:
    is_known = 0 <= status < len(TRANSACTION_STATES)
    return TRANSACTION_STATES[status] if is_known else f"state {status}"


def _describe_group(record: Record) -> dict[str, object]:
    assert record.key is not None
    key = decode_consumer_offsets_key(record.key)
    if isinstance(key, OffsetCommitKey):
        said: dict[str, object] = {"group": key.group, "partition": f"{key.topic}-{key.partition}"}
        if record.value is None:
            return {**said, "removed": True}
        offset = decode_value(OffsetCommitValue, record.value)
        said |= {"stored_offset": offset.offset, "stored_ms": offset.commit_timestamp}
        if offset.leader_epoch >= 0:
            said["leader_epoch"] = offset.leader_epoch
        if offset.metadata:
            said["metadata"] = offset.metadata
        return said
    if isinstance(key, GroupMetadataKey):
        if record.value is None:
            return {"group": key.group, "removed": True}
        group = decode_value(GroupMetadataValue, record.value)
        return {
            "group": key.group,
            "protocol_type": group.protocol_type,
            "protocol": group.protocol,
            "generation": group.generation,
            "leader": group.leader,
            "members": [
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.group_instance_id,
                    "client_id": member.client_id,
                    "client_host": member.client_host.removeprefix("/"),
                }
                for member in group.members
            ],
        }
    if not isinstance(key, UnknownKey):
        return _describe_consumer_group(key, record)
    return {"key": readable(record.key), "value": readable(record.value)}


def _describe_consumer_group(key: ConsumerGroupKey, record: Record) -> dict[str, object]:
    """Describe a record of a group of the new protocol (KIP-848), with Kafka's names of fields."""
    kind = type(key).__name__.removeprefix("ConsumerGroup").removesuffix("Key")
    found = {name: value for name, value in _plain(key).items() if name != "group_id"}
    if record.value is None:
        found["removed"] = True
    else:
        found |= _plain(decode_value(VALUE_OF[type(key)], record.value))
    return {"group": key.group_id, "consumer_group_record": kind, "fields": found}


def _plain(message: Any) -> dict[str, object]:
    """Return the fields of a message, with those of the messages in it."""

    def plain(value: object) -> object:
        if isinstance(value, tuple):
            return [plain(item) for item in value]
        if isinstance(value, UUID):
            return str(value)
        return _plain(value) if is_dataclass(value) else value

    return {name: plain(getattr(message, name)) for name in message.__slots__}

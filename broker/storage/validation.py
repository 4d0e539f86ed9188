"""Validation of a client's batch: its header and its CRC, but not its records.

`record_check.py` checks single records, which may take long.

The error codes are those of Kafka 4.3. Differs from Kafka:

- INVALID_RECORD also for a batch followed by half a batch, for a transactional batch without a
  producer id, and for a producer id without an epoch.
- UNSUPPORTED_COMPRESSION_TYPE for unknown codecs, where Kafka returns UNKNOWN_SERVER_ERROR.
- A compacted log takes at most `COMPACTED_RECORDS_MAX` records in a batch.
- Faults that only show in the records (wrong offset deltas, a wrong count) are not detected.
"""

import struct
from typing import Final, NamedTuple

from odradek.broker.storage.config import LogConfig
from odradek.protocol.batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    Codec,
    TimestampType,
    crc_is_good,
    read_header,
)
from odradek.protocol.errors import ErrorCode, KafkaError

NO_TIMESTAMP: Final = -1
NOBODY: Final = -1
CODEC_MAX: Final = max(Codec)

_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_OLD_HEADER_BYTES: Final = 26
"""The smallest message of format 0, with its offset and length."""


def check_client_batch(batch: memoryview, config: LogConfig, now_ms: int) -> BatchHeader:
    """Check that `batch` is exactly one good batch, and return its header.

    Raises KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE, INVALID_TIMESTAMP.
    """
    if len(batch) < HEADER_BYTES or batch[_MAGIC_AT] != MAGIC:
        raise _not_a_batch(batch)
    header = read_header(batch)
    if header.size_bytes != len(batch):
        raise _wrong_size(header, len(batch))
    _check_base_offset(header)
    _check_limits(header, config)
    if not crc_is_good(batch, header):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the CRC of the batch does not match")
    _check_fields(header)
    _check_times(header, config, now_ms)
    return header


def check_for_log(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """Check that a good batch of a client fits into a log. Raises as above."""
    _check_limits(header, config)
    _check_times(header, config, now_ms)


class Fitting(NamedTuple):
    """The batches that certainly fit into a log at one moment, for those that are checked at once.

    Of any other one `check_for_log` says if it fits, or raises.
    """

    size_max: int
    earliest_ms: int
    latest_ms: int

    @classmethod
    def of(cls, config: LogConfig, now_ms: int) -> "Fitting":
        return cls(
            min(config.max_message_bytes, config.segment_bytes),
            now_ms - config.message_timestamp_before_max_ms,
            now_ms + config.message_timestamp_after_max_ms,
        )

    def has(self, header: BatchHeader) -> bool:
        """Return True if the size and both timestamps of a batch are inside the bounds."""
        size_max, earliest_ms, latest_ms = self
        return (
            header.batch_length + LENGTH_PREFIX_BYTES <= size_max
            and earliest_ms <= header.base_timestamp <= latest_ms
            and earliest_ms <= header.max_timestamp <= latest_ms
        )


def _check_base_offset(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise invalid(f"its base offset is {header.base_offset}, a producer's is 0")


def _check_limits(header: BatchHeader, config: LogConfig) -> None:
    size_bytes = header.size_bytes
    if size_bytes > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size_bytes} bytes, max.message.bytes is {config.max_message_bytes}",
        )
    if size_bytes > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {size_bytes} bytes, segment.bytes is {config.segment_bytes}",
        )


def _check_fields(header: BatchHeader) -> None:
    if header.is_control:
        raise invalid("only the broker writes control records")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise invalid(
            f"it has {header.record_count} records and its last offset delta is "
            f"{header.last_offset_delta}"
        )
    if header.producer_id >= 0:
        if header.producer_epoch < 0 or header.base_sequence < 0:
            raise invalid(
                f"producer {header.producer_id} sent epoch {header.producer_epoch} and sequence "
                f"{header.base_sequence}"
            )
    elif header.is_transactional:
        raise invalid("it is transactional and has no producer id")
    if header.codec > CODEC_MAX:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression type {header.codec}"
        )


def _check_times(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if config.message_timestamp_type is TimestampType.CREATE_TIME:
        _check_time(header.base_timestamp, config, now_ms)
        if header.max_timestamp != header.base_timestamp:
            _check_time(header.max_timestamp, config, now_ms)


def _check_time(timestamp_ms: int, config: LogConfig, now_ms: int) -> None:
    if not is_in_time(timestamp_ms, config, now_ms):
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"a timestamp of the batch is {timestamp_ms}, but the broker's clock is at {now_ms}",
        )


def is_in_time(timestamp_ms: int, config: LogConfig, now_ms: int) -> bool:
    """Return True if a record may have this timestamp, or has none."""
    if timestamp_ms == NO_TIMESTAMP:
        return True
    age_ms = now_ms - timestamp_ms
    return (
        age_ms <= config.message_timestamp_before_max_ms
        and -age_ms <= config.message_timestamp_after_max_ms
    )


def _not_a_batch(batch: memoryview) -> KafkaError:
    if len(batch) < _LENGTH_AT + _LENGTH.size:
        return invalid("there is no batch")
    # Older message formats have another layout, so only the length is read here: the error code
    # depends on whether the message is too short, cut off or old.
    (length,) = _LENGTH.unpack_from(batch, _LENGTH_AT)
    size_bytes = _LENGTH_AT + _LENGTH.size + length
    if size_bytes < _OLD_HEADER_BYTES or len(batch) <= _MAGIC_AT or batch[_MAGIC_AT] > MAGIC:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, "this is not a record batch")
    if batch[_MAGIC_AT] == MAGIC and size_bytes < HEADER_BYTES:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch is shorter than its header")
    if size_bytes > len(batch):
        return invalid("the batch is cut off")
    return invalid(f"message format {batch[_MAGIC_AT]} is not supported any more")


def _wrong_size(header: BatchHeader, found_bytes: int) -> KafkaError:
    if header.size_bytes < HEADER_BYTES:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch length is {header.batch_length}")
    if header.size_bytes > found_bytes:
        return invalid(f"the batch is cut off: {found_bytes} bytes of {header.size_bytes}")
    return invalid("a request may have only one batch for each partition")


def invalid(why: str) -> KafkaError:
    """Return the refusal of a batch that makes no sense."""
    return KafkaError(ErrorCode.INVALID_RECORD, f"the batch is refused: {why}")


def check_marker_fields(producer_id: int, producer_epoch: int, transaction_version: int) -> None:
    """Check what a marker says of its producer.

    Raises KafkaError: UNKNOWN_SERVER_ERROR without producer id, epoch or transaction version,
    INVALID_PRODUCER_EPOCH.
    """
    if producer_id < 0 or producer_epoch == NOBODY or transaction_version == NOBODY:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"a marker of producer {producer_id} has epoch {producer_epoch} and transaction "
            f"version {transaction_version}",
        )
    if producer_epoch < 0:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH, f"a marker has producer epoch {producer_epoch}"
        )

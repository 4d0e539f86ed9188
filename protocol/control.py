"""Control records: the markers that end a transaction in a partition, as commit or abort.

A marker is a batch of one record, with the control bit, the transactional bit and no sequence. Its
key is a version and a type (0 abort, 1 commit). Its value is a version and the coordinator epoch,
by which a partition recognises and refuses the markers of a replaced coordinator.
"""

import struct
from typing import Final

from odradek.late import dataclass
from odradek.protocol.batch import read_header
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record, RecordReader, encode_batch
from odradek.protocol.schema import Buffer

MARKER_VERSION: Final = 0
ABORT: Final = 0
COMMIT: Final = 1

CONTROL_MAX_BYTES: Final = 64 * 1024
"""The limit for the record of a control batch. A marker takes 17 bytes."""
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    committed: bool
    coordinator_epoch: int


def encode_marker(
    *,
    committed: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Return the batch that ends a producer's transaction in one partition."""
    record = Record(
        key=_KEY.pack(MARKER_VERSION, COMMIT if committed else ABORT),
        value=_VALUE.pack(MARKER_VERSION, coordinator_epoch),
        timestamp_ms=timestamp_ms,
    )
    return encode_batch(
        [record],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_marker(source: Buffer | Record) -> Marker:
    """Return the marker in a control batch, or in its record.

    A newer version may have more fields behind the known ones. Raises `KafkaError` CORRUPT_MESSAGE
    for anything else (Kafka writes other control records only into its metadata topic), and raises
    as `RecordReader` does.
    """
    record = source if isinstance(source, Record) else _only_record(source)
    if record.key is None or len(record.key) < _KEY.size:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a control record has no type")
    _, kind = _KEY.unpack_from(record.key)
    if kind not in (ABORT, COMMIT):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"a control record of type {kind} is not a marker"
        )
    if record.value is None or len(record.value) < _VALUE.size:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a marker has no coordinator epoch")
    _, coordinator_epoch = _VALUE.unpack_from(record.value)
    return Marker(committed=kind == COMMIT, coordinator_epoch=coordinator_epoch)


def _only_record(batch: Buffer) -> Record:
    if not read_header(batch).is_control:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a marker is not in a control batch")
    reader = RecordReader(batch, max_bytes=CONTROL_MAX_BYTES)
    if reader.left != 1:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a control batch has {reader.left} records")
    return reader.take(1)[0]

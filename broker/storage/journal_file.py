"""The bytes of a journal file: a header, and records one behind the other (`journal.py`).

A file is written from its beginning again and again. So each record has the generation of its file,
which no earlier header had: what stands behind the last record is of an earlier generation, and
does not count. A torn record, or torn header, ends the file.

Integers are big-endian. The header: CRC-32C of what follows (4), `odrj`, version 1 (2), life (8),
generation (8). A record: CRC-32C of what follows (4), its size in bytes (4), generation (8),
sequence (8), topic id (16), partition (4), kind (1), base offset of the segment (8), position there
(8), offset before (8), offset after (8), and the bytes of the log.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from crc32c import crc32c

from odradek.broker.environment.env import Buffer
from odradek.late import dataclass

MAGIC: Final = b"odrj"
VERSION: Final = 1
_CRC: Final = struct.Struct(">I")
_HEADER: Final = struct.Struct(">4sHQQ")
_RECORD: Final = struct.Struct(">IQq16siBqqqq")
HEADER_BYTES: Final = _CRC.size + _HEADER.size
RECORD_BYTES: Final = _CRC.size + _RECORD.size
"""The size of a record without bytes of a log."""

LogKey = tuple[bytes, int]
"""The identity of a log: the id of its topic, and the number of its partition."""


class RecordKind(IntEnum):
    """The kinds of records."""

    DATA = 0
    """These bytes were appended there."""
    FLUSHED = 1
    """The log itself is on disk up to the offset after."""
    CUT = 2
    """The log was cut at the offset after: what stands behind it in earlier records is gone."""


class JournalRecord(NamedTuple):
    """One record. `sequence` is its place among all records of all files and lives."""

    sequence: int
    key: LogKey
    kind: RecordKind
    base_offset: int
    """The end of the log before the append."""
    next_offset: int
    segment_base: int = 0
    position: int = 0
    data: Buffer = b""

    @property
    def size_bytes(self) -> int:
        return RECORD_BYTES + len(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFile:
    """The contents of a file. A *life* is the time from one start of the broker to the next."""

    life: int
    generation: int
    records: Sequence[JournalRecord]


def encode_header(life: int, generation: int) -> bytes:
    content = _HEADER.pack(MAGIC, VERSION, life, generation)
    return _CRC.pack(crc32c(content)) + content


def encode_record(generation: int, record: JournalRecord) -> bytes:
    """Return the bytes of a record in the file of that generation."""
    topic_id, partition = record.key
    content = _RECORD.pack(
        record.size_bytes,
        generation,
        record.sequence,
        topic_id,
        partition,
        record.kind,
        record.segment_base,
        record.position,
        record.base_offset,
        record.next_offset,
    )
    return b"".join((_CRC.pack(crc32c(record.data, crc32c(content))), content, record.data))


def decode(data: Buffer) -> JournalFile | None:
    """Return what counts of a file's bytes; None if it has no header."""
    view = memoryview(data)
    header = view[_CRC.size : HEADER_BYTES]
    if len(header) < _HEADER.size or crc32c(header) != _CRC.unpack_from(view)[0]:
        return None
    magic, version, life, generation = _HEADER.unpack(header)
    if magic != MAGIC or version != VERSION:
        return None
    records, position = [], HEADER_BYTES
    while (record := _record_at(view[position:], generation)) is not None:
        records.append(record)
        position += record.size_bytes
    return JournalFile(life=life, generation=generation, records=records)


def _record_at(view: memoryview, generation: int) -> JournalRecord | None:
    if len(view) < RECORD_BYTES:
        return None
    size_bytes, found, sequence, topic_id, partition, kind, *offsets = _RECORD.unpack_from(
        view, _CRC.size
    )
    # The generation first: what an earlier one has left may have a good checksum.
    if found != generation or not RECORD_BYTES <= size_bytes <= len(view):
        return None
    if crc32c(view[_CRC.size : size_bytes]) != _CRC.unpack_from(view)[0]:
        return None
    segment_base, position, base_offset, next_offset = offsets
    return JournalRecord(
        sequence=sequence,
        key=(topic_id, partition),
        kind=RecordKind(kind),
        segment_base=segment_base,
        position=position,
        base_offset=base_offset,
        next_offset=next_offset,
        data=bytes(view[RECORD_BYTES:size_bytes]),
    )

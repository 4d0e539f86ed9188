"""What is known of a log without reading it: the file `checkpoint` in its directory.

Everything before `recovery_offset` is on disk, batches and indexes, and its effect on producers is
in here: recovery starts there. Kafka has one file with a number for every log; here it is one file
a log, so that a deleted log takes it along, and it has the producers, so that nothing before it
need be read again. msgpack behind a CRC-32C; written beside and renamed into place, so
that there is always a complete one.

It is also what makes the replacement of segments by compacted ones happen at one moment: the
checkpoint that describes the new one says so in `replaced` (see `replacement.py`).
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

import msgpack
from crc32c import crc32c

from odradek.broker.env import Disk, File
from odradek.broker.storage.leader_epochs import EpochStart
from odradek.broker.storage.producers import ProducerEntry, pack, unpack
from odradek.broker.storage.segment import Segment, SegmentSummary

CHECKPOINT: Final = "checkpoint"
BESIDE: Final = "checkpoint.tmp"
VERSION: Final = 1
CHECKSUMS: Final = ("index_crc", "time_index_crc", "aborted_crc")
"""Fields of a summary that have a key of their own, which an older broker ignores. It would not
start with a summary that is longer than those it knows."""
SIZES: Final = tuple(name for name in SegmentSummary.__slots__ if name not in CHECKSUMS)
_sizes_of: Final = attrgetter(*SIZES)
_checksums_of: Final = attrgetter(*CHECKSUMS)
_CRC: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The state of a log at `recovery_offset`; the last segment is the active one."""

    topic_id: UUID
    recovery_offset: int
    log_start_offset: int
    segments: Sequence[SegmentSummary]
    epochs: Sequence[EpochStart]
    producers: Sequence[ProducerEntry] = field(compare=False)
    clean_offset: int = 0
    """Below it no key has two values: where the next compaction begins to read keys."""
    replaced: Sequence[int] = ()
    """Base offsets of segments that a compacted one, based on the first, takes the place of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToSave:
    """A log at one moment, to be written as its checkpoint."""

    recovery_offset: int
    appended_bytes: int
    state: tuple[int, int, int]
    segments: Sequence[SegmentSummary]
    checkpoint: bytes
    pieces: Sequence[tuple[Segment, str, int, bytes]]
    """What the index files lack: segment, suffix, position, bytes."""
    snapshots: Sequence[int]
    replaced: Sequence[int] = ()


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    content: bytes = msgpack.packb(
        {
            "version": VERSION,
            "topic_id": checkpoint.topic_id.bytes,
            "recovery_offset": checkpoint.recovery_offset,
            "log_start_offset": checkpoint.log_start_offset,
            "segments": [_sizes_of(segment) for segment in checkpoint.segments],
            "checksums": [_checksums_of(segment) for segment in checkpoint.segments],
            "epochs": checkpoint.epochs,
            "producers": [pack(entry) for entry in checkpoint.producers],
            "clean_offset": checkpoint.clean_offset,
            "replaced": list(checkpoint.replaced),
        }
    )
    return _CRC.pack(crc32c(content)) + content


def decode_checkpoint(data: bytes | bytearray) -> Checkpoint | None:
    """The checkpoint in a file's bytes, or None if it is damaged or of a newer version."""
    if len(data) < _CRC.size or crc32c(memoryview(data)[_CRC.size :]) != _CRC.unpack_from(data)[0]:
        return None
    content: dict[str, Any] = msgpack.unpackb(memoryview(data)[_CRC.size :])
    if content["version"] != VERSION:
        return None
    segments = content["segments"]
    checksums = content.get("checksums", [()] * len(segments))  # an older broker writes none
    return Checkpoint(
        topic_id=UUID(bytes=content["topic_id"]),
        recovery_offset=content["recovery_offset"],
        log_start_offset=content["log_start_offset"],
        segments=[
            SegmentSummary(**dict(zip((*SIZES, *CHECKSUMS), (*values, *crcs), strict=False)))
            for values, crcs in zip(segments, checksums, strict=True)
        ],
        epochs=[EpochStart(*values) for values in content["epochs"]],
        producers=[unpack(fields) for fields in content["producers"]],
        clean_offset=content.get("clean_offset", 0),
        replaced=tuple(content.get("replaced", ())),
    )


async def read_checkpoint(disk: Disk, directory: str) -> Checkpoint | None:
    """The checkpoint of a log, or None if there is none that can be read. Raises OSError."""
    path = f"{directory}/{CHECKPOINT}"
    if not disk.exists(path):
        return None
    file = disk.open(path)
    try:
        return decode_checkpoint(await file.pread(0, file.size))
    finally:
        file.close()


async def write_beside(disk: Disk, directory: str, checkpoint: bytes) -> None:
    """Write a checkpoint, on disk, that does not count yet. Raises OSError: the old one stays."""
    file = _open_beside(disk, directory)
    try:
        file.append(checkpoint)
        await file.fsync()
    finally:
        file.close()


async def move_into_place(disk: Disk, directory: str) -> None:
    """Let the checkpoint that was written beside the old one take its place, durably.

    Raises OSError: then nobody knows which of them is there after a crash.
    """
    disk.rename(f"{directory}/{BESIDE}", f"{directory}/{CHECKPOINT}")
    await disk.fsync_dir(directory)


def place_checkpoint(disk: Disk, directory: str, checkpoint: bytes) -> None:
    """Write the checkpoint of a log that has nothing to lose yet. Raises OSError."""
    file = _open_beside(disk, directory)
    try:
        file.append(checkpoint)
    finally:
        file.close()
    disk.rename(f"{directory}/{BESIDE}", f"{directory}/{CHECKPOINT}")


def _open_beside(disk: Disk, directory: str) -> File:
    beside = f"{directory}/{BESIDE}"
    if disk.exists(beside):
        disk.remove(beside)
    return disk.open(beside)

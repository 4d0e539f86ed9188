"""The checkpoint of a log: the file `checkpoint` in its directory, from which recovery starts.

All batches and index entries below `recovery_offset` are on disk, and the checkpoint has the
producer state at that offset, so recovery need not read them again. Kafka has one file with the
recovery points of all logs. Here each log has its own, which is deleted with the log.

The content is msgpack behind a CRC-32C. The file is written under another name and renamed, so that
there is always a complete one (KAFKA-16541).

The checkpoint also makes compaction atomic: the checkpoint that describes a compacted segment names
the old segments in `replaced` (see `replacement.py`).
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
from odradek.broker.storage.leader_epochs import UNKNOWN_OFFSET, EpochStart
from odradek.broker.storage.producers import ProducerEntry, pack_entry, unpack_entry
from odradek.broker.storage.segment import SegmentSummary

CHECKPOINT: Final = "checkpoint"
BESIDE: Final = "checkpoint.tmp"
VERSION: Final = 1
CHECKSUMS: Final = ("index_crc", "time_index_crc", "aborted_crc")
"""Fields of a summary that stand under a key of their own. An older broker ignores the key, but it
would not start with a summary that has more fields than it knows."""
SIZES: Final = tuple(name for name in SegmentSummary.__slots__ if name not in CHECKSUMS)
_sizes_of: Final = attrgetter(*SIZES)
_checksums_of: Final = attrgetter(*CHECKSUMS)
_CRC: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The state of a log at `recovery_offset`. The last segment is the active one."""

    topic_id: UUID
    recovery_offset: int
    log_start_offset: int
    segments: Sequence[SegmentSummary]
    epochs: Sequence[EpochStart]
    producers: Sequence[ProducerEntry] = field(compare=False)
    ended: Sequence[tuple[int, int]] = ()
    """Marker's offset and first offset of each transaction that holds the last stable offset until
    its marker is below the high watermark."""
    high_watermark: int = UNKNOWN_OFFSET
    """The high watermark of the log as far as this replica knew it, -1 if it did not."""
    clean_offset: int = 0
    """Below this offset keys are unique. The next compaction reads keys from here on."""
    replaced: Sequence[int] = ()
    """Base offsets of segments that a compacted segment replaces; its own is the first of them."""
    is_cut: bool = False
    """The log ends here: recovery removes what the files have beyond it (see `cut.py`)."""
    follows_cut: bool = False
    """It replaces a checkpoint with `is_cut`, which must not come back after a power failure."""


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
            "producers": [pack_entry(entry) for entry in checkpoint.producers],
            "ended": checkpoint.ended,
            "high_watermark": checkpoint.high_watermark,
            "clean_offset": checkpoint.clean_offset,
            "replaced": list(checkpoint.replaced),
            "is_cut": checkpoint.is_cut,
            "follows_cut": checkpoint.follows_cut,
        }
    )
    return _CRC.pack(crc32c(content)) + content


def decode_checkpoint(data: bytes | bytearray) -> Checkpoint | None:
    """Return the checkpoint in a file's bytes, None if it is damaged or of a newer version."""
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
        producers=[unpack_entry(fields) for fields in content["producers"]],
        # An older broker writes no such keys.
        ended=tuple((marker, first) for marker, first in content.get("ended", ())),
        high_watermark=content.get("high_watermark", UNKNOWN_OFFSET),
        clean_offset=content.get("clean_offset", 0),
        replaced=tuple(content.get("replaced", ())),
        is_cut=content.get("is_cut", False),
        follows_cut=content.get("follows_cut", False),
    )


async def read_checkpoint(disk: Disk, directory: str) -> Checkpoint | None:
    """Return the checkpoint of a log, None if it is missing or damaged. Raises OSError."""
    path = f"{directory}/{CHECKPOINT}"
    if not disk.exists(path):
        return None
    file = disk.open(path)
    try:
        return decode_checkpoint(await file.pread(0, file.size))
    finally:
        file.close()


async def write_beside(disk: Disk, directory: str, checkpoint: bytes) -> None:
    """Write and flush a checkpoint under another name. Raises OSError; the old one then stays."""
    file = _open_beside(disk, directory)
    try:
        file.append(checkpoint)
        await file.fsync()
    finally:
        file.close()


async def move_into_place(disk: Disk, directory: str) -> None:
    """Replace the checkpoint by the one that `write_beside` wrote, durably.

    Raises OSError. It is then unknown which of the two is there after a crash.
    """
    disk.rename(f"{directory}/{BESIDE}", f"{directory}/{CHECKPOINT}")
    await disk.fsync_dir(directory)


def place_checkpoint(disk: Disk, directory: str, checkpoint: bytes) -> None:
    """Write the checkpoint of a new log, without a flush. Raises OSError."""
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

"""The checkpoint of a log: the file `checkpoint` in its directory, from which recovery starts.

All batches and index entries below `recovery_offset` are on disk, and the checkpoint has the
producer state at that offset, so recovery need not read them again. Kafka has one file with the
recovery points of all logs. Here each log has its own, which is deleted with the log.

The file is written under another name and renamed, so that there is always a complete one
(KAFKA-16541, `small_file.py`).

A checkpoint names its partition, and is believed only for that: a backup may have been put back
into the wrong directory. For each segment it has a checksum of the last bytes that it covers
(`end_sum.py`), since the file of batches could be another log's, too.

The checkpoint also makes compaction atomic: the checkpoint that describes a compacted segment names
the old segments in `replaced` (see `replacement.py`).
"""

from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from odradek.broker.environment.env import Disk
from odradek.broker.environment.work import Work, whole
from odradek.broker.storage import small_file
from odradek.broker.storage.leader_epochs import UNKNOWN_OFFSET, EpochStart
from odradek.broker.storage.producer_entry import WINDOW, BatchMetadata, ProducerEntry
from odradek.broker.storage.segment_summary import SegmentSummary
from odradek.broker.values.topic_partition import TopicPartition
from odradek.late import dataclass

CHECKPOINT: Final = "checkpoint"
BESIDE: Final = CHECKPOINT + small_file.BESIDE
CHECKSUMS: Final = ("index_crc", "time_index_crc", "aborted_crc", "end_crc")
"""Fields of a summary that stand under a key of their own. An older broker ignores the key, but it
would not start with a summary that has more fields than it knows."""
SIZES: Final = tuple(name for name in SegmentSummary.__slots__ if name not in CHECKSUMS)
_sizes_of: Final = attrgetter(*SIZES)
_checksums_of: Final = attrgetter(*CHECKSUMS)
_fields_of: Final = attrgetter(
    "producer_id",
    "epoch",
    "coordinator_epoch",
    "first_offset",
    "last_marker_offset",
    "last_timestamp_ms",
    "updated_ms",
    "batches",
)
"""Of a producer. None of the values changes with it, so that they can be packed later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The state of a log at `recovery_offset`. The last segment is the active one."""

    where: TopicPartition | None = None
    """None in the checkpoint of an earlier version, which has the topic id only."""
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
    journal_sequence: int = 0
    """Records of the journal with smaller numbers count no more for this log."""
    follows_cut: bool = False
    """It replaces a checkpoint with `is_cut`, which must not come back after a power failure."""

    def is_of(self, where: TopicPartition | None, topic_id: UUID) -> bool:
        """Return True unless it names another partition, or the id of another topic."""
        return self.topic_id == topic_id and (where is None or self.where in (None, where))

    @property
    def owner(self) -> str:
        """The partition that it names, for messages."""
        return f"{self.where or 'another topic'}, topic id {self.topic_id}"


Content = dict[str, Any]
"""What `encoded` makes a checkpoint of. It does not change with the log."""


def to_content(checkpoint: Checkpoint) -> Content:
    bases = [segment.base_offset for segment in checkpoint.segments]
    assert all(left < right for left, right in pairwise(bases)), bases
    assert all(first < marker for marker, first in checkpoint.ended), checkpoint.ended
    return {
        **(checkpoint.where._asdict() if checkpoint.where is not None else {}),
        "topic_id": checkpoint.topic_id.bytes,
        "recovery_offset": checkpoint.recovery_offset,
        "log_start_offset": checkpoint.log_start_offset,
        "segments": [_sizes_of(segment) for segment in checkpoint.segments],
        "checksums": [_checksums_of(segment) for segment in checkpoint.segments],
        "epochs": list(checkpoint.epochs),
        "producers": list(map(_fields_of, checkpoint.producers)),
        "ended": list(checkpoint.ended),
        "high_watermark": checkpoint.high_watermark,
        "clean_offset": checkpoint.clean_offset,
        "replaced": list(checkpoint.replaced),
        "is_cut": checkpoint.is_cut,
        "follows_cut": checkpoint.follows_cut,
        "journal_sequence": checkpoint.journal_sequence,
    }


def put_checksums(content: Content, segments: Sequence[SegmentSummary]) -> None:
    """Replace the checksums of a checkpoint by those of `segments`."""
    content["checksums"] = [_checksums_of(segment) for segment in segments]


def encoded(content: Content) -> Work[bytes]:
    """Return the bytes of the file. A partition may have tens of thousands of producers."""
    producers: list[list[object]] = []
    for fields in content["producers"]:
        yield 1
        producers.append(_packed(fields))
    return (yield from small_file.encoded({**content, "producers": producers}))


# invariant idempotence 1
def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    return whole(encoded(to_content(checkpoint)))


def decode_checkpoint(data: bytes | bytearray) -> Checkpoint | None:
    """Return the checkpoint in a file's bytes, None if it is damaged or of a newer version."""
    content = small_file.decode(data)
    if content is None:
        return None
    segments = content["segments"]
    checksums = content.get("checksums", [()] * len(segments))  # an older broker writes none
    return Checkpoint(
        where=TopicPartition(content["topic"], content["partition"])
        if "topic" in content
        else None,
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
        journal_sequence=content.get("journal_sequence", 0),
    )


async def read_checkpoint(disk: Disk, directory: str) -> Checkpoint | None:
    """Return the checkpoint of a log, None if it is missing or damaged. Raises OSError."""
    data = await small_file.read_bytes(disk, f"{directory}/{CHECKPOINT}")
    return None if data is None else decode_checkpoint(data)


async def write_beside(disk: Disk, directory: str, checkpoint: bytes) -> None:
    """Write and flush a checkpoint under another name. Raises OSError; the old one then stays."""
    await small_file.write_beside(disk, f"{directory}/{CHECKPOINT}", checkpoint)


async def move_into_place(disk: Disk, directory: str) -> None:
    """Replace the checkpoint by the one that `write_beside` wrote, durably.

    Raises OSError. It is then unknown which of the two is there after a crash.
    """
    await small_file.move_into_place(disk, f"{directory}/{CHECKPOINT}")


def place_checkpoint(disk: Disk, directory: str, content: Content) -> None:
    """Write the checkpoint of a new log, without a flush. Raises OSError."""
    path = f"{directory}/{CHECKPOINT}"
    small_file.place_beside(disk, path, whole(encoded(content)))
    disk.rename(f"{directory}/{BESIDE}", path)


def pack_entry(entry: ProducerEntry) -> list[object]:
    """Return an entry for the checkpoint. It keeps all five batches, Kafka's snapshot only one."""
    return _packed(_fields_of(entry))


def _packed(fields: Sequence[Any]) -> list[object]:
    *numbers, batches = fields
    return [*numbers, [number for batch in batches for number in batch]]


def unpack_entry(fields: Sequence[object]) -> ProducerEntry:
    """Return the entry that `pack_entry` encoded. Raises TypeError, ValueError for other fields."""
    *numbers, flat = fields
    if not isinstance(flat, list) or len(flat) % 4 or len(flat) > 4 * WINDOW:
        raise ValueError("a producer's batches must have four numbers each")
    if len(numbers) != 7 or not all(isinstance(number, int) for number in [*numbers, *flat]):
        raise TypeError("a producer must have seven numbers and a list of batches")
    entry = ProducerEntry(*numbers)  # type: ignore[arg-type]
    entry.batches = tuple(BatchMetadata._make(flat[at : at + 4]) for at in range(0, len(flat), 4))
    return entry

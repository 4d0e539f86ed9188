"""Snapshots and checkpoints: they are read as they were written, and damage is noticed."""

from random import Random
from uuid import UUID

import msgpack
import pytest
from crc32c import crc32c

from odradek.broker.storage.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from odradek.broker.storage.last_run import LAST_RUN, LastRun, read_last_run
from odradek.broker.storage.leader_epochs import EpochStart
from odradek.broker.storage.producer_entry import BatchMetadata, ProducerEntry
from odradek.broker.storage.segment_summary import SegmentSummary
from odradek.broker.storage.snapshot import decode_snapshot, encode_snapshot
from tests.fakes.disk import FakeDisk

NOW_MS = 77


def producers() -> list[ProducerEntry]:
    plain = ProducerEntry(1, epoch=2, last_timestamp_ms=30, updated_ms=40)
    plain.batches = (BatchMetadata(9, 19, 9, 20), BatchMetadata(14, 24, 4, 30))
    marked = ProducerEntry(
        2**62, epoch=32767, coordinator_epoch=5, last_timestamp_ms=31, updated_ms=41
    )
    opened = ProducerEntry(3, epoch=0, first_offset=17, last_timestamp_ms=32, updated_ms=42)
    opened.batches = (BatchMetadata(-1, 17, 0, 32),)
    return [plain, marked, opened]


def test_a_snapshot_keeps_the_last_batch_of_each_producer() -> None:
    again = decode_snapshot(encode_snapshot(producers()), NOW_MS)
    assert again is not None
    expected = producers()
    expected[0].batches = expected[0].batches[1:]
    for entry in expected:
        entry.updated_ms = NOW_MS
        entry.last_marker_offset = -1
    assert again == expected


def test_a_snapshot_has_kafkas_bytes() -> None:
    """The bytes are those of a snapshot that Kafka's own tool has read."""
    entry = ProducerEntry(7, epoch=1, coordinator_epoch=4, first_offset=301, last_timestamp_ms=9)
    entry.batches = (BatchMetadata(500, 501, 2, 9),)
    assert encode_snapshot([entry])[6:].hex() == (
        "00000001"  # one producer
        "0000000000000007" "0001" "000001f4" "00000000000001f5" "00000002"
        "0000000000000009" "00000004" "000000000000012d"
    )  # fmt: skip


CHECKPOINT = Checkpoint(
    topic_id=UUID(int=5),
    recovery_offset=40,
    log_start_offset=3,
    segments=[
        SegmentSummary(
            base_offset=0,
            next_offset=40,
            size_bytes=1000,
            largest_timestamp=30,
            largest_timestamp_offset=24,
            first_timestamp=20,
            first_append_ms=21,
            bytes_since_entry=12,
            index_bytes=8,
            time_index_bytes=12,
            aborted_bytes=34,
            index_crc=1,
            time_index_crc=2,
            aborted_crc=3,
        )
    ],
    epochs=[EpochStart(0, 0), EpochStart(3, 20)],
    producers=producers(),
    ended=((30, 24), (33, 11)),
    high_watermark=38,
    is_cut=True,
    follows_cut=True,
)


def test_a_checkpoint_is_read_as_it_was_written() -> None:
    again = decode_checkpoint(encode_checkpoint(CHECKPOINT))
    assert again == CHECKPOINT
    assert list(again.producers) == producers()


def test_an_older_broker_starts_with_a_newer_ones_checkpoint() -> None:
    """The older broker knows eleven numbers of a segment, and failed when there were more."""
    content = msgpack.unpackb(encode_checkpoint(CHECKPOINT)[4:])
    assert content["version"] == 1
    assert [len(values) for values in content["segments"]] == [11]


def test_a_checkpoint_of_an_older_broker_has_no_checksums() -> None:
    content = msgpack.unpackb(encode_checkpoint(CHECKPOINT)[4:])
    del content["checksums"]
    data = msgpack.packb(content)
    again = decode_checkpoint(crc32c(data).to_bytes(4, "big") + data)
    assert again is not None
    assert again.segments[0].index_bytes == CHECKPOINT.segments[0].index_bytes
    assert again.segments[0].index_crc is None


def test_a_checkpoint_of_an_older_broker_lacks_what_replication_needs() -> None:
    content = msgpack.unpackb(encode_checkpoint(CHECKPOINT)[4:])
    for key in ("ended", "high_watermark", "is_cut", "follows_cut"):
        del content[key]
    data = msgpack.packb(content)
    again = decode_checkpoint(crc32c(data).to_bytes(4, "big") + data)
    assert again is not None
    assert (again.ended, again.high_watermark) == ((), -1)
    assert not again.is_cut
    assert not again.follows_cut


@pytest.mark.parametrize(
    "data", [encode_snapshot(producers()), encode_checkpoint(CHECKPOINT)], ids=["snapshot", "ours"]
)
def test_every_cut_and_every_flipped_bit_is_noticed(data: bytes) -> None:
    """KAFKA-16541: a power failure tore a checkpoint."""

    def is_readable(damaged: bytes) -> bool:
        if data.startswith(b"\0\1"):
            return decode_snapshot(damaged, NOW_MS) is not None
        return decode_checkpoint(damaged) is not None

    assert is_readable(data)
    random = Random(1)
    for position in range(len(data)):
        assert not is_readable(data[:position])
        flipped = bytearray(data)
        flipped[position] ^= 1 << random.randrange(8)
        assert not is_readable(bytes(flipped))
    assert not is_readable(data + b"\0")


async def test_four_zeros_are_no_note_of_the_last_run() -> None:
    """They are the right checksum of nothing, and the broker did not start."""
    disk = FakeDisk()
    disk.mkdir("/data")
    disk.open(f"/data/{LAST_RUN}").append(bytes(4))
    assert await read_last_run(disk, "/data") == LastRun()

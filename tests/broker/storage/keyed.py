"""Partitions of compacted topics, and their expected contents after compaction."""

import contextlib
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.upkeep.maintenance import MAP_BYTES
from odradek.broker.storage import scan
from odradek.broker.storage.compaction.cleaner import Result
from odradek.broker.storage.config import INT64_MAX, LogConfig
from odradek.broker.storage.decompressor import Decompressor
from odradek.broker.storage.marking import NewMarker
from odradek.broker.storage.record_check import RecordRules, check_records
from odradek.broker.testing import RunningBroker
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.batch import HEADER, BatchHeader, Codec, iter_batches, read_header, set_crc
from odradek.protocol.compression import DECOMPRESSED_MAX_BYTES, compress
from odradek.protocol.control import read_marker
from odradek.protocol.record import Record, decode_batch, encode_batch
from tests.broker.own_records import append_marker
from tests.broker.storage.samples import Machine
from tests.fakes.clock import START_MS

CONFIG: Final = LogConfig(
    is_compacted=True,
    is_limited=False,
    segment_bytes=600,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
)
Pair = tuple[str, str | None]
PATIENCE_SECONDS: Final = 60.0


def compacted_machine(**changes: object) -> Machine:
    return Machine(config=replace(CONFIG, **changes))  # type: ignore[arg-type]


async def check_keys(batch: bytearray | memoryview, decompressor: Decompressor) -> None:
    """Check the records of a batch for a compacted topic. Raises KafkaError."""
    config = replace(CONFIG, message_timestamp_after_max_ms=INT64_MAX)
    rules = RecordRules(where=TopicPartition("t", 0), config=config, now_ms=START_MS)
    data = memoryview(batch)
    await check_records(read_header(data), data, rules, decompressor, Turns())


def keyed(
    *pairs: Pair,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    timestamp_ms: int = START_MS,
    codec: Codec = Codec.NONE,
) -> memoryview:
    """Return a batch of keys and values as a client sends it. A value of None is a tombstone."""
    records = [
        Record(
            key=key.encode(),
            value=None if value is None else value.encode(),
            timestamp_ms=timestamp_ms + number,
            headers=(("number", str(number).encode()),),
        )
        for number, (key, value) in enumerate(pairs)
    ]
    return memoryview(
        encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
            codec=codec,
        )
    )


@dataclass
class KeyedClient:
    """A producer of keys and values with its own sequence."""

    partition: Partition
    producer_id: int = 1
    epoch: int = 0
    sequence: int = 0
    is_transactional: bool = False
    codec: Codec = Codec.NONE

    def send(self, *pairs: Pair) -> int:
        """Append a batch, and return its base offset."""
        made = keyed(
            *pairs,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=self.is_transactional,
            codec=self.codec,
        )
        self.sequence += len(pairs)
        return self.partition.leader().append_from_client(made).base_offset

    def end(self, *, committed: bool, transaction_version: int = 2) -> None:
        if transaction_version == 2:
            self.epoch += 1
            self.sequence = 0
        append_marker(
            self.partition,
            NewMarker(
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                coordinator_epoch=0,
                committed=committed,
                transaction_version=transaction_version,
            ),
        )


async def compact(
    partition: Partition, *, roll: bool = True, map_bytes: int = MAP_BYTES
) -> Result | None:
    """Compact as far as is possible now. With `roll`, include the active segment."""
    await partition.flush()
    if roll and partition.log.active.size_bytes:
        partition.log.roll()
    plan = partition.maintenance.plan()
    assert plan is not None
    if not plan.dirty:
        return None
    return await partition.maintenance.compact(plan, map_bytes=map_bytes)


async def compact_again_and_again(partition: Partition, machine: Machine, times: int = 4) -> None:
    """Compact until nothing changes, with the delete horizon passing in between."""
    for _ in range(times):
        partition.log.state.clean_offset = 0
        await compact(partition, roll=False)
        machine.clock.advance(5000)


def wait_until_compacted(broker: RunningBroker, partition: str, below_bytes: int) -> None:
    """Wait until a real broker's cleaner has made a log smaller than that and saved it."""
    directory, deadline = broker.data_dir / partition, time.monotonic() + PATIENCE_SECONDS
    size_bytes: float = math.inf
    while size_bytes >= below_bytes or f"{partition} compacted" not in broker.log:
        assert time.monotonic() < deadline, (partition, size_bytes)
        time.sleep(0.05)  # between two looks
        with contextlib.suppress(FileNotFoundError):  # replaced during the look: look again
            size_bytes = sum(path.stat().st_size for path in directory.glob("*.log"))


async def stored(partition: Partition) -> list[tuple[BatchHeader, bytes]]:
    """Return every batch of the log."""
    found = scan.batches(partition.log, 0, partition.log_end_offset)
    return [(header, bytes(batch)) async for header, batch in found]


async def consume(
    partition: Partition, *, read_committed: bool = True, max_bytes: int = 1 << 20
) -> list[Record]:
    """Return what a consumer gets, fetch by fetch, without aborted transactions."""
    found: list[Record] = []
    offset = partition.log_start_offset
    end = partition.last_stable_offset if read_committed else partition.high_watermark
    while offset < end:
        result = await partition.leader().read(offset, max_bytes, read_committed=read_committed)
        waiting = sorted(result.aborted, key=lambda transaction: transaction.first_offset)
        aborted: set[int] = set()
        batches = list(iter_batches(result.records))
        assert batches, (offset, partition)
        for header, batch in batches:
            while waiting and waiting[0].first_offset <= header.last_offset:
                aborted.add(waiting.pop(0).producer_id)
            if header.is_control:
                if header.record_count and not read_marker(batch).committed:
                    aborted.discard(header.producer_id)
            elif not (read_committed and header.is_transactional and header.producer_id in aborted):
                found += [record for record in decode_batch(batch) if record.offset >= offset]
            assert header.next_offset > offset
        offset = batches[-1][0].next_offset
    return found


def newest(records: Iterable[Record]) -> dict[str, tuple[int, str]]:
    """Return key -> (offset, value) without deleted keys."""
    found: dict[str, tuple[int, str]] = {}
    for record in records:
        assert record.key is not None
        key = record.key.decode()
        found.pop(key, None)
        if record.value is not None:
            found[key] = (record.offset, record.value.decode())
    return found


def bomb(offset: int = 0) -> memoryview:
    content = compress(Codec.ZSTD, bytes(DECOMPRESSED_MAX_BYTES + 1))
    made = bytearray(keyed(("a", "1")))[:61] + content
    header = next(iter_batches(keyed(("a", "1"))))[0]
    HEADER.pack_into(
        made,
        0,
        *header._replace(
            base_offset=offset,
            batch_length=len(made) - 12,
            attributes=int(Codec.ZSTD),
            partition_leader_epoch=0,
        ),
    )
    set_crc(made)
    return memoryview(made)

"""Batches to append, and partitions on a disk in memory to append them to."""

from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from odradek.broker.partitions.partitions import Appended, Partition, Partitions
from odradek.broker.storage.config import FlushPolicy, LogConfig
from odradek.broker.storage.marking import NewMarker
from odradek.protocol.batch import BatchHeader, Codec, iter_batches
from odradek.protocol.record import Record, encode_batch
from tests.broker.own_records import append_marker
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.disk import FakeDisk

TOPIC: Final = "departures"
TOPIC_ID: Final = UUID(int=7)
DIRECTORY: Final = "/data"
PARTITION_DIRECTORY: Final = f"{DIRECTORY}/{TOPIC}-0"


def batch(
    *values: str,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    timestamp_ms: int = START_MS,
    codec: Codec = Codec.NONE,
) -> memoryview:
    """Return a batch as a client sends it."""
    records = [
        Record(key=None, value=value.encode(), timestamp_ms=timestamp_ms)
        for value in values or ("value",)
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
class Machine:
    """A disk with one data directory, on which a broker's storage starts and stops."""

    disk: FakeDisk = field(default_factory=FakeDisk)
    clock: FakeClock = field(default_factory=FakeClock)
    config: LogConfig = field(default_factory=LogConfig)
    partitions: Partitions = field(init=False)

    def __post_init__(self) -> None:
        self.disk.wall_ms = self.clock.wall_ms

    @property
    def is_journaled(self) -> bool:
        return self.config.flush is FlushPolicy.JOURNAL

    async def start(self, *, topic_id: UUID = TOPIC_ID, leader_epoch: int = 0) -> Partition:
        """Open the partition `departures-0` in a new process."""
        self.partitions = Partitions(
            disk=self.disk,
            directory=DIRECTORY,
            clock=self.clock,
            flush=FlushPolicy.JOURNAL if self.is_journaled else FlushPolicy.ACK,
        )
        partition = await self.partitions.open(
            TOPIC, topic_id, 0, self.config, leader_epoch=leader_epoch
        )
        await self.partitions.run_notes.on_all_open()
        return partition

    async def stop(self) -> None:
        await self.partitions.close()

    async def restart(self) -> Partition:
        """Open the partition again after a clean shutdown."""
        await self.stop()
        return await self.start()

    async def restart_after_kill(self) -> Partition:
        self.disk.kill()
        return await self.start()

    async def restart_after_power_loss(self) -> Partition:
        self.disk.crash()
        return await self.start()


@dataclass
class Client:
    """A producer with its own sequence."""

    partition: Partition
    producer_id: int = 1
    epoch: int = 0
    sequence: int = 0
    is_transactional: bool = False

    def make(self, *values: str) -> memoryview:
        """Return the next batch, and advance the sequence."""
        made = batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=self.is_transactional,
        )
        self.sequence += len(values or ("value",))
        return made

    def send(self, *values: str) -> Appended:
        return self.partition.leader().append_from_client(self.make(*values))

    def end(
        self, *, committed: bool, coordinator_epoch: int = 0, transaction_version: int = 0
    ) -> Appended | None:
        """Append a marker with the producer's epoch, or under TV2 with the next epoch."""
        if transaction_version == 2:
            self.epoch += 1
            self.sequence = 0
        return append_marker(
            self.partition,
            NewMarker(
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                coordinator_epoch=coordinator_epoch,
                committed=committed,
                transaction_version=transaction_version,
            ),
        )


async def read_all(
    partition: Partition, *, read_committed: bool = False, max_bytes: int = 1 << 20
) -> list[tuple[BatchHeader, bytes]]:
    """Return everything that a reader may see, fetch by fetch."""
    found: list[tuple[BatchHeader, bytes]] = []
    offset = partition.log_start_offset
    end = partition.last_stable_offset if read_committed else partition.high_watermark
    while offset < end:
        result = await partition.leader().read(offset, max_bytes, read_committed=read_committed)
        batches = [(header, bytes(view)) for header, view in iter_batches(result.records)]
        assert batches, (offset, partition)
        found += batches
        offset = batches[-1][0].next_offset
    return found

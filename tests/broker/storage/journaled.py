"""A log with `log.flush=journal`, and what a test looks at."""

from uuid import UUID

from odradek.broker.partitions.partitions import Partition
from odradek.broker.storage import small_file
from odradek.broker.storage.checkpoint import (
    Checkpoint,
    encode_checkpoint,
    move_into_place,
    read_checkpoint,
    write_beside,
)
from odradek.broker.storage.config import FlushPolicy, LogConfig
from odradek.broker.storage.identity import IDENTITY, Identity, encode_identity
from odradek.broker.storage.journal import BrokerJournal
from odradek.broker.values.topic_partition import TopicPartition
from tests.broker.storage.samples import (
    PARTITION_DIRECTORY,
    TOPIC,
    TOPIC_ID,
    Machine,
    batch,
    read_all,
)
from tests.fakes.disk import FakeDisk

CONFIG = LogConfig(flush=FlushPolicy.JOURNAL)
LOG_FILE = f"{PARTITION_DIRECTORY}/{0:020}.log"
OTHER_ID = UUID(int=9)


def journaled(config: LogConfig = CONFIG) -> Machine:
    return Machine(config=config)


async def begun(machine: Machine) -> Partition:
    """Start, with a checkpoint that describes a record: from here on the journal has the rest."""
    partition = await machine.start()
    partition.leader().append_from_client(batch("first"))
    await partition.leader().wait_committed()
    await partition.checkpoint()
    return partition


def journal_of(machine: Machine) -> BrokerJournal:
    journal = machine.partitions._files.journal
    assert journal is not None
    return journal


async def values(partition: Partition) -> list[int]:
    return [header.base_offset for header, _ in await read_all(partition)]


def cuts(machine: Machine) -> list[str]:
    names = machine.disk.listdir(PARTITION_DIRECTORY)
    return [name for name in names if name.endswith(".cut")]


def kernel_writes(disk: FakeDisk, path: str) -> None:
    """Let a file reach the disk without an fsync."""
    inode = disk._file(path)
    inode.make_durable(inode.change_count)


async def checkpoint_of(disk: FakeDisk) -> Checkpoint:
    found = await read_checkpoint(disk, PARTITION_DIRECTORY)
    assert found is not None
    return found


async def put_checkpoint(disk: FakeDisk, checkpoint: Checkpoint) -> None:
    await write_beside(disk, PARTITION_DIRECTORY, encode_checkpoint(checkpoint))
    await move_into_place(disk, PARTITION_DIRECTORY)


async def identified(machine: Machine) -> None:
    """Write the file that a broker writes beside each log that it makes."""
    identity = Identity(
        where=TopicPartition(TOPIC, 0),
        topic_id=TOPIC_ID,
        partition_count=1,
        configs={},
        cluster_id="cluster",
    )
    path = f"{PARTITION_DIRECTORY}/{IDENTITY}"
    await small_file.write_beside(machine.disk, path, encode_identity(identity))
    await small_file.move_into_place(machine.disk, path)

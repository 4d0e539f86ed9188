"""Damaged files beside a sealed segment's batches: no reader notices them.

Kafka's formats of `.index`, `.timeindex` and `.txnindex` have no checksum, so a flipped bit may
leave plausible values.
"""

import logging
from collections.abc import Callable
from typing import Final

import msgpack
import pytest
from crc32c import crc32c

from odradek.broker.partitions.by_time import first_at
from odradek.broker.partitions.partition import Partition
from odradek.broker.storage.aborted import AbortedTxn
from odradek.broker.storage.checkpoint import CHECKPOINT
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.files import (
    ABORTED_INDEX,
    OFFSET_INDEX,
    SNAPSHOT,
    TIME_INDEX,
    file_path,
)
from odradek.broker.storage.timestamps import TimestampOffset
from tests.broker.storage.samples import PARTITION_DIRECTORY, Client, Machine
from tests.fakes.clock import START_MS

pytestmark = pytest.mark.slow

INDEXES: Final = (OFFSET_INDEX, TIME_INDEX, ABORTED_INDEX)
Answers = list[tuple[bytes, tuple[AbortedTxn, ...]] | TimestampOffset | None]


async def machine_with_sealed_segments() -> tuple[Machine, Partition]:
    """Return three segments; transactions begin, end and continue in the middle one."""
    machine = Machine(config=LogConfig(segment_bytes=1200, index_interval_bytes=100))
    partition = await machine.start()
    clients = [Client(partition, producer_id=number, is_transactional=True) for number in range(3)]
    number = 0
    while len(partition.log.segments) < 3:
        machine.clock.advance(10)
        client = clients[number % 3]
        client.send(f"value {number}")
        number += 1
        if number % 4 == 0:
            client.end(committed=number % 8 == 0)
    for client in clients:
        if partition.log.producers.has_open_transaction(client.producer_id):
            client.end(committed=client.producer_id == 1)
    await partition.flush()
    return machine, await machine.restart()


async def answers(partition: Partition) -> Answers:
    """Return the results of reads at every offset, and of timestamp look-ups."""
    found: Answers = []
    for offset in range(partition.log_end_offset):
        read = await partition.leader().read(offset, 300, read_committed=True)
        found.append((bytes(read.records), read.aborted))
    for timestamp_ms in range(START_MS, START_MS + 10 * partition.log_end_offset, 5):
        found.append(await first_at(partition.leader(), timestamp_ms, read_committed=True))
    return found


def middle(partition: Partition, suffix: str) -> str:
    return file_path(PARTITION_DIRECTORY, partition.log.segments[1].base_offset, suffix)


async def restarted_with(machine: Machine, path: str, content: bytes | None) -> Partition:
    """Stop the broker cleanly, replace a file, and start the broker."""
    await machine.stop()
    machine.disk.remove(path)
    if content is not None:
        machine.disk.open(path).append(content)
    return await machine.start()


@pytest.mark.parametrize("suffix", INDEXES)
async def test_a_flipped_bit_in_an_index_changes_no_answer(
    suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Intact data was unreadable until an operator removed the file, or it was read wrongly."""
    machine, partition = await machine_with_sealed_segments()
    expected = await answers(partition)
    path = middle(partition, suffix)
    content = machine.disk.bytes_of(path)
    assert content
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        partition = await restarted_with(machine, path, bytes(damaged))
        caplog.clear()
        assert await answers(partition) == expected, bit
        assert [record.message for record in caplog.records] == [
            f"{path} is damaged: rebuilding it from the log"
        ]
        await machine.stop()
        assert machine.disk.bytes_of(path) == content, bit
        partition = await machine.start()


@pytest.mark.parametrize("suffix", INDEXES)
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: None,
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2],
        lambda content: bytes(len(content)),
        lambda content: content + b"garbage",
    ],
    ids=["missing", "empty", "cut", "half", "zeros", "garbage appended"],
)
async def test_an_index_that_is_not_what_it_was_changes_no_answer(
    suffix: str, damage: Callable[[bytes], bytes | None]
) -> None:
    machine, partition = await machine_with_sealed_segments()
    expected = await answers(partition)
    path = middle(partition, suffix)
    content = machine.disk.bytes_of(path)
    partition = await restarted_with(machine, path, damage(content))
    read_before = machine.disk.read_bytes
    assert await answers(partition) == expected
    assert machine.disk.read_bytes > read_before
    partition = await machine.restart()
    assert await answers(partition) == expected
    assert machine.disk.bytes_of(path)[: len(content)] == content


async def test_all_indexes_and_snapshots_of_a_log_may_be_gone() -> None:
    """Even transactions that began in an earlier segment are found."""
    machine, partition = await machine_with_sealed_segments()
    expected = await answers(partition)
    await machine.stop()
    for name in machine.disk.listdir(PARTITION_DIRECTORY):
        if name.endswith((*INDEXES, SNAPSHOT)):
            machine.disk.remove(f"{PARTITION_DIRECTORY}/{name}")
    partition = await machine.start()
    assert await answers(partition) == expected
    partition = await machine.restart()
    assert await answers(partition) == expected


async def test_a_missing_index_does_not_cost_the_checkpoint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The broker read the whole log at the start, as if it had no checkpoint."""
    caplog.set_level(logging.WARNING)
    machine, partition = await machine_with_sealed_segments()
    await restarted_with(machine, middle(partition, OFFSET_INDEX), None)
    assert "0.0 MiB read" in machine.partitions.recovery_summary
    assert caplog.records == []


async def test_an_index_without_a_checksum_is_made_again() -> None:
    """A checkpoint of an older version has no checksums of the files."""
    machine, partition = await machine_with_sealed_segments()
    expected = await answers(partition)
    await machine.stop()
    path = f"{PARTITION_DIRECTORY}/{CHECKPOINT}"
    content = msgpack.unpackb(machine.disk.bytes_of(path)[4:])
    content["segments"] = [values[:-3] for values in content["segments"]]
    packed = msgpack.packb(content)
    machine.disk.remove(path)
    machine.disk.open(path).append(crc32c(packed).to_bytes(4, "big") + packed)
    partition = await machine.start()
    assert await answers(partition) == expected
    assert partition.log.reader.has_rebuilt

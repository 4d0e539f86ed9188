"""Compaction of bad bytes, and on a full disk."""

import logging
from dataclasses import replace
from itertools import accumulate

import pytest

from odradek.broker.partitions.upkeep.log_cleaner import LogCleaner
from odradek.broker.storage.damage import DamagedSegment
from odradek.protocol.batch import (
    CRC_START,
    iter_batches,
)
from odradek.protocol.compression import DECOMPRESSED_MAX_BYTES
from odradek.protocol.record import decode_batch
from tests.broker.storage.keyed import (
    KeyedClient,
    bomb,
    compact,
    compacted_machine,
    consume,
    keyed,
    newest,
    stored,
)


async def test_a_batch_that_is_a_bomb_stays_as_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No tombstone behind it is removed, because it might delete a record of the batch."""
    machine = compacted_machine(segment_bytes=100_000)
    machine.config = replace(machine.config, is_compacted=False)
    partition = await machine.start()
    partition.leader().append_from_client(keyed(("a", "1")))
    partition.leader().append_from_client(bomb())
    partition.leader().append_from_client(keyed(("a", "2"), ("gone", None)))
    partition.leader().append_from_client(keyed(("b", "1")))
    await partition.flush()
    machine.config = replace(machine.config, is_compacted=True)
    partition = await machine.restart()
    for _ in range(3):
        caplog.clear()
        partition.log.state.clean_offset = 0
        await compact(partition)
        machine.clock.advance(5000)
        (line,) = [
            record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
        ]
        assert "the batch at offset 1 cannot be compacted" in line
        assert f"more than {DECOMPRESSED_MAX_BYTES} bytes" in line
    first, *rest = await stored(partition)
    assert first[1] == bytes(bomb(1))
    assert [record.key for _, data in rest for record in decode_batch(data)] == [
        b"a",
        b"gone",
        b"b",
    ]


async def test_a_damaged_batch_is_not_copied_and_the_log_is_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = compacted_machine()
    partition = await machine.start()
    for number in range(30):
        partition.leader().append_from_client(keyed(("a", f"{number}")))
    await partition.flush()
    second = partition.log.segments[1]
    machine.disk.damage(second.path(), 70)
    cleaner = LogCleaner(lambda: [partition.maintenance])
    assert await cleaner.clean_what_is_due() == 0
    assert await cleaner.clean_what_is_due() == 0
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert f"{second.path()} is damaged at byte 0" in line
    assert partition.log.segments[1] is second
    assert f"{second.path()} is damaged" in (partition.log.reader.damage or "")


async def test_a_full_disk_ends_a_pass_and_nothing_else() -> None:
    machine = compacted_machine()
    partition = await machine.start()
    for number in range(30):
        partition.leader().append_from_client(keyed((f"{number % 20}", f"{number}")))
    await partition.flush()
    partition.log.roll()
    await partition.checkpoint()
    expected = newest(await consume(partition))
    machine.disk.capacity_bytes = machine.disk.used_bytes + 50
    cleaner = LogCleaner(lambda: [partition.maintenance])
    assert await cleaner.clean_what_is_due() == 0
    assert not [n for n in machine.disk.listdir(partition.log.directory) if "cleaned" in n]
    machine.disk.capacity_bytes = None
    assert await cleaner.clean_what_is_due() == 1
    assert newest(await consume(partition)) == expected
    assert partition.log.failure is None


async def test_compaction_does_not_make_a_flipped_bit_in_a_header_permanent() -> None:
    """A record at a wrong offset was copied, or removed as an older one."""
    machine = compacted_machine()
    partition = await machine.start()
    client = KeyedClient(partition)
    for number in range(20):
        client.send((f"key{number % 7}", f"value {number}"))
    await partition.flush()
    partition.log.roll()
    plan = partition.maintenance.plan()
    assert plan is not None
    segment = plan.segments[1]
    content = machine.disk.bytes_of(segment.path())
    names = machine.disk.listdir(partition.log.directory)
    places = [0, *accumulate(header.size_bytes for header, _ in iter_batches(content))]
    file = machine.disk.open(segment.path())
    for position in (places[0], places[1], places[-2]):  # the first batch, the second, the last
        for bit in range(8 * (CRC_START - 4)):
            at = position + (bit >> 3)
            file.write_at(at, bytes([content[at] ^ 1 << (bit & 7)]))
            with pytest.raises(DamagedSegment):
                await partition.maintenance.compact(plan)
            file.write_at(at, content[at : at + 1])
    assert machine.disk.bytes_of(segment.path()) == content
    assert machine.disk.listdir(partition.log.directory) == names
    assert await partition.maintenance.compact(plan) is not None

"""What compaction keeps and what it takes away, rule by rule."""

import logging
from dataclasses import replace
from itertools import accumulate

import pytest
import trio

from odradek.broker.partitions.log_cleaner import LogCleaner
from odradek.broker.partitions.maintenance import inline
from odradek.broker.storage.compaction.batches import delete_horizon
from odradek.broker.storage.compaction.plan import STATE_ROLL_BYTES
from odradek.broker.storage.decompressor import Decompressor
from odradek.broker.storage.segment import DamagedSegment
from odradek.broker.storage.timestamps import TimestampOffset
from odradek.broker.storage.validation import check_keys
from odradek.broker.turns import Turns
from odradek.protocol.batch import (
    CRC_START,
    HEADER,
    Codec,
    TimestampType,
    iter_batches,
    read_header,
    set_crc,
)
from odradek.protocol.compression import DECOMPRESSED_MAX_BYTES, compress
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record, decode_batch
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC
from tests.broker.storage.keyed import (
    CONFIG,
    KeyedClient,
    compact,
    compact_again_and_again,
    compacted_machine,
    consume,
    keyed,
    newest,
    stored,
)
from tests.broker.storage.samples import TOPIC_ID, Machine, batch
from tests.fakes.clock import START_MS


@pytest.mark.parametrize("codec", list(Codec))
async def test_what_stays_is_what_it_was(codec: Codec) -> None:
    """Offset, time, key, value, headers, and all of the batch's header but its size."""
    partition = await compacted_machine().start()
    client = KeyedClient(partition, codec=codec)
    client.send(("a", "1"), ("b", "1"), ("c", "1"))
    client.send(("b", "2"), ("a", "2"))
    await partition.flush()
    before = {record.offset: record for record in await consume(partition)}
    header, _ = (await stored(partition))[0]
    await compact(partition)
    after = await consume(partition)
    assert [record.offset for record in after] == [2, 3, 4]
    assert after == [before[record.offset] for record in after]
    left, data = (await stored(partition))[0]
    assert (left.base_offset, left.last_offset, left.record_count) == (0, 2, 1)
    assert left._replace(batch_length=0, crc=0, record_count=0) == header._replace(
        batch_length=0, crc=0, record_count=0
    )
    assert left.codec == codec
    assert len(data) < header.size_bytes or codec is not Codec.NONE


async def test_the_time_of_appending_stays() -> None:
    partition = await compacted_machine(
        message_timestamp_type=TimestampType.LOG_APPEND_TIME
    ).start()
    partition.append_from_client(keyed(("a", "1"), ("b", "1"), timestamp_ms=5))
    partition.append_from_client(keyed(("a", None), timestamp_ms=6))
    await compact(partition)
    assert {record.timestamp_ms for record in await consume(partition)} == {START_MS}


async def test_the_largest_time_of_a_batch_is_that_of_a_record_in_it() -> None:
    """That of a record that is gone would be found by its time, and keep the segment too long."""
    partition = await compacted_machine().start()
    late, early = START_MS + 5000, START_MS - 5000
    partition.append_from_client(keyed(("a", "1"), timestamp_ms=early))
    partition.append_from_client(keyed(("b", "1"), ("gone", "1"), timestamp_ms=late))
    partition.append_from_client(keyed(("gone", "2"), ("c", "1"), timestamp_ms=early))
    await compact(partition)
    times = {header.base_offset: header.max_timestamp for header, _ in await stored(partition)}
    assert times == {0: early, 1: late, 3: early + 1}
    found = await partition.max_timestamp()
    assert found == TimestampOffset(timestamp_ms=late, offset=1)


async def test_a_deletion_stays_for_delete_retention_ms() -> None:
    machine = compacted_machine(delete_retention_ms=1000)
    partition = await machine.start()
    client = KeyedClient(partition)
    client.send(("a", "1"))
    client.send(("a", None), ("b", "1"))
    client.send(("c", "1"))
    await compact(partition)
    (_, emptied), (header, data), *_ = [(None, None), *(await stored(partition))]
    assert emptied is None
    assert delete_horizon(header) == machine.clock.wall_ms() + 1000
    assert decode_batch(data) == [
        Record(b"a", None, (("number", b"0"),), START_MS, 1),
        Record(b"b", b"1", (("number", b"1"),), START_MS + 1, 2),
    ]
    machine.clock.advance(999)
    partition.log.state.clean_offset = 0
    await compact(partition)
    assert [record.key for record in await consume(partition)] == [b"a", b"b", b"c"]
    machine.clock.advance(1)
    partition.log.state.clean_offset = 0
    await compact(partition)
    assert [record.key for record in await consume(partition)] == [b"b", b"c"]


async def test_nothing_at_or_above_the_last_stable_offset_is_touched() -> None:
    """KAFKA-13194: it lies inside a segment that is sealed."""
    partition = await compacted_machine().start()
    plain = KeyedClient(partition)
    open_one = KeyedClient(partition, producer_id=2, is_transactional=True)
    for number in range(10):
        plain.send(("a", f"{number}"))
    open_one.send(("b", "1"))
    for number in range(10):
        plain.send(("a", f"{number}"))
    await partition.flush()
    partition.log.roll()
    stable = partition.last_stable_offset
    plan = partition.plan_compaction()
    assert plan is not None
    assert plan.segments
    assert plan.segments[-1].next_offset <= stable < partition.log.segments[-1].base_offset
    await compact(partition)
    offsets = [record.offset for record in await consume(partition, read_committed=False)]
    assert offsets[-11:] == list(range(stable, stable + 11))
    assert offsets[0] > 0


async def test_the_active_segment_and_young_ones_are_not_compacted() -> None:
    machine = compacted_machine(min_compaction_lag_ms=5000)
    partition = await machine.start()
    client = KeyedClient(partition)
    for number in range(30):
        client.send(("a", f"{number}"))
    await partition.flush()
    plan = partition.plan_compaction()
    assert plan is not None
    assert plan.segments == ()
    machine.clock.advance(5001)
    plan = partition.plan_compaction()
    assert plan is not None
    assert list(plan.segments) == partition.log.segments[:-1]
    assert plan.is_due


async def test_a_log_is_due_when_half_of_it_is_dirty_or_it_is_overdue() -> None:
    machine = compacted_machine(min_cleanable_dirty_ratio=0.5, max_compaction_lag_ms=60_000)
    partition = await machine.start()
    client = KeyedClient(partition)
    cleaner = LogCleaner([partition])
    for number in range(60):
        client.send((f"key {number}", "1"))
    await partition.flush()
    assert await cleaner.clean_what_is_due() == 1
    assert await cleaner.clean_what_is_due() == 0
    for number in range(10):
        client.send((f"key {number}", "2"))
    await partition.flush()
    assert await cleaner.clean_what_is_due() == 0
    machine.clock.advance(60_001)
    assert await cleaner.clean_what_is_due() == 1  # what was active is rolled, too
    assert len(await consume(partition)) == 60
    assert partition.log.state.clean_offset == partition.log_end_offset


async def test_the_active_segment_of_a_state_topic_rolls_when_compaction_would_pay() -> None:
    machine = Machine()
    await machine.start()
    config = replace(CONFIG, segment_bytes=100 * STATE_ROLL_BYTES, min_cleanable_dirty_ratio=0.5)
    state = await machine.partitions.create(TRANSACTION_STATE_TOPIC, TOPIC_ID, 0, config)
    cleaner = LogCleaner([state])
    sizes = []
    for round_number in range(12):
        for number in range(STATE_ROLL_BYTES // 4000):
            state.append_records([Record(b"%d" % (number % 10), b"%d" % round_number * 1000)])
        await state.flush()
        await cleaner.clean_what_is_due()
        sizes.append(state.log.size_bytes)
    assert max(sizes) < 1.1 * STATE_ROLL_BYTES
    assert len(newest(await consume(state))) == 10


async def test_a_small_map_takes_several_passes() -> None:
    """KAFKA-13727, KAFKA-8351, KAFKA-6854: transactions over segments and passes. What was aborted
    became readable with the index of the segment that had gone."""
    machine = compacted_machine()
    partition = await machine.start()
    plain = KeyedClient(partition)
    aborted = KeyedClient(partition, producer_id=2, is_transactional=True)
    committed = KeyedClient(partition, producer_id=3, is_transactional=True)
    for number in range(8):  # over three segments at least
        aborted.send((f"key {number}", "aborted"))
        committed.send((f"other {number % 3}", f"{number}"))
        plain.send((f"key {number % 4}", f"{number}"))
    aborted.end(committed=False)
    committed.end(committed=True)
    await partition.flush()
    assert len(partition.log.segments) > 3
    expected = newest(await consume(partition))
    passes = 0
    while partition.log.state.clean_offset < partition.log_end_offset:
        before = partition.log.state.clean_offset
        await compact(partition, map_bytes=400)
        assert partition.log.state.clean_offset > before
        assert newest(await consume(partition)) == expected
        assert await partition.log.aborted(0, partition.log_end_offset)
        passes += 1
    assert passes > 3
    partition = await machine.restart_after_power_loss()
    assert newest(await consume(partition)) == expected
    assert len(await consume(partition)) == len(expected)  # no key was passed over
    assert partition.last_stable_offset == partition.log_end_offset


async def test_a_marker_goes_after_all_data_of_its_transaction() -> None:
    """KAFKA-13727, KAFKA-8351: it went first, and the transaction was open again or committed."""
    machine = compacted_machine()
    partition = await machine.start()
    client = KeyedClient(partition, producer_id=2, is_transactional=True)
    client.send(("a", "1"))
    client.end(committed=True)
    client.send(("a", "2"))
    client.end(committed=False)
    client.send(("b", "1"))
    client.end(committed=True)
    KeyedClient(partition, producer_id=7).send(("a", "3"))

    async def markers() -> list[int]:
        return [header.base_offset for header, _ in await stored(partition) if header.is_control]

    await compact(partition)
    assert await markers() == [1, 3, 5]  # their data was there when the pass began
    assert len(await partition.log.aborted(0, partition.log_end_offset)) == 1
    await compact_again_and_again(partition, machine, 1)
    assert await markers() == [1, 3, 5]  # their delete horizon has not passed
    await compact_again_and_again(partition, machine, 1)
    assert await markers() == [5]
    assert await partition.log.aborted(0, partition.log_end_offset) == ()


async def test_a_marker_stays_as_long_as_its_data() -> None:
    """KAFKA-8351, KAFKA-6854: it was removed, and the transaction hung, or was thought to be
    another's part."""
    machine = compacted_machine()
    partition = await machine.start()
    client = KeyedClient(partition, producer_id=2, is_transactional=True)
    client.send(("a", "1"))
    client.end(committed=True)
    client.send(("b", "1"), ("c", "1"))
    client.end(committed=True)
    client.send(("c", "2"))
    client.end(committed=False)
    client.send(("c", "3"))
    client.end(committed=True)
    await compact(partition)
    await compact_again_and_again(partition, machine)
    kept = [(header.base_offset, header.is_control) for header, _ in await stored(partition)]
    assert kept == [(0, False), (1, True), (2, False), (4, True), (7, False), (8, True)]
    machine.disk.remove(f"{partition.log.directory}/checkpoint")
    partition = await machine.restart_after_kill()
    assert partition.last_stable_offset == partition.log_end_offset == 9
    assert newest(await consume(partition)) == {"a": (0, "1"), "b": (2, "1"), "c": (7, "3")}


async def test_markers_of_transactions_without_records_go() -> None:
    """KAFKA-10702: but the last of a producer, which has its epoch, stays."""
    machine = compacted_machine()
    partition = await machine.start()
    client = KeyedClient(partition, producer_id=2, is_transactional=True)
    for number in range(20):
        client.end(committed=number % 2 == 0)
    KeyedClient(partition, producer_id=3).send(("a", "1"))
    await compact(partition)
    await compact_again_and_again(partition, machine)
    left = [header.producer_epoch for header, _ in await stored(partition) if header.is_control]
    assert left == [20]
    assert await partition.log.aborted(0, partition.log_end_offset) == ()
    machine.disk.remove(f"{partition.log.directory}/checkpoint")
    partition = await machine.restart_after_kill()
    assert partition.log.producers.entries[2].epoch == 20


async def test_the_last_batch_of_a_producer_stays_until_it_is_forgotten() -> None:
    machine = compacted_machine(producer_id_expiration_ms=10_000)
    partition = await machine.start()
    idle, busy = KeyedClient(partition, producer_id=1), KeyedClient(partition, producer_id=2)
    idle.send(("a", "1"), ("a", "2"))
    busy.send(("a", "3"))
    busy.send(("b", "1"))
    await compact(partition)
    header, _ = (await stored(partition))[0]
    assert (header.producer_id, header.record_count, header.last_sequence) == (1, 0, 1)
    assert [record.offset for record in await consume(partition, max_bytes=61)] == [2, 3]
    machine.disk.remove(f"{partition.log.directory}/checkpoint")
    partition = await machine.restart_after_kill()
    idle.partition = partition
    idle.send(("c", "1"))  # its sequence goes on
    machine.clock.advance(10_001)
    assert sorted(partition.expire_producers()) == [1, 2]
    await compact(partition)
    assert all(header.record_count for header, _ in await stored(partition))


async def test_small_segments_become_one() -> None:
    partition = await compacted_machine(segment_bytes=1000).start()
    client = KeyedClient(partition)
    for number in range(60):
        client.send((f"{number % 3}", f"{number}"))
    await compact(partition)
    assert len(partition.log.segments) > 3
    partition.log.state.clean_offset = 0
    await compact(partition)
    first, active = partition.log.segments
    assert (first.base_offset, first.next_offset) == (0, active.base_offset)
    assert partition.log_start_offset == 0


async def test_a_reader_goes_on_with_what_is_there() -> None:
    """One that is in the middle of a segment while another takes its place."""
    partition = await compacted_machine().start()
    client = KeyedClient(partition)
    for number in range(40):
        client.send((f"{number % 3}", f"{number}"))
    await partition.flush()
    expected = newest(await consume(partition))
    found: list[Record] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(compact, partition)
        offset = 0
        while offset < 40:
            result = await partition.read(offset, 100, read_committed=True)
            for header, view in iter_batches(result.records):
                found += decode_batch(view)
                offset = header.next_offset
    assert newest(found) == expected
    assert [record.offset for record in found] == sorted({record.offset for record in found})


async def test_loading_ends_where_the_tail_was_compacted_away() -> None:
    """KAFKA-9065: nothing is left but the header of the last batch, and the active one is empty."""
    machine = compacted_machine()
    partition = await machine.start()
    for number in range(20):
        partition.append_from_client(keyed((f"{number % 2}", f"{number}")))
    for number in range(2):
        partition.append_from_client(keyed((f"{number}", None)))
    await compact(partition)
    await compact_again_and_again(partition, machine)
    assert partition.log.active.size_bytes == 0
    ((header, _),) = await stored(partition)
    assert (header.record_count, header.next_offset) == (0, partition.log_end_offset)
    for offset in range(partition.log_end_offset):
        read = await partition.read(offset, 1, read_committed=True)
        ((found, _),) = iter_batches(read.records)
        assert found == header
    assert await partition.offset_for_timestamp(0) is None
    assert await partition.max_timestamp() is None


async def test_a_batch_that_is_a_bomb_stays_as_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And no deletion behind it is forgotten: it might delete what is in there."""
    machine = compacted_machine(segment_bytes=100_000)
    machine.config = replace(machine.config, is_compacted=False)
    partition = await machine.start()
    partition.append_from_client(keyed(("a", "1")))
    partition.append_from_client(bomb())
    partition.append_from_client(keyed(("a", "2"), ("gone", None)))
    partition.append_from_client(keyed(("b", "1")))
    await partition.flush()
    machine.config = replace(machine.config, is_compacted=True)
    partition = await machine.restart()
    for _ in range(3):
        caplog.clear()
        partition.log.state.clean_offset = 0
        await compact(partition)
        machine.clock.advance(5000)
        (line,) = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
        assert "the batch at offset 1 cannot be compacted" in line
        assert f"more than {DECOMPRESSED_MAX_BYTES} bytes" in line
    first, *rest = await stored(partition)
    assert first[1] == bytes(bomb(1))
    assert [record.key for _, data in rest for record in decode_batch(data)] == [
        b"a",
        b"gone",
        b"b",
    ]


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


async def test_a_damaged_batch_is_not_copied_and_the_log_is_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = compacted_machine()
    partition = await machine.start()
    for number in range(30):
        partition.append_from_client(keyed(("a", f"{number}")))
    await partition.flush()
    second = partition.log.segments[1]
    machine.disk.damage(second.path(), 70)
    cleaner = LogCleaner([partition])
    assert await cleaner.clean_what_is_due() == 0
    assert await cleaner.clean_what_is_due() == 0
    (line,) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert f"{second.path()} is damaged at byte 0" in line
    assert partition.log.segments[1] is second


async def test_a_full_disk_ends_a_pass_and_nothing_else() -> None:
    machine = compacted_machine()
    partition = await machine.start()
    for number in range(30):
        partition.append_from_client(keyed((f"{number % 20}", f"{number}")))
    await partition.flush()
    partition.log.roll()
    await partition.checkpoint()
    expected = newest(await consume(partition))
    machine.disk.capacity_bytes = machine.disk.used_bytes + 50
    cleaner = LogCleaner([partition])
    assert await cleaner.clean_what_is_due() == 0
    assert not [n for n in machine.disk.listdir(partition.log.directory) if "cleaned" in n]
    machine.disk.capacity_bytes = None
    assert await cleaner.clean_what_is_due() == 1
    assert newest(await consume(partition)) == expected
    assert partition.log.failure is None


async def test_compact_and_delete_do_both() -> None:
    machine = compacted_machine(is_limited=True, retention_ms=10_000)
    partition = await machine.start()
    for number in range(30):
        partition.append_from_client(keyed((f"{number % 3}", f"{number}")))
    await compact(partition)
    assert len(await consume(partition)) == 3
    machine.clock.advance(10_001)
    await partition.enforce_retention()
    assert await consume(partition) == []
    assert partition.log_start_offset == partition.log_end_offset == 30


async def test_a_compacted_topic_has_no_retention() -> None:
    machine = compacted_machine(retention_ms=1, retention_bytes=0)
    partition = await machine.start()
    for number in range(30):
        partition.append_from_client(keyed((f"{number}", "1")))
    await partition.flush()
    machine.clock.advance(10_000)
    await partition.enforce_retention()
    assert len(await consume(partition)) == 30


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_a_record_without_a_key_is_refused(codec: Codec) -> None:
    async def check(data: memoryview) -> None:
        await check_keys(read_header(data), data, Decompressor(inline), Turns())

    with pytest.raises(KafkaError, match="record 0 has no key") as refused:
        await check(batch("x", codec=codec))
    assert refused.value.code is ErrorCode.INVALID_RECORD
    await check(keyed(("", "an empty key is a key"), codec=codec))
    with pytest.raises(KafkaError, match=r"cannot be read: .*more than") as refused:
        await check(bomb())
    assert refused.value.code is ErrorCode.INVALID_RECORD


async def test_compaction_does_not_make_a_flipped_bit_in_a_header_permanent() -> None:
    """The record at a wrong offset was copied, or taken for an older one and let go."""
    machine = compacted_machine()
    partition = await machine.start()
    client = KeyedClient(partition)
    for number in range(20):
        client.send((f"key{number % 7}", f"value {number}"))
    await partition.flush()
    partition.log.roll()
    plan = partition.plan_compaction()
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
                await partition.compact(plan)
            file.write_at(at, content[at : at + 1])
    assert machine.disk.bytes_of(segment.path()) == content
    assert machine.disk.listdir(partition.log.directory) == names
    assert await partition.compact(plan) is not None

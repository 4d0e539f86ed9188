"""The rules of compaction, one by one: which records stay and which are removed."""

import pytest
import trio

from odradek.broker.environment.env import inline
from odradek.broker.partitions.by_time import first_at, largest
from odradek.broker.storage.compaction.batches import delete_horizon
from odradek.broker.storage.decompressor import Decompressor
from odradek.broker.storage.record_check import RefusedRecords
from odradek.broker.storage.timestamps import TimestampOffset
from odradek.protocol.batch import (
    Codec,
    TimestampType,
    iter_batches,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record, decode_batch
from tests.broker.storage.keyed import (
    KeyedClient,
    bomb,
    check_keys,
    compact,
    compact_again_and_again,
    compacted_machine,
    consume,
    keyed,
    newest,
    stored,
)
from tests.broker.storage.samples import batch
from tests.fakes.clock import START_MS


@pytest.mark.parametrize("codec", list(Codec))
async def test_what_stays_is_what_it_was(codec: Codec) -> None:
    """Offset, timestamp, key, value, headers, and all header fields of the batch but its size."""
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
    partition.leader().append_from_client(keyed(("a", "1"), ("b", "1"), timestamp_ms=5))
    partition.leader().append_from_client(keyed(("a", None), timestamp_ms=6))
    await compact(partition)
    assert {record.timestamp_ms for record in await consume(partition)} == {START_MS}


async def test_the_largest_time_of_a_batch_is_that_of_a_record_in_it() -> None:
    """The timestamp of a removed record would be found, and would keep the segment too long."""
    partition = await compacted_machine().start()
    late, early = START_MS + 5000, START_MS - 5000
    partition.leader().append_from_client(keyed(("a", "1"), timestamp_ms=early))
    partition.leader().append_from_client(keyed(("b", "1"), ("gone", "1"), timestamp_ms=late))
    partition.leader().append_from_client(keyed(("gone", "2"), ("c", "1"), timestamp_ms=early))
    await compact(partition)
    times = {header.base_offset: header.max_timestamp for header, _ in await stored(partition)}
    assert times == {0: early, 1: late, 3: early + 1}
    found = await largest(partition.leader())
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
    """KAFKA-13194: the last stable offset lies inside a sealed segment."""
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
    plan = partition.maintenance.plan()
    assert plan is not None
    assert plan.segments
    assert plan.segments[-1].next_offset <= stable < partition.log.segments[-1].base_offset
    await compact(partition)
    offsets = [record.offset for record in await consume(partition, read_committed=False)]
    assert offsets[-11:] == list(range(stable, stable + 11))
    assert offsets[0] > 0


async def test_a_small_map_takes_several_passes() -> None:
    """KAFKA-13727, KAFKA-8351, KAFKA-6854: transactions over several segments and passes.

    Aborted records became readable when the index of the replaced segment was lost.
    """
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
        assert await partition.log.reader.aborted(0, partition.log_end_offset)
        passes += 1
    assert passes > 3
    partition = await machine.restart_after_power_loss()
    assert newest(await consume(partition)) == expected
    assert len(await consume(partition)) == len(expected)  # no key was passed over
    assert partition.last_stable_offset == partition.log_end_offset


async def test_a_reader_goes_on_with_what_is_there() -> None:
    """A reader is in the middle of a segment when another segment replaces it."""
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
            result = await partition.leader().read(offset, 100, read_committed=True)
            for header, view in iter_batches(result.records):
                found += decode_batch(view)
                offset = header.next_offset
    assert newest(found) == expected
    assert [record.offset for record in found] == sorted({record.offset for record in found})


async def test_loading_ends_where_the_tail_was_compacted_away() -> None:
    """KAFKA-9065: only the header of the last batch is left, and the active segment is empty."""
    machine = compacted_machine()
    partition = await machine.start()
    for number in range(20):
        partition.leader().append_from_client(keyed((f"{number % 2}", f"{number}")))
    for number in range(2):
        partition.leader().append_from_client(keyed((f"{number}", None)))
    await compact(partition)
    await compact_again_and_again(partition, machine)
    assert partition.log.active.size_bytes == 0
    ((header, _),) = await stored(partition)
    assert (header.record_count, header.next_offset) == (0, partition.log_end_offset)
    for offset in range(partition.log_end_offset):
        read = await partition.leader().read(offset, 1, read_committed=True)
        ((found, _),) = iter_batches(read.records)
        assert found == header
    assert await first_at(partition.leader(), 0) is None
    assert await largest(partition.leader()) is None


async def test_compact_and_delete_do_both() -> None:
    machine = compacted_machine(is_limited=True, retention_ms=10_000)
    partition = await machine.start()
    for number in range(30):
        partition.leader().append_from_client(keyed((f"{number % 3}", f"{number}")))
    await compact(partition)
    assert len(await consume(partition)) == 3
    machine.clock.advance(10_001)
    await partition.maintenance.enforce_retention()
    assert await consume(partition) == []
    assert partition.log_start_offset == partition.log_end_offset == 30


async def test_a_compacted_topic_has_no_retention() -> None:
    machine = compacted_machine(retention_ms=1, retention_bytes=0)
    partition = await machine.start()
    for number in range(30):
        partition.leader().append_from_client(keyed((f"{number}", "1")))
    await partition.flush()
    machine.clock.advance(10_000)
    await partition.maintenance.enforce_retention()
    assert len(await consume(partition)) == 30


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_a_record_without_a_key_is_refused(codec: Codec) -> None:
    async def check(data: memoryview) -> None:
        await check_keys(data, Decompressor(inline))

    with pytest.raises(KafkaError, match="message without key in topic part") as refused:
        await check(batch("x", codec=codec))
    assert isinstance(refused.value, RefusedRecords)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    await check(keyed(("", "an empty key is a key"), codec=codec))
    with pytest.raises(KafkaError, match=r"cannot be read: .*more than") as refused:
        await check(bomb())
    assert refused.value.code is ErrorCode.INVALID_RECORD

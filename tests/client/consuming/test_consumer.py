"""What a consumer hands out when a part of what was fetched cannot or shall not be handed out."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from odradek.broker.storage.compaction.batches import emptied
from odradek.client import Consumer, OffsetOutOfRange, Refused, TopicPartition
from odradek.protocol.apis.fetch import FETCH, FetchPartition, PartitionData
from odradek.protocol.apis.group_offsets import OFFSET_FETCH
from odradek.protocol.batch import read_header
from odradek.protocol.errors import ErrorCode
from tests.client.consuming.test_fetched import data
from tests.client.fake_broker import ADDRESS, FakeBroker, refused
from tests.client.fake_group import FakeGroup

PLACE = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
THREE = data(0, b"0", b"1", b"2")

Read = Callable[[FetchPartition], PartitionData | None]


@asynccontextmanager
async def reading(
    broker: FakeBroker, *places: TopicPartition, prefetch_bytes: int = 1 << 20
) -> AsyncIterator[Consumer]:
    """A consumer at the beginning of these partitions."""
    async with Consumer(ADDRESS, connect=broker.connect, prefetch_bytes=prefetch_bytes) as consumer:
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        yield consumer


def part(partition: int, records: bytes, code: ErrorCode = ErrorCode.NONE) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        error_code=code,
        high_watermark=100,
        last_stable_offset=100,
        log_start_offset=0,
        aborted_transactions=None,
        records=records,
    )


def only_at_once(*partitions: bytes) -> Read:
    """Each partition has this from offset 0 on, and nothing follows."""

    def read(wanted: FetchPartition) -> PartitionData | None:
        is_there = wanted.partition < len(partitions) and wanted.fetch_offset < 3
        return part(wanted.partition, partitions[wanted.partition]) if is_there else None

    return read


def damaged_behind_three() -> bytes:
    records = bytearray(THREE + data(3, b"damaged"))
    records[-3] ^= 1
    return bytes(records)


async def test_what_is_before_a_damaged_batch_is_handed_out_before_that_is_told(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    """The batch was tried again and again, in a loop without a checkpoint."""
    fake_broker.read = only_at_once(damaged_behind_three(), THREE)
    async with reading(fake_broker, PLACE, OTHER) as consumer:
        assert [record.value for record in await consumer.poll()] == [b"0", b"1", b"2"]
        with pytest.raises(Refused, match="seek to 4"):
            await consumer.poll()
        consumer.seek(PLACE, 4)
        assert {record.partition for record in await consumer.poll()} == {1}


async def test_batches_before_a_damaged_one_are_not_lost(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    """The position was behind them, but only the error was raised."""
    fake_broker.read = only_at_once(damaged_behind_three())
    async with reading(fake_broker, PLACE) as consumer:
        (batch,) = await consumer.fetch_batches()
        assert bytes(batch.data) == THREE
        with pytest.raises(Refused, match="seek to 4"):
            await consumer.fetch_batches()


async def test_the_rest_of_a_batch_is_given_as_a_batch(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    """`fetch_batches` after a `poll` of a part of a batch lost the rest."""
    fake_broker.read = only_at_once(THREE)
    async with reading(fake_broker, PLACE) as consumer:
        assert [record.value for record in await consumer.poll(max_records=1)] == [b"0"]
        (batch,) = await consumer.fetch_batches()
        assert (bytes(batch.data), batch.start_offset) == (THREE, 1)
        assert await consumer.position(PLACE) == 3


async def test_what_an_iteration_leaves_does_not_wait_for_a_long_poll(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    """It was fetched again only after the long poll for the records behind it had ended."""
    fake_broker.read = only_at_once(THREE)
    async with reading(fake_broker, PLACE) as consumer:
        assert (await anext(consumer)).offset == 0
        await trio.sleep(1)  # the long poll is under way
        (batch,) = await consumer.fetch_batches()
        assert batch.start_offset == 1


async def test_an_iteration_hands_out_nothing_of_what_is_paused(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    """The iteration went on with the records that it had taken before."""
    fake_broker.read = only_at_once(THREE, THREE)
    async with reading(fake_broker, PLACE, OTHER) as consumer:
        first = await anext(consumer)
        paused = TopicPartition(first.topic, first.partition)
        consumer.pause(paused)
        found = [await anext(consumer) for _ in range(3)]
        assert {record.partition for record in found} == {1 - first.partition}
        assert await consumer.position(paused) == 1
        consumer.resume(paused)
        assert [(await anext(consumer)).offset for _ in range(2)] == [1, 2]


async def test_resuming_what_is_not_paused_takes_no_fetch_back(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    """A `resume` before each poll took the fetch back, if it took longer than a poll."""
    async with reading(fake_broker, PLACE) as consumer:
        for _ in range(3):
            consumer.resume()
            assert await consumer.poll(100) == []
        assert len(fake_broker.asked(FETCH)) == 1


async def test_an_iteration_passes_over_fetches_without_records(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    """Two were there before it looked, and it waited for a third."""
    of_compacted = bytes(emptied(read_header(data(1, b"1", b"2"))))
    answers = {0: data(0, b"0"), 1: of_compacted, 3: data(3, b"3")}

    def read(wanted: FetchPartition) -> PartitionData | None:
        records = answers.get(wanted.fetch_offset)
        return None if records is None else part(wanted.partition, records)

    fake_broker.read = read
    async with reading(fake_broker, PLACE) as consumer:
        assert (await anext(consumer)).offset == 0
        await trio.sleep(1)  # until both of the others are there
        with trio.fail_after(60):
            assert (await anext(consumer)).offset == 3


async def test_an_iteration_that_has_read_all_there_was_room_for_goes_on(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    """What it had read to its end took the room of the next fetch, for minutes."""
    fake_broker.read = lambda wanted: part(wanted.partition, data(wanted.fetch_offset, b"one"))
    async with reading(fake_broker, PLACE, prefetch_bytes=1) as consumer:
        with trio.fail_after(60):
            assert [(await anext(consumer)).offset for _ in range(40)] == list(range(40))


async def test_an_offset_that_goes_while_records_wait_is_not_asked_for_all_the_time(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    """The broker answers at once, and so the consumer asked as fast as both can."""

    def read(wanted: FetchPartition) -> PartitionData:
        assert len(fake_broker.requests) < 100
        if wanted.fetch_offset == 0:
            return part(wanted.partition, THREE)
        return part(wanted.partition, b"", ErrorCode.OFFSET_OUT_OF_RANGE)

    fake_broker.read = read
    async with reading(fake_broker, PLACE) as consumer:
        assert len(await consumer.poll(max_records=1)) == 1
        await trio.sleep(1)
        assert len(await consumer.poll()) == 2


async def test_a_partition_whose_offset_is_not_known_yet_does_not_hold_up_the_others(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """A transaction with its offset was open, and nothing else was fetched for a minute."""
    group = FakeGroup(nursery)
    group.read = lambda wanted: part(wanted.partition, data(wanted.fetch_offset, b"a"))
    unstable = refused(ErrorCode.UNSTABLE_OFFSET_COMMIT)
    async with Consumer(ADDRESS, connect=group.connect, group_id="g") as consumer:
        consumer.assign([PLACE])
        consumer.seek(PLACE, 0)
        await consumer.poll()
        group.next(OFFSET_FETCH, *[unstable] * 1_000)
        consumer.assign([PLACE, OTHER])
        with trio.fail_after(5):
            count = 0
            while count < 100:
                count += len(await consumer.poll())


@pytest.mark.parametrize("comes_later", [False, True])
async def test_an_offset_in_an_open_transaction_holds_up_no_partition_that_comes_too(
    comes_later: bool, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """The transaction of a member that died held up all partitions of its successor."""
    group = FakeGroup(nursery)
    group.committed = {PLACE: 7, OTHER: 5}

    def read(wanted: FetchPartition) -> PartitionData | None:
        is_there = wanted.fetch_offset < 8
        return part(wanted.partition, data(wanted.fetch_offset, b"a")) if is_there else None

    group.read = read
    group.unstable = {OTHER}
    async with Consumer(ADDRESS, connect=group.connect, group_id="g") as consumer:
        if comes_later:
            consumer.assign([OTHER])
            assert await consumer.poll() == []
        consumer.assign([OTHER, PLACE])
        with trio.fail_after(5):
            assert {record.partition for record in await consumer.poll(5_000)} == {PLACE.partition}
        assert OTHER not in consumer.positions()
        group.unstable.clear()
        with trio.fail_after(5):
            found: dict[int, int] = {}
            while OTHER.partition not in found:
                for record in await consumer.poll(100):
                    found.setdefault(record.partition, record.offset)
                group.disconnect()  # the long poll of the other one
        assert found[OTHER.partition] == 5


async def test_a_partition_without_stored_offset_is_no_error_of_an_offset_that_is_unstable(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    group = FakeGroup(nursery)
    group.committed, group.unstable = {OTHER: 5}, {OTHER}
    group.read = lambda wanted: part(wanted.partition, data(wanted.fetch_offset, b"a"))
    async with Consumer(
        ADDRESS, connect=group.connect, group_id="g", auto_offset_reset="error"
    ) as consumer:
        consumer.assign([PLACE, OTHER])
        with pytest.raises(OffsetOutOfRange, match="no stored offset for t-0;"):
            await consumer.poll()
        consumer.seek(PLACE, 0)
        assert {record.partition for record in await consumer.poll()} == {PLACE.partition}
        consumer.pause(PLACE)
        group.unstable.clear()
        with trio.fail_after(10):
            while not (records := await consumer.poll(1_000)):
                pass
        assert records[0][1:3] == (OTHER.partition, 5)


async def test_a_partition_that_goes_while_its_position_is_looked_up_is_not_assigned(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    group = FakeGroup(nursery)
    group.unstable = {PLACE}
    async with Consumer(ADDRESS, connect=group.connect, group_id="g") as consumer:
        consumer.assign([PLACE])

        async def unassign() -> None:
            await trio.sleep(1)
            consumer.assign([])
            group.unstable.clear()

        nursery.start_soon(unassign)
        with pytest.raises(Refused, match="t-0 is not assigned"):
            await consumer.position(PLACE)

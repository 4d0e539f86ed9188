"""Deserializers: what records then have, and what becomes of a record that they cannot read."""

# ruff: noqa: PT012 - what raises here may be an iteration, so the loop is the statement

import json
from collections.abc import Callable
from typing import Any, assert_type

import pytest
from trio.testing import MockClock

from odradek.client import Consumer, ConsumerRecord, PoisonRecord, Refused, TopicPartition
from odradek.client.blocking import Consumer as BlockingConsumer
from odradek.client.consuming.deserializing import Deserializers
from odradek.protocol.record import Record, encode_batch
from tests.client.consuming.test_consumer import OTHER, PLACE, only_at_once
from tests.client.consuming.test_fetched import data
from tests.client.fake_broker import ADDRESS, FakeBroker

NUMBERS = data(0, b"0", b"one", b"2")
GOOD = data(0, b"3", b"4", b"5")


def tombstone() -> bytes:
    return bytes(encode_batch([Record(key=b"k", value=None)]))


def numbers_of(
    broker: FakeBroker,
    *places: TopicPartition,
    on_error: Callable[[PoisonRecord], object] | None = None,
) -> Consumer[bytes, int]:
    consumer = Consumer(ADDRESS, value_deserializer=int, on_error=on_error, connect=broker.connect)
    consumer.assign(places)
    for place in places:
        consumer.seek(place, 0)
    return consumer


def values_of(records: list[ConsumerRecord[bytes, int]]) -> list[int | None]:
    return [record.value for record in records]


async def test_a_record_has_what_the_deserializer_returns(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    fake_broker.read = only_at_once(GOOD)
    async with numbers_of(fake_broker, PLACE) as consumer:
        records = await consumer.poll()
        assert_type(records, list[ConsumerRecord[bytes, int]])
        assert_type(records[0].value, int | None)
        assert values_of(records) == [3, 4, 5]


@pytest.mark.parametrize("name", ["key_deserializer", "value_deserializer", "on_error"])
def test_an_async_function_is_refused_because_nothing_would_await_it(name: str) -> None:
    """A record would be skipped although its `on_error` has not run."""

    async def later(_: object) -> None: ...

    options: Any = {name: later}
    with pytest.raises(ValueError, match="plain functions"):
        Consumer(ADDRESS, **options)


async def test_a_tombstone_stays_none(autojump_clock: MockClock, fake_broker: FakeBroker) -> None:
    fake_broker.read = only_at_once(tombstone())
    async with Consumer(
        ADDRESS,
        key_deserializer=bytes.decode,
        value_deserializer=json.loads,
        connect=fake_broker.connect,
    ) as consumer:
        consumer.assign([PLACE])
        consumer.seek(PLACE, 0)
        record = (await consumer.poll())[0]
        assert_type(record, ConsumerRecord[str, Any])
        assert (record.key, record.value) == ("k", None)


def test_without_deserializers_records_have_bytes() -> None:
    assert_type(Consumer(ADDRESS), Consumer[bytes, bytes])
    assert_type(BlockingConsumer(ADDRESS, key_deserializer=len), BlockingConsumer[int, bytes])


async def test_the_error_of_a_poison_record_has_its_place_its_bytes_and_the_cause(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    fake_broker.read = only_at_once(NUMBERS)
    async with numbers_of(fake_broker, PLACE) as consumer:
        assert values_of(await consumer.poll()) == [0]
        with pytest.raises(PoisonRecord, match=r"the value of t-0 at offset 1 .* seek to 2") as got:
            await consumer.poll()
        error = got.value
        assert (error.place, error.offset, error.part) == (PLACE, 1, "value")
        assert (error.topic, error.partition) == PLACE
        assert error.record.value == b"one"
        assert isinstance(error.__cause__, ValueError)
        assert isinstance(error, Refused)
        copy = error.copy()
        assert (str(copy), copy.__cause__, copy.record) == (
            str(error),
            error.__cause__,
            error.record,
        )


async def test_the_position_stays_at_a_poison_record_until_a_seek_goes_on(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    fake_broker.read = only_at_once(NUMBERS)
    async with numbers_of(fake_broker, PLACE) as consumer:
        assert values_of(await consumer.poll()) == [0]
        for _ in range(2):
            with pytest.raises(PoisonRecord) as got:
                await consumer.poll()
            assert await consumer.position(PLACE) == 1
        consumer.seek(got.value.place, got.value.offset + 1)
        assert values_of(await consumer.poll()) == [2]


async def test_a_deserializer_that_recovers_reads_the_record_at_the_next_poll(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    fake_broker.read = only_at_once(GOOD)
    is_down = [True]

    def look_up(value: bytes) -> bytes:
        if is_down.pop() if is_down else False:
            raise OSError("the registry is away")
        return value

    async with Consumer(
        ADDRESS, value_deserializer=look_up, connect=fake_broker.connect
    ) as consumer:
        consumer.assign([PLACE])
        consumer.seek(PLACE, 0)
        with pytest.raises(PoisonRecord, match="the registry is away"):
            await consumer.poll()
        assert [record.value for record in await consumer.poll()] == [b"3", b"4", b"5"]


async def test_on_error_that_returns_skips_the_record(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    fake_broker.read = only_at_once(NUMBERS)
    skipped: list[int] = []
    async with numbers_of(
        fake_broker, PLACE, on_error=lambda error: skipped.append(error.offset)
    ) as consumer:
        assert values_of(await consumer.poll()) == [0]
        assert skipped == []
        assert values_of(await consumer.poll()) == [2]
        assert (skipped, await consumer.position(PLACE)) == ([1], 3)


async def test_on_error_that_raises_stops_at_the_record(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    class StopHereError(Exception):
        pass

    def stop(error: PoisonRecord) -> None:
        raise StopHereError from error

    fake_broker.read = only_at_once(NUMBERS)
    async with numbers_of(fake_broker, PLACE, on_error=stop) as consumer:
        assert values_of(await consumer.poll()) == [0]
        with pytest.raises(StopHereError):
            await consumer.poll()
        assert await consumer.position(PLACE) == 1


async def test_an_iteration_treats_poison_records_as_a_poll_does(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    fake_broker.read = only_at_once(NUMBERS)
    async with numbers_of(fake_broker, PLACE) as consumer:
        with pytest.raises(PoisonRecord):
            async for record in consumer:
                assert record.value == 0
        assert await consumer.position(PLACE) == 1
        with pytest.raises(PoisonRecord):  # a poll finds what is left of the iteration
            await consumer.poll()
        consumer.seek(PLACE, 2)
        async for record in consumer:
            assert record.value == 2
            break
        assert await consumer.position(PLACE) == 3


async def test_an_iteration_skips_what_on_error_skips(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    fake_broker.read = only_at_once(NUMBERS)
    async with numbers_of(fake_broker, PLACE, on_error=lambda _: None) as consumer:
        seen: list[int | None] = []
        async for record in consumer:
            seen.append(record.value)
            if record.offset == 2:
                break
        assert seen == [0, 2]


async def test_a_poison_record_of_one_partition_takes_nothing_from_another(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    """Records are returned before an error is raised, and are not lost by it."""
    fake_broker.read = only_at_once(GOOD, NUMBERS)
    async with numbers_of(fake_broker, PLACE, OTHER) as consumer:
        assert values_of(await consumer.poll()) == [3, 4, 5, 0]
        with pytest.raises(PoisonRecord):
            await consumer.poll()


async def test_a_poison_record_is_not_put_off_by_the_records_of_other_partitions(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    fake_broker.read = only_at_once(GOOD, data(0, b"one"))
    async with numbers_of(fake_broker, PLACE, OTHER) as consumer:
        assert values_of(await consumer.poll(max_records=2)) == [3, 4]
        with pytest.raises(PoisonRecord):
            await consumer.poll(max_records=2)
        consumer.seek(OTHER, 1)
        assert values_of(await consumer.poll(max_records=2)) == [5]


async def test_batches_are_handed_out_as_they_are(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    fake_broker.read = only_at_once(NUMBERS)
    async with numbers_of(fake_broker, PLACE) as consumer:
        assert [batch.header.record_count for batch in await consumer.fetch_batches()] == [3]


def test_a_run_of_skipped_records_is_used_up() -> None:
    raw = [ConsumerRecord("t", 0, offset, 0, 0, None, b"x", ()) for offset in range(3)]
    skipping = Deserializers(value_deserializer=int, on_error=lambda _: None)
    index = 0
    while index < len(raw):
        found, following = skipping.some(raw, index, len(raw))
        assert (found, following) == ([], index + 1)
        index = following
    assert skipping.one(raw[0]) is None

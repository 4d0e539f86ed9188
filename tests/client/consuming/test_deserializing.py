"""Deserializers: what records then have, and what becomes of a record that they cannot read."""

# ruff: noqa: PT012 - what raises here may be an iteration, so the loop is the statement

import json
import re
from collections.abc import Callable
from typing import Any, assert_type

import pytest
import trio
from trio.testing import MockClock

from odradek.client import (
    Consumer,
    ConsumerRecord,
    Disconnected,
    PoisonRecord,
    Refused,
    SerializationContext,
    Serialized,
    TopicPartition,
)
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


def test_an_async_on_error_is_refused_because_nothing_would_await_it() -> None:
    """A record would be skipped although its `on_error` has not run."""

    async def later(_: object) -> None: ...

    with pytest.raises(ValueError, match="plain function"):
        Consumer(ADDRESS, on_error=later)


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


async def test_a_deserializer_may_ask_for_topic_part_and_headers(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    asked: list[SerializationContext] = []

    def decode(value: bytes, context: SerializationContext) -> str:
        asked.append(context)
        return value.decode()

    record = Record(key=b"k", value=b"v", headers=(("h", b"1"),))
    fake_broker.read = only_at_once(bytes(encode_batch([record])))
    async with Consumer(
        ADDRESS,
        key_deserializer=decode,
        value_deserializer=decode,
        connect=fake_broker.connect,
    ) as consumer:
        consumer.assign([PLACE])
        consumer.seek(PLACE, 0)
        (found,) = await consumer.poll()
        assert_type(found, ConsumerRecord[str, str])
        assert (found.key, found.value) == ("k", "v")
    assert asked == [("t", "key", [("h", b"1")]), ("t", "value", [("h", b"1")])]


def slowly(seconds: float, calls: list[bytes]) -> Any:
    """A deserializer that knows nothing yet: each value takes a while, once."""
    known: set[bytes] = set()

    def start(value: bytes) -> Any:
        calls.append(value)
        return int(value) if value in known else learn(value)

    async def learn(value: bytes) -> int:
        await trio.sleep(seconds)
        known.add(value)
        return int(value)

    return start


async def test_a_deserializer_that_must_be_awaited_delays_its_record_and_no_earlier_one(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    calls: list[bytes] = []
    fake_broker.read = only_at_once(NUMBERS)
    async with Consumer(
        ADDRESS, value_deserializer=slowly(30, calls), connect=fake_broker.connect
    ) as consumer:
        consumer.assign([PLACE])
        consumer.seek(PLACE, 0)
        assert values_of(await consumer.poll(timeout_ms=10)) == [0]  # it outlasts the time limit
        with pytest.raises(PoisonRecord, match="invalid literal") as got:
            await consumer.poll()
        assert got.value.offset == 1
        consumer.seek(PLACE, 2)
        assert [record.value async for record, _ in _count(consumer, 1)] == [2]


async def _count(consumer: Consumer[Any, Any], count: int) -> Any:
    async for record in consumer:
        count -= 1
        yield record, count
        if not count:
            return


async def test_a_poll_that_is_cancelled_while_a_deserializer_is_awaited_takes_nothing(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    fake_broker.read = only_at_once(GOOD)
    async with Consumer(
        ADDRESS, value_deserializer=slowly(30, []), connect=fake_broker.connect
    ) as consumer:
        consumer.assign([PLACE])
        consumer.seek(PLACE, 0)
        with trio.move_on_after(10):
            await consumer.poll(timeout_ms=60_000)
        assert await consumer.position(PLACE) == 0
        assert [record.value async for record, _ in _count(consumer, 3)] == [3, 4, 5]


async def test_a_deserializer_is_awaited_while_another_task_seeks(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    """What was learned for one record must not become the value of another."""
    fake_broker.read = only_at_once(GOOD)
    async with (
        Consumer(
            ADDRESS, value_deserializer=slowly(30, []), connect=fake_broker.connect
        ) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.assign([PLACE])
        consumer.seek(PLACE, 0)

        async def seek_soon() -> None:
            await trio.sleep(5)
            consumer.seek(PLACE, 2)

        nursery.start_soon(seek_soon)
        assert [(record.offset, record.value) for record in await consumer.poll(120_000)] == [
            (2, 5)
        ]


def test_functions_that_cannot_be_called_so_are_refused_at_once() -> None:
    wrong: Any
    for wrong in ("json", lambda a, b, c: a, lambda: None):
        with pytest.raises(ValueError, match=re.escape("value_deserializer is a function of one")):
            Consumer(ADDRESS, value_deserializer=wrong)


def test_the_bytes_of_a_poison_record_go_past_a_serializer() -> None:
    raw = ConsumerRecord("t", 0, 7, 0, 0, b"k", b"v", (("h", b"1"),))
    error = PoisonRecord(raw, "value", ValueError("v"))
    assert error.record == raw
    assert isinstance(error.record.key, Serialized)
    assert isinstance(error.copy().record.value, Serialized)
    tombstone = PoisonRecord(raw._replace(value=None), "key", ValueError("k"))
    assert tombstone.record.value is None
    with pytest.raises(TypeError, match="only bytes can go past a serializer, and not int"):
        raw._replace(key=3).serialized()  # type: ignore[arg-type]


async def test_a_record_is_no_poison_while_the_service_of_its_deserializer_is_away(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    """A worker set good records aside as dead letters while the schema registry was restarted."""
    fake_broker.read = only_at_once(data(0, b"0", b"1"))
    is_away = True

    def look_up(value: bytes) -> int:
        if value == b"1" and is_away:
            raise Disconnected("the registry is away")
        return int(value)

    def no_poison(error: PoisonRecord) -> None:
        raise AssertionError(error)

    async with Consumer(
        ADDRESS, value_deserializer=look_up, on_error=no_poison, connect=fake_broker.connect
    ) as consumer:
        consumer.assign([PLACE])
        consumer.seek(PLACE, 0)
        assert values_of(await consumer.poll()) == [0]
        for _ in range(2):
            with pytest.raises(Disconnected, match="the registry is away"):
                await consumer.poll()
        assert await consumer.position(PLACE) == 1
        is_away = False
        assert values_of(await consumer.poll()) == [1]

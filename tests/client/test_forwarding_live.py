"""Records that are sent on, on a real broker: all three faces, in transactions."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final

import pytest

from odradek.client import (
    Admin,
    Consumer,
    ConsumerRecord,
    NewTopic,
    Origin,
    PoisonRecord,
    Producer,
    TopicPartition,
    aio,
    origin_of,
)
from odradek.client import blocking as plain
from tests.client.live import WAIT_MS, name_of, read_all

TIMESTAMP: Final = 1_700_000_000_000
HEADERS: Final = [("trace", b"7")]


def as_json(value: dict[str, int]) -> bytes:
    return json.dumps(value).encode()


def from_json(value: bytes) -> dict[str, int]:
    found: dict[str, int] = json.loads(value)
    return found


@pytest.fixture
async def topics(bootstrap: str) -> tuple[str, str]:
    """A topic with a good and a poison record, and one for dead letters."""
    source, dead = name_of("source"), name_of("dead")
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(name, 1, 1) for name in (source, dead)])
    async with Producer(bootstrap) as producer:
        for value in (b'{"n":   0}', b"\xffpoison"):
            await producer.send(
                source, value, key=b"k", headers=HEADERS, timestamp_ms=TIMESTAMP, partition=0
            )
    return source, dead


async def check(bootstrap: str, source: str, dead: str, good: ConsumerRecord[Any, Any]) -> None:
    assert good.value == {"n": 0}
    records = await read_all(bootstrap, dead, count=2)
    assert [record.value for record in records] == [b'{"n": 0}', b"\xffpoison"]
    for offset, record in enumerate(records):
        assert (record.key, record.timestamp_ms, record.headers[0]) == (b"k", TIMESTAMP, HEADERS[0])
        origin = origin_of(record)
        assert origin is not None
        assert origin[:4] == Origin(source, 0, offset, TIMESTAMP, "", "")[:4]
    assert [origin and origin.exception for origin in map(origin_of, records)] == [
        "ValueError",
        "odradek.client.serialization.PoisonRecord",
    ]


async def test_dead_letters_keep_their_bytes_in_a_transaction(
    bootstrap: str, topics: tuple[str, str]
) -> None:
    source, dead = topics
    group, place = name_of("g"), TopicPartition(source, 0)
    async with (
        Consumer(bootstrap, group_id=group, value_deserializer=from_json) as consumer,
        Producer(bootstrap, transactional_id=name_of("x"), value_serializer=as_json) as producer,
    ):
        consumer.assign([place])
        (good,) = await consumer.poll(WAIT_MS)
        async with producer.transaction() as transaction:
            await transaction.forward(good, dead, error=ValueError("cannot be packed"))
        with pytest.raises(PoisonRecord) as got:
            await consumer.poll(WAIT_MS)
        poison = got.value
        async with producer.transaction() as transaction:
            await transaction.forward(poison.record, dead, error=poison)
            await transaction.send_offsets({place: poison.offset + 1}, group)
        assert (await consumer.committed([place]))[place].offset == 2
    await check(bootstrap, source, dead, good)


async def test_a_blocking_program_sends_dead_letters(
    bootstrap: str, topics: tuple[str, str]
) -> None:
    source, dead = topics
    with (
        plain.Consumer(bootstrap, value_deserializer=from_json) as consumer,
        plain.Producer(
            bootstrap, transactional_id=name_of("x"), value_serializer=as_json
        ) as producer,
    ):
        consumer.assign([(source, 0)])
        (good,) = consumer.poll(WAIT_MS)
        with producer.transaction() as transaction:
            transaction.forward(good, dead, error=ValueError("cannot be packed"))
            with pytest.raises(PoisonRecord) as got:
                consumer.poll(WAIT_MS)
            transaction.forward(got.value.record, dead, error=got.value)
    await check(bootstrap, source, dead, good)


async def test_an_asyncio_program_sends_dead_letters(
    bootstrap: str, topics: tuple[str, str]
) -> None:
    source, dead = topics

    async def use() -> ConsumerRecord[bytes, dict[str, int]]:
        async with (
            aio.Consumer(bootstrap, value_deserializer=from_json) as consumer,
            aio.Producer(bootstrap, value_serializer=as_json) as producer,
        ):
            consumer.assign([(source, 0)])
            (good,) = await consumer.poll(WAIT_MS)
            await producer.forward(good, dead, error=ValueError("cannot be packed"))
            with pytest.raises(PoisonRecord) as got:
                await consumer.poll(WAIT_MS)
            await producer.forward(got.value.record, dead, error=got.value)
            return good

    good = await _in_thread(use)
    await check(bootstrap, source, dead, good)


async def _in_thread(use: Any) -> Any:
    import trio

    return await trio.to_thread.run_sync(lambda: asyncio.run(use()))


def test_async_serializers_are_awaited_by_blocking_and_asyncio_programs(bootstrap: str) -> None:
    """The blocking client awaits them under trio, in its own thread; asyncio where it calls."""
    topic = name_of("async")
    loops: list[Any] = []

    async def encode(value: str) -> bytes:
        loops.append(_running())
        return value.encode()

    async def decode(value: bytes) -> str:
        loops.append(_running())
        return value.decode()

    def values(records: Sequence[ConsumerRecord[Any, Any]]) -> list[Any]:
        return [record.value for record in records]

    with plain.Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
    with plain.Producer(bootstrap, value_serializer=encode) as producer:
        producer.send(topic, "a").result()
    reader: plain.Consumer[bytes, str] = plain.Consumer(bootstrap, value_deserializer=decode)
    with reader as consumer:
        consumer.assign([(topic, 0)])
        assert values(consumer.poll(WAIT_MS)) == ["a"]
        consumer.seek_to_beginning()
        assert next(iter(consumer)).value == "a"
    assert loops == [None] * 3

    async def use() -> None:
        async with aio.Producer(bootstrap, value_serializer=encode) as producer:
            await (await producer.send(topic, "b"))
        reader: aio.Consumer[bytes, str] = aio.Consumer(bootstrap, value_deserializer=decode)
        async with reader as consumer:
            consumer.assign([(topic, 0)])
            found = values(await consumer.poll(WAIT_MS))
            found.append((await anext(consumer)).value)
            assert found == ["a", "b"]
        assert loops[3:] == [asyncio.get_running_loop()] * 3

    asyncio.run(use())


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None

"""Serializers and deserializers on a real broker: all three faces, groups and transactions."""

import asyncio
import json
import threading
from typing import Any, assert_type

import pytest
import trio

from odradek.client import Admin, Consumer, PoisonRecord, Producer, Refused, TopicPartition, aio
from odradek.client import blocking as plain
from tests.client.live import WAIT_MS, name_of, read_all


def as_json(value: dict[str, int]) -> bytes:
    return json.dumps(value).encode()


def from_json(value: bytes) -> dict[str, int]:
    found = json.loads(value)
    assert isinstance(found, dict)
    return found


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A topic of one partition: a good record, a poison record and a good one."""
    name = name_of("serializers")
    with plain.Admin(bootstrap) as admin:
        admin.create_topic(name, partitions=1)
    with plain.Producer(bootstrap) as producer:
        for value in (as_json({"n": 0}), b"{", as_json({"n": 2})):
            producer.send(name, value)
    return name


async def test_a_group_stores_the_offset_of_a_poison_record_and_comes_back_to_it(
    bootstrap: str, topic: str
) -> None:
    group = name_of("group")
    read: list[int] = []

    async def consume() -> None:
        async with Consumer(bootstrap, group_id=group, value_deserializer=from_json) as consumer:
            consumer.subscribe(topic)
            try:
                async for record in consumer:
                    assert_type(record.value, dict[str, int] | None)
                    read.append((record.value or {})["n"])
            finally:
                await consumer.commit()

    with trio.fail_after(WAIT_MS / 1000):
        for _ in range(2):
            with pytest.raises(PoisonRecord) as got:
                await consume()
            assert (got.value.offset, got.value.record.value) == (1, b"{")
    assert read == [0]


async def test_a_transaction_copies_what_on_error_lets_through(bootstrap: str, topic: str) -> None:
    target, dead = name_of("target"), name_of("dead")
    async with Admin(bootstrap) as admin:
        await admin.create_topic(target, partitions=1)
        await admin.create_topic(dead, partitions=1)
    skipped: list[PoisonRecord] = []
    async with (
        Consumer(
            bootstrap,
            group_id=name_of("group"),
            value_deserializer=from_json,
            on_error=skipped.append,
        ) as consumer,
        Producer(bootstrap, transactional_id=name_of("x"), value_serializer=as_json) as producer,
    ):
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        copied = 0
        with trio.fail_after(WAIT_MS / 1000):
            while copied < 2:
                async with producer.transaction() as transaction:
                    for record in await consumer.poll():
                        await transaction.send(target, record.value)
                        copied += 1
                    await transaction.send_offsets(consumer.positions(), consumer.group_metadata())
        with pytest.raises(Refused, match="value_serializer raised"):
            async with producer.transaction() as transaction:
                await transaction.send(target, {"n": {3}})  # type: ignore[dict-item]
        assert (await consumer.committed([place]))[place].offset == 3
    assert [record.value for record in await read_all(bootstrap, target)] == [
        b'{"n": 0}',
        b'{"n": 2}',
    ]
    assert [error.offset for error in skipped] == [1]


def test_plain_programs_serialize_and_deserialize_in_their_own_thread(
    bootstrap: str, topic: str
) -> None:
    here = threading.current_thread()

    def checked(value: bytes) -> dict[str, int]:
        assert threading.current_thread() is here
        return from_json(value)

    place = TopicPartition(topic, 0)
    with plain.Consumer(bootstrap, group_id=name_of("g"), value_deserializer=checked) as consumer:
        consumer.assign([place])
        assert [record.value for record in consumer.poll(WAIT_MS)] == [{"n": 0}]
        for _ in range(2):
            with pytest.raises(PoisonRecord, match="seek to 2"):
                consumer.poll(WAIT_MS)
            assert consumer.position(place) == 1
        consumer.commit()
        assert consumer.committed([place])[place].offset == 1
        with pytest.raises(PoisonRecord):
            next(iter(consumer))
        consumer.seek(place, 2)
        record = next(iter(consumer))
        assert_type(record.value, dict[str, int] | None)
        assert (record.offset, record.value) == (2, {"n": 2})
    skipped: list[PoisonRecord] = []
    with plain.Consumer(
        bootstrap, value_deserializer=from_json, on_error=skipped.append
    ) as consumer:
        consumer.assign([place])
        found = [record for _, record in zip(range(2), consumer, strict=False)]
        assert [record.value for record in found] == [{"n": 0}, {"n": 2}]
        assert [error.offset for error in skipped] == [1]
    told: list[Any] = []
    with plain.Producer(
        bootstrap, transactional_id=name_of("x"), value_serializer=as_json
    ) as producer:
        with (
            pytest.raises(Refused, match="value_serializer raised TypeError"),
            producer.transaction() as transaction,
        ):
            transaction.send(
                topic,
                {"n": {1}},  # type: ignore[dict-item]
                on_delivery=lambda *outcome: told.append(outcome),
            )
        assert [type(error) for _, error in told] == [Refused]
        with producer.transaction() as transaction:
            transaction.send(topic, {"n": 3})


def test_asyncio_programs_have_the_same(bootstrap: str, topic: str) -> None:
    here = threading.current_thread()

    def checked(value: bytes) -> dict[str, int]:
        assert threading.current_thread() is here
        return from_json(value)

    async def use() -> None:
        place = TopicPartition(topic, 0)
        async with aio.Consumer(bootstrap, value_deserializer=checked) as consumer:
            consumer.assign([place])
            assert [record.value for record in await consumer.poll(WAIT_MS)] == [{"n": 0}]
            with pytest.raises(PoisonRecord):
                await consumer.poll(WAIT_MS)
            assert await consumer.position(place) == 1
            with pytest.raises(PoisonRecord):
                await anext(consumer)
            consumer.seek(place, 2)
            record = await anext(consumer)
            assert_type(record.value, dict[str, int] | None)
            assert record.value == {"n": 2}
        async with aio.Consumer(
            bootstrap, value_deserializer=from_json, on_error=lambda _: None
        ) as consumer:
            consumer.assign([place])
            assert [(await anext(consumer)).offset for _ in range(2)] == [0, 2]
        async with aio.Producer(
            bootstrap, transactional_id=name_of("x"), value_serializer=as_json
        ) as producer:
            with pytest.raises(Refused, match="value_serializer raised TypeError"):
                async with producer.transaction() as transaction:
                    await transaction.send(topic, {"n": {1}})  # type: ignore[dict-item]
            async with producer.transaction() as transaction:
                await transaction.send(topic, {"n": 3})

    asyncio.run(use())

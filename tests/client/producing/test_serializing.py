"""Serializers: what a broker gets of what they return, and what a failing one costs."""

# ruff: noqa: PT012 - what raises here is the end of a block, so the block is the statement

import json
from typing import Any, assert_type

import pytest
from trio.testing import MockClock

from odradek.client import OdradekError, Producer, RecordMetadata, Refused, Transaction
from odradek.client.aio import Producer as AioProducer
from odradek.client.blocking import Producer as BlockingProducer
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.record import decode_batch
from tests.client.fake_broker import ADDRESS, FakeBroker


def as_json(value: dict[str, int]) -> bytes:
    return json.dumps(value).encode()


def jsons_to(broker: FakeBroker, **options: Any) -> Producer[str, dict[str, int]]:
    return Producer(
        ADDRESS,
        key_serializer=str.encode,
        value_serializer=as_json,
        connect=broker.connect,
        **options,
    )


def stored(broker: FakeBroker) -> list[tuple[bytes | None, bytes | None]]:
    return [
        (record.key, record.value)
        for request in broker.asked(PRODUCE)
        for topic in request.topic_data
        for partition in topic.partition_data
        for record in decode_batch(partition.records)
    ]


async def test_a_broker_gets_what_the_serializers_return(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    async with jsons_to(fake_broker) as producer:
        await (await producer.send("t", {"n": 1}, key="k"))
    assert stored(fake_broker) == [(b"k", b'{"n": 1}')]


async def test_none_is_a_tombstone_and_no_serializer_sees_it(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    async with jsons_to(fake_broker) as producer:
        await (await producer.send("t", None))
    assert stored(fake_broker) == [(None, None)]


async def test_a_partitioner_gets_the_bytes_of_the_key(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    keys: list[bytes | None] = []

    def first(topic: str, key: bytes | None, partition_count: int) -> int:
        keys.append(key)
        return 0

    async with jsons_to(fake_broker, partitioner=first) as producer:
        await (await producer.send("t", {}, key="k"))
    assert keys == [b"k"]


async def test_a_serializer_that_raises_refuses_the_record(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    told: list[OdradekError | None] = []

    def note(metadata: RecordMetadata | None, error: OdradekError | None) -> None:
        told.append(error)

    async with jsons_to(fake_broker) as producer:
        with pytest.raises(Refused, match="'t' was not sent, because its value_serializer raised"):
            await producer.send("t", {"n": {1}}, on_delivery=note)  # type: ignore[dict-item]
        with pytest.raises(Refused, match="key_serializer raised TypeError") as got:
            producer.send_nowait("t", {}, key=3)  # type: ignore[arg-type]
        assert isinstance(got.value.__cause__, TypeError)
        assert [type(error) for error in told] == [Refused]
        await (await producer.send("t", {"n": 2}))
    assert stored(fake_broker) == [(None, b'{"n": 2}')]


async def test_a_serializer_that_does_not_return_bytes_refuses_the_record(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    async with Producer(
        ADDRESS,
        value_serializer=json.dumps,  # type: ignore[arg-type]
        connect=fake_broker.connect,
    ) as producer:
        with pytest.raises(Refused, match=r"must return bytes, and it returned str"):
            await producer.send("t", {})  # type: ignore[arg-type]
    assert stored(fake_broker) == []


async def test_a_serializer_that_fails_in_a_transaction_aborts_it(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    async with jsons_to(fake_broker, transactional_id="x") as producer:
        with pytest.raises(Refused):
            async with producer.transaction() as transaction:
                assert_type(transaction, Transaction[str, dict[str, int]])
                await (await transaction.send("t", {"n": 1}))
                await transaction.send("t", {"n": {1}})  # type: ignore[dict-item]
        async with producer.transaction() as transaction:
            await transaction.send("t", {"n": 2}, key="k")
    assert fake_broker.ended == [("x", False), ("x", True)]
    assert stored(fake_broker) == [(None, b'{"n": 1}'), (b"k", b'{"n": 2}')]


def test_producers_have_the_types_of_their_serializers() -> None:
    assert_type(Producer(ADDRESS), Producer[bytes, bytes])
    with BlockingProducer(ADDRESS, value_serializer=as_json) as producer:
        assert_type(producer, BlockingProducer[bytes, dict[str, int]])
    assert_type(AioProducer(ADDRESS, key_serializer=str.encode), AioProducer[str, bytes])

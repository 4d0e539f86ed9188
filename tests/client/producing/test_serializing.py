"""Serializers: what a broker gets of what they return, and what a failing one costs."""

# ruff: noqa: PT012 - what raises here is the end of a block, so the block is the statement

import json
from typing import Any, assert_type

import pytest
import trio
from confluent_kafka.serialization import StringSerializer
from trio.testing import MockClock

from odradek.client import (
    Disconnected,
    OdradekError,
    Producer,
    RecordMetadata,
    Refused,
    SerializationContext,
    Serialized,
    Transaction,
)
from odradek.client.aio import Producer as AioProducer
from odradek.client.blocking import Producer as BlockingProducer
from odradek.client.serialization import conversion
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


async def test_bytes_that_are_serialized_already_are_sent_past_a_serializer(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    """A dead letter keeps its bytes. The serializer raised for them, or encoded them again."""
    async with jsons_to(fake_broker) as producer:
        await (await producer.send("t", Serialized(b"\xff"), key=Serialized(b"\xfe")))
        assert producer.send_nowait("t", Serialized(b"\xfd"), key="k") is not None
    async with Producer(ADDRESS, connect=fake_broker.connect) as plain:
        await plain.send("t", Serialized(b"v"))
    assert stored(fake_broker) == [(b"\xfe", b"\xff"), (b"k", b"\xfd"), (None, b"v")]


async def test_a_serializer_may_ask_for_topic_part_and_headers_and_add_a_header(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    def encode(value: str, context: SerializationContext) -> bytes:
        context.headers.append((f"{context.field}-of", context.topic.encode()))
        return value.encode()

    given = [("h", b"1")]
    async with Producer(
        ADDRESS, key_serializer=encode, value_serializer=encode, connect=fake_broker.connect
    ) as producer:
        assert_type(producer, Producer[str, str])
        await (await producer.send("t", "v", key="k", headers=given))
    (record,) = [
        record
        for request in fake_broker.asked(PRODUCE)
        for record in decode_batch(request.topic_data[0].partition_data[0].records)
    ]
    assert (record.key, record.value) == (b"k", b"v")
    assert list(record.headers) == [("h", b"1"), ("key-of", b"t"), ("value-of", b"t")]
    assert given == [("h", b"1")], "the list of the program is not changed"


async def test_the_serializers_of_confluent_kafka_are_called_with_their_context(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    async with Producer(
        ADDRESS,
        value_serializer=StringSerializer("utf_8"),  # type: ignore[arg-type] # bytes or None
        connect=fake_broker.connect,
    ) as producer:
        await (await producer.send("t", "v"))  # type: ignore[arg-type]
    assert stored(fake_broker) == [(None, b"v")]


@pytest.mark.parametrize(
    ("function", "takes_context"),
    [
        (str.encode, False),  # its second parameter is an encoding
        (json.dumps, False),
        (lambda value: value, False),
        (lambda value, where: value, True),
        (lambda value, encoding="utf-8": value, False),
        (lambda value, ctx=None: value, True),
        (lambda value, context=None: value, True),
        (lambda *values: values, False),
        (int, False),
        (bytes, False),
    ],
)
def test_a_function_gets_the_context_if_it_asks_for_it(function: Any, takes_context: bool) -> None:
    found = conversion("value_serializer", function)
    assert found is not None
    assert found.takes_context is takes_context


async def test_an_async_serializer_is_awaited_and_send_nowait_says_that_it_cannot(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    async def encode(value: str) -> bytes:
        await trio.sleep(1)
        return value.encode()

    async with Producer(ADDRESS, value_serializer=encode, connect=fake_broker.connect) as producer:
        await (await producer.send("t", "v"))
        with pytest.raises(Refused, match="use send"):
            producer.send_nowait("t", "w")
    assert stored(fake_broker) == [(None, b"v")]


async def test_a_record_whose_serializer_outlasts_its_transaction_is_not_in_the_next_one(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    async def encode(value: str) -> bytes:
        if value == "late":
            await trio.sleep(5)
        return value.encode()

    async with (
        Producer(
            ADDRESS, transactional_id="x", value_serializer=encode, connect=fake_broker.connect
        ) as producer,
        trio.open_nursery() as nursery,
    ):
        refused: list[Refused] = []

        async def send_late(transaction: Transaction[bytes, str]) -> None:
            try:
                await transaction.send("t", "late")
            except Refused as error:
                refused.append(error)

        async with producer.transaction() as transaction:
            await transaction.send("t", "first")
            nursery.start_soon(send_late, transaction)
            await trio.sleep(1)
        async with producer.transaction() as transaction:
            await transaction.send("t", "second")
            await trio.sleep(10)
    assert len(refused) == 1
    assert stored(fake_broker) == [(None, b"first"), (None, b"second")]


async def test_a_record_may_be_sent_later_if_the_service_of_its_serializer_is_away(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    def look_up(value: str) -> bytes:
        raise Disconnected("the registry is away")

    async with Producer(ADDRESS, value_serializer=look_up, connect=fake_broker.connect) as producer:
        with pytest.raises(Disconnected, match="the registry is away"):
            await producer.send("t", "v")

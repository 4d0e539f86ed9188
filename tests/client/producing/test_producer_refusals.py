"""Calls that a producer refuses: wrong options, wrong records, no room, no topic, no producer."""

# ruff: noqa: PT012 - what raises here is often the end of a block, so the block is the statement

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from odradek.client import (
    BufferFull,
    Closed,
    Refused,
    TimedOut,
)
from odradek.protocol.apis.produce import PRODUCE
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import (
    SILENCE,
    FakeBroker,
)


async def test_a_full_buffer_makes_the_sender_wait_and_no_longer(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    options = {"batch_bytes": 1024, "buffer_bytes": 4096, "max_block_ms": 500}
    async with producer_of(fake_broker, **options) as producer:
        await (await producer.send("t", b"warm", partition=0))
        fake_broker.next(PRODUCE, SILENCE)
        count = 0
        with pytest.raises(BufferFull):
            while True:
                await producer.send("t", b"x" * 1000, partition=0)
                count += 1
        assert count == 4
        fake_broker.disconnect()
        await producer.flush()
    assert len(fake_broker.stored["t", 0]) == 1 + count


async def test_a_topic_that_is_not_there_is_named(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker, max_block_ms=300) as producer:
        with pytest.raises(TimedOut, match="'absent'"):
            await producer.send("absent", b"a")


async def test_a_partition_that_is_not_there_is_refused(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker) as producer:
        with pytest.raises(Refused, match="0 to 1"):
            await producer.send("t", b"a", partition=2)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"value": "text"}, "value is bytes or None, and str was given"),
        ({"value": 7}, "value is bytes or None, and int was given"),
        ({"value": ["text"]}, "value is bytes or None, and list was given"),
        ({"key": "text"}, "key is bytes or None, and str was given"),
        ({"headers": [("name", "text")]}, "headers are pairs"),
        ({"headers": [(b"name", b"value")]}, "headers are pairs"),
        ({"headers": {"name": b"value"}}, "headers are pairs"),
        ({"headers": 7}, "headers are pairs"),
        ({"timestamp_ms": "now"}, "a whole number, milliseconds since 1970, not 'now'"),
        ({"timestamp_ms": 1.5}, "a whole number"),
        ({"timestamp_ms": 2**63}, "a whole number"),
        ({"topic": b"t"}, "a topic is a str of at least one character, and b't' was given"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("place", [{"partition": 0}, {}], ids=["chosen", "partitioned"])
async def test_a_record_of_wrong_types_is_refused_in_words_and_harms_no_other(
    autojump_clock: MockClock,
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    wrong: dict[str, Any],
    said: str,
    place: dict[str, int],
) -> None:
    async with producer_of(fake_broker) as producer:
        with pytest.raises(Refused, match=said):
            await producer.send(**{"topic": "t", "value": b"a", **place, **wrong})
        await producer.flush()
        await producer.send("t", b"after", partition=0)
    assert fake_broker.stored["t", 0] == [b"after"]


async def test_an_error_of_the_users_partitioner_stays_what_it_is(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    def partitioner(topic: str, key: bytes | None, count: int) -> int:
        raise ValueError("no place for it")

    async with producer_of(fake_broker, partitioner=partitioner) as producer:
        with pytest.raises(ValueError, match="no place for it"):
            await producer.send("t", b"a")


async def test_a_closed_producer_says_so(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    with pytest.raises(Closed):
        await producer_of(fake_broker).send("t", b"a")
    async with producer_of(fake_broker) as producer:
        await producer.send("t", b"a")
    with pytest.raises(Closed):
        await producer.send("t", b"a")
    with pytest.raises(Closed):
        await producer.partitions_for("absent")


@pytest.mark.parametrize(
    "options",
    [
        {"acks": 2},
        {"compression": "brotli"},
        {"linger_ms": -1},
        {"acks": 1, "transactional_id": "x"},
        {"transactional_id": ""},
        {"transactional_id": b"x"},
        {"idempotent": False, "transactional_id": "x"},
        {"batch_bytes": 10},
    ],
)
async def test_wrong_options_are_refused_when_the_producer_is_made(
    autojump_clock: MockClock,
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    options: dict[str, object],
) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+ \w+"):
        producer_of(fake_broker, **options)


async def test_a_record_that_waited_before_is_told_all_of_its_time(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    """`odradek produce --timeout 5` said "not done within 3 ms", which was what was left."""
    async with producer_of(fake_broker, max_block_ms=2_000) as producer:
        with pytest.raises(TimedOut, match="not done within 2000 ms"):
            await producer.wait_for_room("absent", until=trio.current_time() + 0.003)

"""The records that share a batch, the batches that share a request, and when they are sent."""

import math
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from odradek.client import (
    OdradekError,
    RecordMetadata,
)
from odradek.client.producing.sender import PURPOSE
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.batch import Codec
from odradek.protocol.record import Record, encode_batch
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import (
    NODE,
    FakeBroker,
    sequences,
)


async def test_what_is_sent_together_goes_in_one_batch(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker) as producer:
        deliveries = [await producer.send("t", b"%d" % i, partition=0) for i in range(10)]
        offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == list(range(10))
    assert sequences(fake_broker) == [(0, 0, 10)]


async def test_linger_collects_records_that_come_later(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker, linger_ms=50) as producer:
        await producer.send("t", b"a", partition=0)
        await trio.sleep(0.02)
        last = await producer.send("t", b"b", partition=0)
        before = trio.current_time()
        await last
        assert math.isclose(trio.current_time() - before, 0.03, abs_tol=0.005)
    assert sequences(fake_broker) == [(0, 0, 2)]


async def test_flush_does_not_wait_for_the_linger(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker, linger_ms=10_000) as producer:
        await producer.send("t", b"a", partition=0)
        before = trio.current_time()
        await producer.flush()
        assert trio.current_time() - before < 1


@pytest.mark.parametrize("codec", list(Codec))
async def test_every_codec_is_sent(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer, codec: Codec
) -> None:
    async with producer_of(fake_broker, compression=codec.name.lower()) as producer:
        await (await producer.send("t", b"a" * 500, partition=0))
    assert fake_broker.codecs == [codec]
    assert fake_broker.stored["t", 0] == [b"a" * 500]


async def test_encoded_batches_are_made_the_producers_own(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    encoded = bytes(encode_batch([Record(None, b"x"), Record(None, b"y")], producer_id=5))
    async with producer_of(fake_broker) as producer:
        await producer.send("t", b"a", partition=0)
        assert (await (await producer.send_batch("t", 0, encoded))).offset == 1
    assert fake_broker.stored["t", 0] == [b"a", b"x", b"y"]
    assert sequences(fake_broker) == [(0, 0, 1), (0, 1, 2)]


async def test_many_tasks_may_send_at_once(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker) as producer:

        async def send(number: int) -> None:
            await (await producer.send("t", b"%d" % number, key=b"%d" % number))

        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(send, number)
    values = fake_broker.stored["t", 0] + fake_broker.stored["t", 1]
    assert sorted(map(int, values)) == list(range(200))


async def test_a_record_that_follows_another_one_is_sent_by_the_task_that_sends_it(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker) as producer:
        for number in range(3):
            delivery = await producer.send("t", b"%d" % number, partition=0)
            connection = producer._cluster.connections.find(NODE, PURPOSE)
            in_flight = connection.in_flight if connection is not None else 0
            assert in_flight == (1 if number else 0)  # before the first one there is no connection
            await delivery


async def test_the_records_of_tasks_that_send_together_share_a_batch(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    """The first round follows a record that was alone, so its first record is sent at once."""
    async with producer_of(fake_broker) as producer:

        async def send() -> None:
            await (await producer.send("t", b"a", partition=0))

        await send()
        for _ in range(3):
            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(send)
    counts = [count for _, _, count in sequences(fake_broker)]
    assert counts == [1, 1, 49, 50, 50]


async def test_records_of_a_transaction_share_a_request_also_after_one_that_was_alone(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    """The first request of a partition adds it to the transaction, which takes a write each."""
    async with producer_of(fake_broker, transactional_id="x") as producer:
        async with producer.transaction() as transaction:
            await (await transaction.send("t", b"a", partition=0))
        fake_broker.requests.clear()
        async with producer.transaction() as transaction:
            await transaction.send("t", b"b", partition=0)
            await transaction.send("t", b"c", partition=1)
    produced = [request for request in fake_broker.requests if request.api is PRODUCE]
    assert len(produced) == 1


async def test_a_record_may_be_sent_by_the_callback_of_another_one(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker) as producer:
        await (await producer.send("t", b"a", partition=0))

        def again(metadata: RecordMetadata | None, error: OdradekError | None) -> None:
            if len(deliveries) < 5:
                deliveries.append(producer.send_nowait("t", b"a", partition=0, on_delivery=again))

        deliveries: list[Any] = []
        again(None, None)
        await trio.testing.wait_all_tasks_blocked()
        assert [(await delivery).offset for delivery in deliveries] == [1, 2, 3, 4, 5]

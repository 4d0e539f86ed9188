"""A producer whose broker loses connections, refuses batches, keeps silent or is down."""

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from odradek.client import (
    Fatal,
    Refused,
    TimedOut,
)
from odradek.protocol.apis.metadata import METADATA
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.errors import ErrorCode
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import (
    LOST_AFTER,
    LOST_BEFORE,
    SILENCE,
    FakeBroker,
    refused,
    sequences,
)


@pytest.mark.parametrize("fate", [LOST_BEFORE, LOST_AFTER])
async def test_a_lost_connection_neither_loses_nor_doubles_records(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer, fate: object
) -> None:
    fake_broker.next(PRODUCE, fate)  # type: ignore[arg-type]
    async with producer_of(fake_broker) as producer:
        for number in range(5):
            await producer.send("t", b"%d" % number, partition=0)
            await trio.lowlevel.checkpoint()
        await producer.flush()
    assert fake_broker.stored["t", 0] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("before", [[b"warm"], []], ids=["known", "first"])
async def test_batches_behind_a_lost_one_keep_their_order(
    autojump_clock: MockClock,
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    before: list[bytes],
) -> None:
    # A partition that has never seen the producer takes any sequence for its first.
    async with producer_of(fake_broker, batch_bytes=1024) as producer:
        for value in before:
            await (await producer.send("t", value, partition=0))
        fake_broker.next(PRODUCE, refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        values = [b"%d" % number * 900 for number in range(8)]
        for value in values:
            await producer.send("t", value, partition=0)
        await producer.flush()
    assert fake_broker.stored["t", 0] == [*before, *values]


async def test_a_record_before_that_is_lost_for_good_raises_the_epoch(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    # The first batch is refused for good: behind it there is a hole in the sequence.
    async with producer_of(fake_broker, batch_bytes=1024) as producer:
        await (await producer.send("t", b"warm", partition=0))
        fake_broker.next(PRODUCE, refused(ErrorCode.MESSAGE_TOO_LARGE))
        lost = await producer.send("t", b"lost" * 200, partition=0)
        kept = [await producer.send("t", b"%d" % i * 900, partition=0) for i in range(3)]
        with pytest.raises(Refused, match=r"max\.message\.bytes"):
            await lost
        for delivery in kept:
            await delivery
        assert producer.producer_epoch == 1
    assert fake_broker.stored["t", 0] == [b"warm", *(b"%d" % i * 900 for i in range(3))]
    assert sequences(fake_broker)[-3:] == [(1, 0, 1), (1, 1, 1), (1, 2, 1)]


async def test_a_repeated_batch_that_the_broker_has_is_a_success(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker) as producer:
        fake_broker.next(PRODUCE, LOST_AFTER)
        assert (await (await producer.send("t", b"a", partition=0))).offset == 0
        fake_broker.next(PRODUCE, refused(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
        assert (await (await producer.send("t", b"b", partition=0))).offset == -1


async def test_silence_ends_the_connection_and_the_batch_is_sent_again(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    fake_broker.next(PRODUCE, SILENCE)
    async with producer_of(fake_broker, request_timeout_ms=1_000) as producer:
        await (await producer.send("t", b"a", partition=0))
    assert fake_broker.stored["t", 0] == [b"a"]


async def test_delivery_ends_in_time_and_says_that_nobody_knows(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    fake_broker.next(PRODUCE, *[SILENCE] * 20)
    options = {"request_timeout_ms": 1_000, "delivery_timeout_ms": 2_500}
    async with producer_of(fake_broker, **options) as producer:
        delivery = await producer.send("t", b"a", partition=0)
        before = trio.current_time()
        with pytest.raises(TimedOut, match="may or may not be stored"):
            await delivery
        assert 2.4 < trio.current_time() - before < 2.6


async def test_a_batch_that_timed_out_leaves_no_doubt_behind_it(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    options = {"request_timeout_ms": 1_000, "delivery_timeout_ms": 2_500, "batch_bytes": 1024}
    async with producer_of(fake_broker, **options) as producer:
        await (await producer.send("t", b"warm", partition=0))
        # Three attempts, a second each, are as many as there is time for.
        fake_broker.next(PRODUCE, *[SILENCE] * 3)
        lost = await producer.send("t", b"lost" * 200, partition=0)
        await trio.sleep(2)
        kept = await producer.send("t", b"kept" * 200, partition=0)
        with pytest.raises(TimedOut):
            await lost
        await kept
    assert fake_broker.stored["t", 0] == [b"warm", b"kept" * 200]


async def test_a_fatal_refusal_is_told(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    fake_broker.next(PRODUCE, refused(ErrorCode.INVALID_PRODUCER_EPOCH))
    async with producer_of(fake_broker) as producer:
        with pytest.raises(Fatal):
            await (await producer.send("t", b"a", partition=0))


async def test_a_broker_that_is_down_is_tried_again_until_it_is_there(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker) as producer:
        await (await producer.send("t", b"a", partition=0))
        fake_broker.is_down = True
        fake_broker.disconnect()
        delivery = await producer.send("t", b"b", partition=0)
        with trio.move_on_after(5):
            await delivery
        assert not delivery.is_done
        fake_broker.is_down = False
        await delivery
    assert fake_broker.stored["t", 0] == [b"a", b"b"]


async def test_metadata_is_asked_again_after_a_leader_moved(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker) as producer:
        await (await producer.send("t", b"a", partition=0))
        asked = len(fake_broker.asked(METADATA))
        fake_broker.next(PRODUCE, refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await (await producer.send("t", b"b", partition=0))
    assert len(fake_broker.asked(METADATA)) > asked


async def test_metadata_is_asked_again_when_it_is_old(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker, metadata_max_age_ms=1_000) as producer:
        await (await producer.send("t", b"a", partition=0))
        asked = len(fake_broker.asked(METADATA))
        await trio.sleep(2)
        await (await producer.send("t", b"b", partition=0))
        await trio.sleep(0.1)
    assert len(fake_broker.asked(METADATA)) > asked


async def test_a_cancelled_wait_leaves_the_producer_usable(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    fake_broker.next(PRODUCE, SILENCE)
    async with producer_of(fake_broker, request_timeout_ms=1_000) as producer:
        first = await producer.send("t", b"a", partition=0)
        with trio.move_on_after(0.1) as scope:
            await first
        assert scope.cancelled_caught
        await (await producer.send("t", b"b", partition=0))
        await first
    assert fake_broker.stored["t", 0] == [b"a", b"b"]

"""What a producer that is left by an exception does with the records that it still has."""

import asyncio
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from odradek.broker.testing import run_broker
from odradek.client import Closed, aio, blocking
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.errors import ErrorCode
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import SILENCE, FakeBroker, refused
from tests.client.live import name_of, read_all

# ruff: noqa: PT012 - what raises here is the end of a block, so the block is the statement

LINGER_MS = 600_000


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with run_broker() as broker:
        yield broker.address


async def test_records_that_linger_are_sent_when_an_exception_leaves_the_producer(
    fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    """They were dropped, which no other client does."""
    with pytest.raises(ZeroDivisionError) as raised:
        async with producer_of(fake_broker, linger_ms=LINGER_MS) as producer:
            delivery = await producer.send("t", b"x", partition=0)
            raise ZeroDivisionError
    assert (await delivery).offset == 0
    assert fake_broker.stored["t", 0] == [b"x"]
    assert not hasattr(raised.value, "__notes__")


async def test_with_flush_on_error_false_they_are_dropped(
    fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with producer_of(fake_broker, linger_ms=LINGER_MS, flush_on_error=False) as producer:
            delivery = await producer.send("t", b"x", partition=0)
            raise ZeroDivisionError
    with pytest.raises(Closed):
        await delivery
    assert fake_broker.stored["t", 0] == []


async def test_a_cancellation_waits_for_nothing(
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    autojump_clock: trio.testing.MockClock,
) -> None:
    with trio.move_on_after(1):
        async with producer_of(fake_broker, linger_ms=LINGER_MS) as producer:
            await producer.send("t", b"x", partition=0)
            await trio.sleep_forever()
    assert trio.current_time() < 1.1
    assert fake_broker.stored["t", 0] == []


async def test_a_broker_that_is_silent_is_waited_for_a_few_seconds_only(
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    autojump_clock: trio.testing.MockClock,
) -> None:
    fake_broker.next(PRODUCE, SILENCE)
    with pytest.raises(ZeroDivisionError):
        async with producer_of(fake_broker) as producer:
            await producer.send("t", b"x", partition=0)
            raise ZeroDivisionError
    assert 4.9 < trio.current_time() < 5.5


async def test_an_error_of_the_rest_is_a_note_on_the_exception(
    fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    fake_broker.next(PRODUCE, refused(ErrorCode.MESSAGE_TOO_LARGE))
    with pytest.raises(ZeroDivisionError) as raised:
        async with producer_of(fake_broker, linger_ms=LINGER_MS) as producer:
            await producer.send("t", b"x", partition=0)
            raise ZeroDivisionError
    (note,) = raised.value.__notes__
    assert note.startswith("Sending the remaining records failed as well")
    assert "MESSAGE_TOO_LARGE" in note


async def test_the_blocking_and_the_asyncio_producer_do_the_same(address: str) -> None:
    topic = name_of("left")

    def leave_blocking(*, flush_on_error: bool) -> None:
        with blocking.Producer(
            address, linger_ms=LINGER_MS, flush_on_error=flush_on_error
        ) as producer:
            for _ in range(10):
                producer.send(topic, b"blocking", partition=0)
            raise ZeroDivisionError

    async def leave_aio(*, flush_on_error: bool) -> None:
        async with aio.Producer(
            address, linger_ms=LINGER_MS, flush_on_error=flush_on_error
        ) as producer:
            for _ in range(10):
                await producer.send(topic, b"asyncio", partition=0)
            raise ZeroDivisionError

    def use() -> None:
        for flush_on_error in (True, False):
            with pytest.raises(ZeroDivisionError):
                leave_blocking(flush_on_error=flush_on_error)
            with pytest.raises(ZeroDivisionError):
                asyncio.run(leave_aio(flush_on_error=flush_on_error))

    await trio.to_thread.run_sync(use)
    values = [record.value for record in await read_all(address, topic)]
    assert values == [b"blocking"] * 10 + [b"asyncio"] * 10

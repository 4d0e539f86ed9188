"""A trio client that a task of the program's nursery keeps open, instead of an `async with`."""

import pytest
import trio
import trio.testing

from odradek.client import Admin, Closed, Consumer, Fatal, Producer, Refused, TransactionGroup
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.apis.txn import INIT_PRODUCER_ID
from odradek.protocol.errors import ErrorCode
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import ADDRESS, SILENCE, FakeBroker, refused


async def test_a_producer_lives_in_a_nursery_until_it_is_closed(
    fake_broker: FakeBroker, producer_of: MakeProducer, nursery: trio.Nursery
) -> None:
    producer: Producer = await nursery.start(producer_of(fake_broker, linger_ms=60_000).serve)
    delivery = await producer.send("t", b"x", partition=0)
    await producer.close()
    await producer.close()
    assert (await delivery).offset == 0, "close sends what lingers"
    with pytest.raises(Closed):
        await producer.send("t", b"y", partition=0)


async def test_send_and_wait_returns_where_the_record_is(
    fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker) as producer:
        await producer.send_and_wait("t", b"x", partition=0)
        metadata = await producer.send_and_wait("t", b"y", partition=0)
    assert (metadata.topic, metadata.partition, metadata.offset) == ("t", 0, 1)


async def test_every_trio_class_can_be_served(fake_broker: FakeBroker) -> None:
    async with trio.open_nursery() as own:
        for made in (
            Admin(ADDRESS, connect=fake_broker.connect),
            Consumer(ADDRESS, connect=fake_broker.connect),
            TransactionGroup(ADDRESS, "group", connect=fake_broker.connect),
        ):
            assert await own.start(made.serve) is made
            await made.close()


async def test_the_nursery_that_is_cancelled_leaves_it_and_aborts(
    fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with trio.open_nursery() as own:
        producer: Producer = await own.start(
            producer_of(fake_broker, transactional_id="served").serve
        )
        async with producer.transaction() as transaction:
            await transaction.send("t", b"x", partition=0)
            await transaction.flush()
            own.cancel_scope.cancel()
            await trio.sleep_forever()
    assert transaction.state == "aborted"
    await producer.close()  # it is over already


async def test_an_error_of_opening_is_raised_where_it_was_started(
    fake_broker: FakeBroker, producer_of: MakeProducer, nursery: trio.Nursery
) -> None:
    fake_broker.next(INIT_PRODUCER_ID, refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    with pytest.raises(Fatal):
        await nursery.start(producer_of(fake_broker, transactional_id="served").serve)


async def test_close_raises_the_error_of_a_lost_record_and_the_nursery_goes_on(
    fake_broker: FakeBroker, producer_of: MakeProducer, nursery: trio.Nursery
) -> None:
    producer: Producer = await nursery.start(producer_of(fake_broker).serve)
    fake_broker.next(PRODUCE, refused(ErrorCode.MESSAGE_TOO_LARGE))
    await producer.send("t", b"x", partition=0)
    with pytest.raises(Refused, match="MESSAGE_TOO_LARGE"):
        await producer.close()
    await producer.close()


async def test_a_client_of_a_block_is_closed_by_the_block(
    fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    unused = producer_of(fake_broker)
    await unused.close()
    async with producer_of(fake_broker) as producer:
        with pytest.raises(Refused, match="leave the `async with` block"):
            await producer.close()


async def test_a_second_serve_is_refused_and_close_ends_the_first(
    fake_broker: FakeBroker, producer_of: MakeProducer, nursery: trio.Nursery
) -> None:
    """`close` waited for the second one, which was over, and the first one stayed open."""
    producer: Producer = await nursery.start(producer_of(fake_broker).serve)
    with pytest.raises(Refused, match="opened before"):
        await nursery.start(producer.serve)
    await producer.close()
    with pytest.raises(Closed):
        await producer.send("t", b"x", partition=0)
    async with producer_of(fake_broker) as other:
        with pytest.raises(Refused, match="opened before"):
            await nursery.start(other.serve)
        with pytest.raises(Refused, match="leave the `async with` block"):
            await other.close()


async def test_a_client_that_was_left_is_not_opened_again(
    fake_broker: FakeBroker, producer_of: MakeProducer, nursery: trio.Nursery
) -> None:
    async with producer_of(fake_broker) as producer:
        pass
    with pytest.raises(Refused, match="make a new one"):
        await nursery.start(producer.serve)


async def test_a_caller_of_close_that_is_cancelled_does_not_wait_for_what_lingers(
    fake_broker: FakeBroker, producer_of: MakeProducer, autojump_clock: trio.testing.MockClock
) -> None:
    async with trio.open_nursery() as own:
        producer: Producer = await own.start(producer_of(fake_broker).serve)
        fake_broker.next(PRODUCE, SILENCE)
        await producer.send("t", b"x", partition=0)
        with trio.move_on_after(1):
            await producer.close()
        assert trio.current_time() < 10

"""An asyncio client without `async with`: opened by its first use, closed by `close`."""

import asyncio
import gc
import socket
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from odradek.broker.testing import run_broker
from odradek.client.aio import (
    Admin,
    Closed,
    Consumer,
    Disconnected,
    Producer,
    TransactionGroup,
)
from tests.client.live import WAIT_MS, name_of

MANY = 20


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with run_broker() as broker:
        yield broker.address


async def values_of(address: str, topic: str, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    async with Consumer(address) as consumer, asyncio.timeout(WAIT_MS / 1000):
        consumer.assign([(topic, 0)])
        while len(values) < count:
            values += [record.value for record in await consumer.poll(WAIT_MS)]
    return values


def test_a_client_is_opened_by_its_first_use_and_closed_by_close(address: str) -> None:
    topic = name_of("lazy")

    async def use() -> None:
        producer, admin, consumer = Producer(address), Admin(address), Consumer(address)
        assert (await producer.send_and_wait(topic, b"x", partition=0)).offset == 0
        assert topic in await admin.list_topics()
        consumer.assign([(topic, 0)])
        assert [record.value for record in await consumer.poll(WAIT_MS)] == [b"x"]
        for opened in (producer, admin, consumer):
            await opened.close()
            await opened.close()
        for call in (
            lambda: producer.send(topic, b"y"),
            producer.open,
            admin.list_topics,
            consumer.poll,
        ):
            with pytest.raises(Closed, match="closed"):
                await call()
        with pytest.raises(Closed):
            consumer.assign([(topic, 0)])

    asyncio.run(use())


def test_every_asyncio_class_opens_and_closes_alike(address: str) -> None:
    async def use() -> None:
        for made in (
            Admin(address),
            Consumer(address),
            Producer(address, transactional_id=name_of("id")),
            TransactionGroup(address, "group"),
        ):
            assert await made.open() is made
            async with made:  # it is open, and the block closes it
                await made.open()
            with pytest.raises(Closed):
                await made.open()

    asyncio.run(use())


def test_a_transaction_opens_its_producer(address: str) -> None:
    topic = name_of("lazy")

    async def use() -> None:
        producer = Producer(address, transactional_id=name_of("id"))
        transaction = producer.transaction()
        assert transaction.state == "not begun"
        assert (producer.producer_id, producer.producer_epoch) == (-1, -1)
        async with transaction:
            await transaction.send(topic, b"x", partition=0)
        assert producer.producer_id >= 0
        await producer.close()
        assert await values_of(address, topic, 1) == [b"x"]

    asyncio.run(use())


def test_close_sends_what_lingers_while_other_tasks_still_send(address: str) -> None:
    topic = name_of("lingers")

    async def use() -> None:
        producer = Producer(address, linger_ms=60_000)
        deliveries = [await producer.send(topic, b"%d" % n, partition=0) for n in range(MANY)]
        await producer.close()
        assert [(await delivery).offset for delivery in deliveries] == list(range(MANY))

    asyncio.run(use())


def test_many_tasks_that_use_it_first_open_it_once(address: str) -> None:
    topic = name_of("together")

    async def use() -> None:
        producer = Producer(address, transactional_id=name_of("id"))
        await asyncio.gather(*(producer.open() for _ in range(MANY)))
        assert producer.producer_epoch == 0
        await producer.close()
        other = Producer(address)
        sent = [other.send_and_wait(topic, b"x", partition=0) for _ in range(MANY)]
        assert sorted(each.offset for each in await asyncio.gather(*sent)) == list(range(MANY))
        await other.close()

    asyncio.run(use())


def test_the_cells_of_a_notebook_share_a_producer(address: str) -> None:
    """IPython runs each cell with `run_until_complete` on one event loop, or as a task of it."""
    topic, kept = name_of("cells"), dict[str, Any]()

    async def first() -> None:
        kept["producer"] = await Producer(address).open()

    async def second() -> None:
        kept["delivery"] = await kept["producer"].send(topic, b"x", partition=0)

    async def third() -> None:
        assert (await kept["delivery"]).offset == 0
        await kept["producer"].close()

    event_loop = asyncio.new_event_loop()
    for cell in (first, second, third):
        event_loop.run_until_complete(cell())
    event_loop.close()


def test_a_client_outlives_the_event_loop_in_which_it_was_opened(address: str) -> None:
    topic, producer = name_of("loops"), Producer(address)
    for offset in range(3):
        assert asyncio.run(producer.send_and_wait(topic, b"x", partition=0)).offset == offset
    asyncio.run(producer.close())


def test_what_is_dropped_without_close_is_closed_with_a_warning(address: str) -> None:
    topic = name_of("dropped")

    async def use() -> None:
        await Producer(address, linger_ms=50).send(topic, b"x", partition=0)

    gc.collect()  # what earlier tests have dropped
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(use())
        give_up_at = time.monotonic() + WAIT_MS / 1000
        while not caught and time.monotonic() < give_up_at:
            gc.collect()
            time.sleep(0.01)  # trio's thread needs the interpreter, to take the record
    assert [each.category for each in caught] == [ResourceWarning]
    assert "call close" in str(caught[0].message)
    assert asyncio.run(values_of(address, topic, 1)) == [b"x"]


def test_opening_that_fails_says_why_and_the_next_use_tries_again() -> None:
    async def use() -> None:
        producer = Producer("127.0.0.1:1", transactional_id=name_of("id"), first_connect_ms=300)
        for attempt in (producer.open, producer.transaction().__aenter__, producer.open):
            with pytest.raises(Disconnected, match=r"127\.0\.0\.1:1"):
                await attempt()
        await producer.close()

    asyncio.run(use())


Ending = Callable[[Producer, "asyncio.Task[Any]"], Awaitable[None]]


async def cancel(producer: Producer, opening: "asyncio.Task[Any]") -> None:
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await producer.close()


async def close(producer: Producer, opening: "asyncio.Task[Any]") -> None:
    await producer.close()
    with pytest.raises(Closed):
        await opening


@pytest.mark.parametrize("end", [cancel, close])
def test_opening_that_is_cancelled_or_closed_ends_at_once(end: Ending) -> None:
    async def use(silent: str) -> None:
        producer = Producer(silent, transactional_id=name_of("id"))
        opening = asyncio.ensure_future(producer.open())
        await asyncio.sleep(0.05)
        assert not opening.done()
        async with asyncio.timeout(8):  # and not `first_connect_ms`
            await end(producer, opening)

    # Its connections wait to be accepted, and get no answer.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        host, port = listening.getsockname()
        asyncio.run(use(f"{host}:{port}"))


def test_a_cancelled_opening_leaves_the_next_task_to_open_it(address: str) -> None:
    async def use() -> None:
        producer = Producer(address, transactional_id=name_of("id"))
        first, second = (asyncio.ensure_future(producer.open()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert producer.producer_id >= 0
        await producer.close()

    asyncio.run(use())

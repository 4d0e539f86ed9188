"""Tasks, or threads, that read with one consumer at once: each record once, or an error."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing

from odradek import client
from odradek.broker.testing import run_broker
from odradek.client import FetchedBatch, Refused, TopicPartition, aio, blocking
from odradek.client.aio.crossing import Caller
from odradek.client.config import Order
from tests.client.live import WAIT_MS, name_of

COUNT = 40
TASKS = 5


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with run_broker() as broker:
        yield broker.address


@pytest.fixture
def place(address: str) -> TopicPartition:
    """A partition with `COUNT` batches of one record."""
    place = TopicPartition(name_of("at-once"), 0)
    with blocking.Producer(address) as producer:
        for number in range(COUNT):
            producer.send(place.topic, b"%d" % number, partition=0).result()
    return place


def offsets(batches: list[FetchedBatch]) -> list[int]:
    return [batch.header.base_offset for batch in batches]


async def _poll(consumer: Any) -> list[int]:
    return [record.offset for record in await consumer.poll(100, 3)]


async def _batches(consumer: Any) -> list[int]:
    return offsets(await consumer.fetch_batches(100, 1))


async def _iterate(consumer: Any) -> list[int]:
    return [(await anext(consumer)).offset]


Read = Callable[[Any], Awaitable[list[int]]]
ways = pytest.mark.parametrize("read", [_poll, _batches], ids=["poll", "batches"])


@ways
async def test_tasks_of_trio_get_each_record_once(
    address: str, place: TopicPartition, read: Read
) -> None:
    got: list[int] = []

    async def take() -> None:
        while len(got) < COUNT:
            got.extend(await read(consumer))

    with trio.fail_after(WAIT_MS / 1000):
        async with client.Consumer(address) as consumer:
            consumer.assign([place])
            async with trio.open_nursery() as nursery:
                for _ in range(TASKS):
                    nursery.start_soon(take)
    assert sorted(got) == list(range(COUNT))


async def test_iterations_of_trio_get_each_record_once(address: str, place: TopicPartition) -> None:
    got: list[int] = []

    async def take(scope: trio.CancelScope) -> None:
        async for record in consumer:
            got.append(record.offset)
            await trio.lowlevel.checkpoint()
            if len(got) == COUNT:
                scope.cancel()

    with trio.fail_after(WAIT_MS / 1000):
        async with client.Consumer(address) as consumer:
            consumer.assign([place])
            async with trio.open_nursery() as nursery:
                for _ in range(TASKS):
                    nursery.start_soon(take, nursery.cancel_scope)
    assert sorted(got) == list(range(COUNT))


@pytest.mark.parametrize("order", ["offset", "commit"])
@pytest.mark.parametrize("reads", [(_iterate, _iterate), (_iterate, _poll)], ids=["iterate", "mix"])
async def test_the_records_of_one_batch_are_shared_by_the_tasks_that_waited_for_it(
    address: str, order: Order, reads: tuple[Read, Read]
) -> None:
    """An iteration takes the whole batch. The task that wakes after it must not pass it over."""
    place = TopicPartition(name_of("one-batch"), 0)
    got: list[int] = []

    async def take(read: Read) -> None:
        while len(got) < COUNT:
            got.extend(await read(consumer))
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()

    with trio.fail_after(WAIT_MS / 1000):
        async with (
            client.Producer(address, linger_ms=WAIT_MS) as producer,
            client.Consumer(address, order=order) as consumer,
        ):
            await producer.partitions_for(place.topic)
            consumer.assign([place])
            await consumer.position(place)
            async with trio.open_nursery() as nursery:
                for read in reads:
                    nursery.start_soon(take, read)
                await trio.testing.wait_all_tasks_blocked()
                for _ in range(COUNT):
                    await producer.send(place.topic, b"one", partition=0)
                await producer.flush()
    assert sorted(got) == list(range(COUNT))


@ways
def test_tasks_of_asyncio_get_each_record_once(
    address: str, place: TopicPartition, read: Read
) -> None:
    got: list[int] = []

    async def use() -> None:
        async with aio.Consumer(address) as consumer, asyncio.timeout(WAIT_MS / 1000):
            consumer.assign([place])

            async def take() -> None:
                while len(got) < COUNT:
                    got.extend(await read(consumer))

            await asyncio.gather(*(take() for _ in range(TASKS)))

    asyncio.run(use())
    assert sorted(got) == list(range(COUNT))


def test_batches_of_a_cancelled_task_go_to_the_task_that_waits(
    address: str, place: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have left trio's thread, and have not reached the program."""
    call: Any = Caller.call

    async def use() -> None:
        arrived = asyncio.Event()

        async def held(self: Caller, *args: Any) -> Any:
            monkeypatch.undo()
            await call(self, *args)
            arrived.set()
            await asyncio.sleep(WAIT_MS / 1000)

        async with aio.Consumer(address) as consumer, asyncio.timeout(WAIT_MS / 1000):
            consumer.assign([place])
            monkeypatch.setattr(Caller, "call", held)
            first = asyncio.ensure_future(consumer.fetch_batches(WAIT_MS, 1))
            await arrived.wait()
            second = asyncio.ensure_future(consumer.fetch_batches(WAIT_MS, 1))
            await asyncio.wait([second], timeout=0.2)
            assert not second.done()
            first.cancel()
            assert offsets(await second) == [0]
            assert offsets(await consumer.fetch_batches(WAIT_MS, 1)) == [1]

    asyncio.run(use())


def test_records_that_come_during_a_call_are_not_offsets_to_commit_before_a_task_gets_them(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = TopicPartition(name_of("during-a-call"), 0)
    do: Any = blocking.Consumer._do

    def held(self: Any, function: Callable[[], Any]) -> Any:
        monkeypatch.undo()
        with blocking.Producer(address) as producer:
            producer.send(place.topic, b"second", partition=0).result()
        until = time.monotonic() + WAIT_MS / 1000
        while self._run.is_over and time.monotonic() < until:
            time.sleep(0.01)  # between two looks, not for luck
        return do(self, function)

    async def use() -> None:
        with blocking.Producer(address) as producer:
            producer.send(place.topic, b"first", partition=0).result()
        async with aio.Consumer(address) as consumer, asyncio.timeout(WAIT_MS / 1000):
            consumer.assign([place])
            assert await _iterate(consumer) == [0]
            waiting = asyncio.ensure_future(_iterate(consumer))
            await asyncio.sleep(0)  # it takes what comes, in trio's thread
            monkeypatch.setattr(blocking.Consumer, "_do", held)
            assert consumer.offsets_to_commit()[place].offset == 1
            assert await waiting == [1]

    asyncio.run(use())


# Threads

REFUSED = "another thread is using this consumer"
CALLS: dict[str, Callable[[Any, TopicPartition], object]] = {
    "poll": lambda consumer, place: consumer.poll(0),
    "fetch_batches": lambda consumer, place: consumer.fetch_batches(0),
    "iteration": lambda consumer, place: next(iter(consumer)),
    "seek": lambda consumer, place: consumer.seek(place, 0),
    "assign": lambda consumer, place: consumer.assign([place]),
    "pause": lambda consumer, place: consumer.pause(place),
    "commit": lambda consumer, place: consumer.commit(),
    "offsets_to_commit": lambda consumer, place: consumer.offsets_to_commit(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_second_thread_is_refused_while_a_thread_polls(
    address: str, place: TopicPartition, name: str
) -> None:
    is_inside, may_go_on = threading.Event(), threading.Event()
    got: list[int] = []

    def slow(value: bytes) -> int:
        is_inside.set()
        assert may_go_on.wait(WAIT_MS / 1000)
        return int(value)

    def take(consumer: blocking.Consumer[bytes, int]) -> None:
        while len(got) < COUNT:
            got.extend(
                record.value for record in consumer.poll(WAIT_MS) if record.value is not None
            )

    with blocking.Consumer(address, group_id=place.topic, value_deserializer=slow) as consumer:
        consumer.assign([place])
        thread = threading.Thread(target=take, args=(consumer,))
        thread.start()
        try:
            assert is_inside.wait(WAIT_MS / 1000)
            with pytest.raises(Refused, match=REFUSED):
                CALLS[name](consumer, place)
            consumer.commit({place: 1})  # it says what to store
        finally:
            may_go_on.set()
            thread.join()
    assert got == list(range(COUNT))


def test_threads_may_use_a_consumer_one_after_the_other(
    address: str, place: TopicPartition
) -> None:
    got: list[int] = []

    def take(consumer: blocking.Consumer) -> None:
        got.extend(record.offset for record in consumer.poll(WAIT_MS, 5))

    with blocking.Consumer(address) as consumer:
        consumer.assign([place])
        while len(got) < COUNT:
            thread = threading.Thread(target=take, args=(consumer,))
            thread.start()
            thread.join()
            got.append(next(iter(consumer)).offset)
            if len(got) < COUNT:
                take(consumer)
    assert got == list(range(COUNT))


def test_an_iteration_that_a_thread_has_taken_over_raises(
    address: str, place: TopicPartition
) -> None:
    with blocking.Consumer(address) as consumer:
        consumer.assign([place])
        iteration = iter(consumer)
        assert next(iteration).offset == 0
        other = iter(consumer)  # of the same thread: they take turns
        assert [next(other).offset, next(iteration).offset, next(other).offset] == [1, 2, 3]
        got: list[int] = []
        thread = threading.Thread(target=lambda: got.append(next(iter(consumer)).offset))
        thread.start()
        thread.join()
        assert got == [4]
        with pytest.raises(Refused, match=REFUSED):
            next(iteration)
        assert next(iter(consumer)).offset == 5

"""Members of a group in asyncio programs, on a real broker: ours, and with --peers Apache Kafka."""

# ruff: noqa: PT012 - what raises here is often the end of a block, so the block is the statement

import asyncio
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from odradek.client.aio import Admin, Consumer, Producer, Refused, TopicPartition
from tests.client.live import WAIT_MS, name_of

QUICK: dict[str, Any] = {"group_protocol": "classic", "heartbeat_interval_ms": 100}
"""A member learns of a rebalance by its next heartbeat."""
PROTOCOLS: dict[str, dict[str, Any]] = {
    "consumer": {"group_protocol": "consumer"},
    "classic": {**QUICK, "session_timeout_ms": 45_000},
}
PARTITIONS = 4
SOON_S = 8.0
"""Less than the session of either protocol, and much more than leaving takes."""


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = name_of("aio-group")

    async def create() -> None:
        async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
            await admin.create_topic(name, partitions=PARTITIONS)
            for number in range(40):
                await producer.send(name, b"%d" % number, partition=number % PARTITIONS)

    asyncio.run(create())
    return name


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - the members tell of no event
        await asyncio.sleep(0.01)


def sizes(*consumers: Consumer) -> list[int]:
    return [len(consumer.assignment()) for consumer in consumers]


@pytest.fixture(params=PROTOCOLS)
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return PROTOCOLS[request.param]


def test_two_members_share_the_partitions_and_one_takes_over(
    bootstrap: str, topic: str, options: dict[str, Any]
) -> None:
    group = name_of("group")
    read: list[int] = []
    here = threading.current_thread()
    told: list[tuple[str, int]] = []

    async def consume(consumer: Consumer) -> None:
        async for record in consumer:
            read.append(int(record.value or b""))

    async def use() -> None:
        first, second = (Consumer(bootstrap, group_id=group, **options) for _ in range(2))

        def assigned(partitions: list[TopicPartition]) -> None:
            assert threading.current_thread() is here
            assert first.assignment()
            told.append(("assigned", len(partitions)))

        async def revoked(partitions: list[TopicPartition]) -> None:
            assert asyncio.get_running_loop() is loop
            await first.commit()
            told.append(("revoked", len(partitions)))

        loop = asyncio.get_running_loop()
        async with first:
            first.subscribe(topic, on_assigned=assigned, on_revoked=revoked)
            reading = asyncio.ensure_future(consume(first))
            async with asyncio.timeout(WAIT_MS / 1000):
                await until(lambda: len(read) >= 40)
                async with second:
                    second.subscribe(topic)
                    also_reading = asyncio.ensure_future(consume(second))
                    await until(lambda: sizes(first, second) == [2, 2])
                    also_reading.cancel()
                    await asyncio.wait([also_reading])
                await until(lambda: sizes(first) == [PARTITIONS])
            reading.cancel()
            await asyncio.wait([reading])
            metadata = first.group_metadata()
            assert metadata.group_id == group
        assert told[0] == ("assigned", PARTITIONS)
        assert told[-1] == ("revoked", PARTITIONS), "leaving calls it, and it may still commit"

    asyncio.run(use())
    assert sorted(read) == list(range(40)), "nothing is read twice: offsets went with partitions"


@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_callback_raises_leaves_the_poll(bootstrap: str, topic: str, is_async: bool) -> None:
    def fails(partitions: list[TopicPartition]) -> None:
        raise ZeroDivisionError

    async def fails_later(partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    async def use() -> None:
        async with Consumer(bootstrap, group_id=name_of("group"), **QUICK) as consumer:
            consumer.subscribe(topic, on_assigned=fails_later if is_async else fails)
            with pytest.raises(ZeroDivisionError):
                while True:
                    await consumer.poll(WAIT_MS)

    asyncio.run(use())


def test_a_callback_is_not_cut_off_by_the_time_limit_of_a_poll(bootstrap: str, topic: str) -> None:
    told: list[str] = []

    async def waits(partitions: list[TopicPartition]) -> None:
        told.append("begun")
        try:
            await asyncio.sleep(0.2)  # twenty times the limit
            told.append("ended")
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    async def use() -> None:
        async with Consumer(bootstrap, group_id=name_of("group"), **QUICK) as consumer:
            consumer.subscribe(topic, on_assigned=waits)
            while not told:
                await consumer.poll(timeout_ms=10)
            assert told == ["begun", "ended"], "poll waits for a callback that has begun"

    asyncio.run(asyncio.wait_for(use(), WAIT_MS / 1000))


def test_a_poll_that_is_cancelled_cancels_its_callback(bootstrap: str, topic: str) -> None:
    cancelled: list[bool] = []
    begun: list[bool] = []

    async def waits(partitions: list[TopicPartition]) -> None:
        begun.append(True)
        try:
            await asyncio.sleep(WAIT_MS)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def use() -> None:
        async with Consumer(bootstrap, group_id=name_of("group"), **QUICK) as consumer:
            consumer.subscribe(topic, on_assigned=waits)
            poll = asyncio.ensure_future(consumer.poll(WAIT_MS))
            await until(lambda: bool(begun))
            poll.cancel()
            await asyncio.wait([poll])

    asyncio.run(asyncio.wait_for(use(), WAIT_MS / 1000))
    assert cancelled == [True]


def test_subscribe_needs_a_group_and_refuses_assigned_partitions(
    bootstrap: str, topic: str
) -> None:
    async def use() -> None:
        async with Consumer(bootstrap) as consumer:
            with pytest.raises(Refused, match="group_id"):
                consumer.subscribe(topic)
        async with Consumer(bootstrap, group_id=name_of("group")) as consumer:
            consumer.subscribe(topic)
            with pytest.raises(Refused, match="unsubscribe"):
                consumer.assign([(topic, 0)])
            await consumer.unsubscribe()
            consumer.assign([(topic, 0)])

    asyncio.run(use())


def test_ctrl_c_leaves_the_group_at_once(
    bootstrap: str, topic: str, options: dict[str, Any]
) -> None:
    """The next member does not wait for the session of this one."""
    group = name_of("group")

    async def interrupted() -> None:
        async with Consumer(bootstrap, group_id=group, **options) as consumer:
            consumer.subscribe(topic)
            while not consumer.assignment():
                await consumer.poll(100)
            signal.raise_signal(signal.SIGINT)
            await consumer.poll(WAIT_MS)

    async def follow() -> None:
        async with Consumer(bootstrap, group_id=group, **options) as consumer:
            consumer.subscribe(topic)
            async with asyncio.timeout(SOON_S):
                while len(consumer.assignment()) < PARTITIONS:
                    await consumer.poll(100)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(interrupted())
    asyncio.run(follow())

"""Short forms of aiokafka for the tests: deliver, read, wait.

trio runs this project's async tests; aiokafka needs asyncio, so its tests are plain functions that
call `asyncio.run`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.compat.conftest import DEADLINE_SECONDS


@asynccontextmanager
async def producer(bootstrap: str, **settings: Any) -> AsyncIterator[Any]:
    """An idempotent producer; with a `transactional_id` it has fenced its predecessor."""
    made = AIOKafkaProducer(bootstrap_servers=bootstrap, **{"enable_idempotence": True, **settings})
    try:
        await made.start()
        yield made
    finally:
        await made.stop()  # after a failed start, too: it holds connections


@asynccontextmanager
async def consumer(
    bootstrap: str, *topics: str, group: str | None = None, **settings: Any
) -> AsyncIterator[Any]:
    """A consumer that is read_committed, from the beginning, and stores offsets when told."""
    defaults = {
        "isolation_level": "read_committed",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": 50,
        "heartbeat_interval_ms": 300,  # how soon a member learns of a rebalance
    }
    made = AIOKafkaConsumer(
        *topics, bootstrap_servers=bootstrap, group_id=group, **{**defaults, **settings}
    )
    try:
        await made.start()
        yield made
    finally:
        await made.stop()  # after a failed start, too: it holds connections


async def deliver(
    sender: Any, topic: str, values: Iterable[bytes | None], **arguments: Any
) -> list[Any]:
    """Send the values, wait for all their answers, return them in order. Raises on an error."""
    answers = [await sender.send(topic, value, **arguments) for value in values]
    return await asyncio.wait_for(asyncio.gather(*answers), DEADLINE_SECONDS)


async def read(
    bootstrap: str, topic: str, *, count: int, partitions: int = 1, **settings: Any
) -> list[Any]:
    """At least `count` records, and all that can be read after them: one too many shows as well."""
    records: list[Any] = []
    places = [TopicPartition(topic, index) for index in range(partitions)]
    async with consumer(bootstrap, **settings) as receiver, asyncio.timeout(DEADLINE_SECONDS):
        receiver.assign(places)
        await receiver.seek_to_beginning(*places)
        while len(records) < count or not await _is_at_end(receiver, places):
            records += await polled(receiver)
    return records


async def _is_at_end(receiver: Any, places: list[TopicPartition]) -> bool:
    ends = await receiver.end_offsets(places)
    return all([await receiver.position(place) >= ends[place] for place in places])


async def polled(receiver: Any) -> list[Any]:
    """The records of one poll, in order of their partition."""
    found = await receiver.getmany(timeout_ms=50)
    return [record for records in found.values() for record in records]


async def poll_until(
    done: Callable[[], bool], *receivers: Any, collect: list[Any] | None = None
) -> None:
    """Poll the consumers in turn until `done()`."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not done():
            for receiver in receivers:
                records = await polled(receiver)
                if collect is not None:
                    collect += records

"""Consumers that iterate over the records of a group, with automatic commits, on one broker.

Each consumer has a group of its own, joins it alone and yields every record of the topic, one by
one. The clock starts with the first record, so that joining does not count. The clients take
turns, because the machine is faster at one time than at another.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final
from uuid import uuid4

import trio
from aiokafka import AIOKafkaConsumer

from odradek.client import Consumer, aio, blocking
from scripts.benchmarks.figures import Figure, at_least
from scripts.benchmarks.load import TIMEOUT_SECONDS, new_topic, produce
from scripts.benchmarks.targets import Target

FAMILY: Final = "consumers"
COUNTS: Final = {100: 400_000, 1024: 200_000}  # record size: number of records
TURNS: Final = 5
QUICK_TURNS: Final = 2
LEAST_OF_AIOKAFKA: Final = 1.5

Read = Callable[[str, str, int], float]  # address, topic, count -> seconds


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    with target.running() as address:
        for size_bytes, full_count in COUNTS.items():
            count = full_count // 4 if quick else full_count
            topic = new_topic(address, f"consumers-{size_bytes}")
            produce(address, topic, size_bytes=size_bytes, count=count)
            rates: dict[str, list[float]] = {client: [] for client in CLIENTS}
            for _ in range(QUICK_TURNS if quick else TURNS):
                for client, read in CLIENTS.items():
                    rates[client].append((count - 1) / read(address, topic, count))
            yield from _figures(size_bytes, rates)


def _figures(size_bytes: int, rates: dict[str, list[float]]) -> Iterator[Figure]:
    medians = {client: statistics.median(found) for client, found in rates.items()}
    for client, rate in medians.items():
        yield Figure(
            family=FAMILY, name=f"iterate {size_bytes} B, {client}", value=rate, unit="records/s"
        )
    for client in ("trio", "blocking"):
        yield Figure(
            family=FAMILY,
            name=f"iterate {size_bytes} B, {client} of aiokafka",
            value=medians[client] / medians["aiokafka"],
            unit="x",
            floor=at_least(LEAST_OF_AIOKAFKA),
        )


async def _counted(records: AsyncIterator[Any], count: int) -> float:
    """Return the seconds from the first record to the last."""
    left, started = count, 0.0
    async for _ in records:
        if left == count:
            started = time.perf_counter()
        left -= 1
        if not left:
            break
    return time.perf_counter() - started


def _trio(address: str, topic: str, count: int) -> float:
    async def run() -> float:
        async with Consumer(address, **_options()) as consumer:
            consumer.subscribe(topic)
            return await _counted(consumer, count)

    return trio.run(run)


def _blocking(address: str, topic: str, count: int) -> float:
    with blocking.Consumer(address, **_options()) as consumer:
        consumer.subscribe(topic)
        left, started = count, 0.0
        for _ in consumer:
            if left == count:
                started = time.perf_counter()
            left -= 1
            if not left:
                break
        return time.perf_counter() - started


def _aio(address: str, topic: str, count: int) -> float:
    async def run() -> float:
        async with aio.Consumer(address, **_options()) as consumer:
            consumer.subscribe(topic)
            return await _counted(consumer, count)

    return asyncio.run(asyncio.wait_for(run(), TIMEOUT_SECONDS))


def _aiokafka(address: str, topic: str, count: int) -> float:
    async def run() -> float:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=f"bench-{uuid4()}",
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=True,
        )
        await consumer.start()
        try:
            return await _counted(consumer, count)
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(run(), TIMEOUT_SECONDS))


def _options() -> Any:
    return {
        "group_id": f"bench-{uuid4()}",
        "enable_auto_commit": True,
    }


CLIENTS: Final[dict[str, Read]] = {
    "trio": _trio,
    "blocking": _blocking,
    "asyncio": _aio,
    "aiokafka": _aiokafka,
}

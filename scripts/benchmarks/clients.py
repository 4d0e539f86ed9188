"""Odradek's producer and consumer compared with other Python clients, on the same broker."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import trio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPlace
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPlace

from odradek.client import Consumer, Producer, TopicPartition, aio, blocking
from scripts.benchmarks.figures import Figure
from scripts.benchmarks.load import PARTITIONS, TIMEOUT_SECONDS, new_topic
from scripts.benchmarks.targets import Target

FAMILY: Final = "clients"
COUNTS: Final = {100: 200_000, 1024: 100_000}  # record size: number of records
LINGER_MS: Final = 5
BATCH_BYTES: Final = 256 * 1024

Measure = Callable[[str, str, bytes, int], float]  # address, topic, value, count -> seconds


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    with target.running() as address:
        for size_bytes, full_count in COUNTS.items():
            count = full_count // 4 if quick else full_count
            for client, (produce, consume) in CLIENTS.items():
                topic = new_topic(address, f"clients-{size_bytes}")
                for direction, function in (("produce", produce), ("consume", consume)):
                    seconds = function(address, topic, b"x" * size_bytes, count)
                    yield Figure(
                        family=FAMILY,
                        name=f"{direction} {size_bytes} B, {client}",
                        value=count / seconds,
                        unit="records/s",
                    )


def _produce_ours(address: str, topic: str, value: bytes, count: int) -> float:
    async def run() -> float:
        settings: Any = {"linger_ms": LINGER_MS, "batch_bytes": BATCH_BYTES}
        async with Producer(address, **settings) as sender:
            await sender.partitions_for(topic)
            started = time.perf_counter()
            for _ in range(count):
                await sender.send(topic, value)
            await sender.flush()
            return time.perf_counter() - started

    return trio.run(run)


def _consume_ours(address: str, topic: str, value: bytes, count: int) -> float:
    async def run() -> float:
        async with Consumer(address) as receiver:
            places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            started = time.perf_counter()
            receiver.assign(places)
            for place in places:
                receiver.seek(place, 0)
            read = 0
            while read < count:
                read += len(await receiver.poll(timeout_ms=1_000))
            return time.perf_counter() - started

    return trio.run(run)


def _produce_blocking(address: str, topic: str, value: bytes, count: int) -> float:
    settings: Any = {"linger_ms": LINGER_MS, "batch_bytes": BATCH_BYTES}
    with blocking.Producer(address, **settings) as sender:
        sender.partitions_for(topic)
        started = time.perf_counter()
        for _ in range(count):
            sender.send(topic, value)
        sender.flush()
        return time.perf_counter() - started


def _consume_blocking(address: str, topic: str, value: bytes, count: int) -> float:
    with blocking.Consumer(address) as receiver:
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        started = time.perf_counter()
        receiver.assign(places)
        for place in places:
            receiver.seek(place, 0)
        read = 0
        while read < count:
            read += len(receiver.poll(timeout_ms=1_000))
        return time.perf_counter() - started


def _produce_aio(address: str, topic: str, value: bytes, count: int) -> float:
    async def run() -> float:
        settings: Any = {"linger_ms": LINGER_MS, "batch_bytes": BATCH_BYTES}
        async with aio.Producer(address, **settings) as sender:
            await sender.partitions_for(topic)
            started = time.perf_counter()
            for _ in range(count):
                await sender.send(topic, value)
            await sender.flush()
            return time.perf_counter() - started

    return _asyncio(run)


def _consume_aio(address: str, topic: str, value: bytes, count: int) -> float:
    async def run() -> float:
        async with aio.Consumer(address) as receiver:
            places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            started = time.perf_counter()
            receiver.assign(places)
            for place in places:
                receiver.seek(place, 0)
            read = 0
            while read < count:
                read += len(await receiver.poll(timeout_ms=1_000))
            return time.perf_counter() - started

    return _asyncio(run)


def _produce_aiokafka(address: str, topic: str, value: bytes, count: int) -> float:
    async def run() -> float:
        sender = AIOKafkaProducer(
            bootstrap_servers=address,
            enable_idempotence=True,
            linger_ms=LINGER_MS,
            max_batch_size=BATCH_BYTES,
        )
        await sender.start()
        try:
            await sender.partitions_for(topic)
            started = time.perf_counter()
            for _ in range(count):
                await sender.send(topic, value)
            await sender.flush()
            return time.perf_counter() - started
        finally:
            await sender.stop()

    return _asyncio(run)


def _consume_aiokafka(address: str, topic: str, value: bytes, count: int) -> float:
    async def run() -> float:
        receiver = AIOKafkaConsumer(
            bootstrap_servers=address,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await receiver.start()
        try:
            started = time.perf_counter()
            receiver.assign([AioPlace(topic, number) for number in range(PARTITIONS)])
            read = 0
            while read < count:
                found = await receiver.getmany(timeout_ms=1_000)
                read += sum(len(records) for records in found.values())
            return time.perf_counter() - started
        finally:
            await receiver.stop()

    return _asyncio(run)


def _produce_kafka_python(address: str, topic: str, value: bytes, count: int) -> float:
    sender = KafkaProducer(bootstrap_servers=address, linger_ms=LINGER_MS, batch_size=BATCH_BYTES)
    try:
        sender.partitions_for(topic)
        started = time.perf_counter()
        for _ in range(count):
            sender.send(topic, value)
        sender.flush()
        return time.perf_counter() - started
    finally:
        sender.close()


def _consume_kafka_python(address: str, topic: str, value: bytes, count: int) -> float:
    receiver = KafkaConsumer(
        bootstrap_servers=address,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=10_000,
    )
    try:
        started = time.perf_counter()
        receiver.assign([PythonPlace(topic, number) for number in range(PARTITIONS)])
        read = 0
        while read < count:
            read += sum(len(records) for records in receiver.poll(timeout_ms=1_000).values())
        return time.perf_counter() - started
    finally:
        receiver.close()


def _asyncio(run: Callable[[], Awaitable[float]]) -> float:
    async def limited() -> float:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await run()

    return asyncio.run(limited())


CLIENTS: Final[dict[str, tuple[Measure, Measure]]] = {
    "our client": (_produce_ours, _consume_ours),
    "our client, blocking": (_produce_blocking, _consume_blocking),
    "our client, asyncio": (_produce_aio, _consume_aio),
    "aiokafka": (_produce_aiokafka, _consume_aiokafka),
    "kafka-python": (_produce_kafka_python, _consume_kafka_python),
}

"""Fifty sends at the same time: what the way to trio's thread and back adds to a record.

Each of 50 tasks (trio, asyncio) or threads (blocking) sends a record of 100 bytes and waits until
it is acknowledged; when all are, the next round begins. The three clients take turns on the same
broker, because the machine is faster at one time than at another.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import trio

from odradek.client import Producer, aio, blocking
from scripts.benchmarks.figures import Figure, below
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.targets import Target

FAMILY: Final = "concurrent"
SENDS: Final = 50
ROUNDS: Final = 60
WARM_UP: Final = 10
"""The first rounds of a turn, which do not count."""
TURNS: Final = 7
QUICK_TURNS: Final = 2
VALUE: Final = b"x" * 100
MOST_OF_TRIO: Final = 1.5
"""The limit of the asyncio client's p50, as a multiple of trio's."""


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    times_ms: dict[str, list[float]] = {client: [] for client in CLIENTS}
    with target.running() as address:
        topic = new_topic(address, "concurrent")
        for _ in range(QUICK_TURNS if quick else TURNS):
            for client, run in CLIENTS.items():
                times_ms[client] += run(address, topic)[WARM_UP * SENDS :]
    p50 = {client: statistics.median(times) for client, times in times_ms.items()}
    for client, times in times_ms.items():
        p99 = statistics.quantiles(times, n=100)[98]
        for name, value in (("p50", p50[client]), ("p99", p99)):
            yield Figure(
                family=FAMILY, name=f"{SENDS} sends, {name}, {client}", value=value, unit="ms"
            )
    for client in ("blocking", "asyncio"):
        yield Figure(
            family=FAMILY,
            name=f"{SENDS} sends, p50, {client} of trio",
            value=p50[client] / p50["trio"],
            unit="x",
            floor=below(MOST_OF_TRIO) if client == "asyncio" else None,
        )


def _trio(address: str, topic: str) -> list[float]:
    times_ms: list[float] = []

    async def run() -> None:
        async with Producer(address) as producer:
            await producer.partitions_for(topic)

            async def send() -> None:
                started = time.perf_counter()
                await (await producer.send(topic, VALUE))
                times_ms.append((time.perf_counter() - started) * 1000)

            for _ in range(ROUNDS):
                async with trio.open_nursery() as nursery:
                    for _ in range(SENDS):
                        nursery.start_soon(send)

    trio.run(run)
    return times_ms


def _asyncio(address: str, topic: str) -> list[float]:
    times_ms: list[float] = []

    async def run() -> None:
        async with aio.Producer(address) as producer:
            await producer.partitions_for(topic)

            async def send() -> None:
                started = time.perf_counter()
                await (await producer.send(topic, VALUE))
                times_ms.append((time.perf_counter() - started) * 1000)

            for _ in range(ROUNDS):
                async with asyncio.TaskGroup() as group:
                    for _ in range(SENDS):
                        group.create_task(send())

    asyncio.run(run())
    return times_ms


def _blocking(address: str, topic: str) -> list[float]:
    times_ms: list[float] = []
    with blocking.Producer(address) as producer, ThreadPoolExecutor(SENDS) as threads:
        producer.partitions_for(topic)

        def send() -> None:
            started = time.perf_counter()
            producer.send(topic, VALUE).result()
            times_ms.append((time.perf_counter() - started) * 1000)

        for _ in range(ROUNDS):
            for sent in [threads.submit(send) for _ in range(SENDS)]:
                sent.result()
    return times_ms


CLIENTS: Final[dict[str, Callable[[str, str], list[float]]]] = {
    "trio": _trio,
    "blocking": _blocking,
    "asyncio": _asyncio,
}

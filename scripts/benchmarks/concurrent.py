"""One send awaited at a time, and fifty at the same time: what a client adds to a record.

Each of 50 tasks (trio, asyncio) or threads (blocking) sends a record of 100 bytes and waits until
it is acknowledged; when all are, the next round begins. A round of one record is a program that
awaits each record before it sends the next one. The three clients take turns on the same broker,
because the machine is faster at one time than at another.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Self

import trio

from odradek.client import Producer, aio, blocking
from scripts.benchmarks.figures import Figure, below
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.targets import Target

FAMILY: Final = "concurrent"
ROUNDS: Final = {1: 500, 50: 60}
"""The rounds of a turn, by the number of records that are sent at the same time."""
WARM_UP: Final = 10
"""The first rounds of a turn, which do not count."""
TURNS: Final = 7
QUICK_TURNS: Final = 2
VALUE: Final = b"x" * 100
MOST_OF_TRIO: Final = 1.5
"""The limit of the asyncio client's p50, as a multiple of trio's."""


@dataclass(slots=True)
class Taken:
    """What the records of one client took: milliseconds each, and processor seconds of all."""

    times_ms: list[float] = field(default_factory=list)
    processor_s: float = 0.0

    def start(self) -> None:
        """Forget the rounds before, and count from here."""
        self.times_ms.clear()
        self.processor_s = -time.process_time()

    def add(self, other: Self) -> None:
        self.times_ms += other.times_ms
        self.processor_s += other.processor_s


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    with target.running() as address:
        topic = new_topic(address, "concurrent")
        for sends in ROUNDS:
            taken = {client: Taken() for client in CLIENTS}
            for _ in range(QUICK_TURNS if quick else TURNS):
                for client, run in CLIENTS.items():
                    taken[client].add(run(address, topic, sends))
            yield from _figures(f"{sends} sends" if sends > 1 else "1 send", taken)


def _figures(what: str, taken: Mapping[str, Taken]) -> Iterator[Figure]:
    p50 = {client: statistics.median(of.times_ms) for client, of in taken.items()}
    for client, of in taken.items():
        p99 = statistics.quantiles(of.times_ms, n=100)[98]
        for name, value in (("p50", p50[client]), ("p99", p99)):
            yield Figure(family=FAMILY, name=f"{what}, {name}, {client}", value=value, unit="ms")
        yield Figure(
            family=FAMILY,
            name=f"{what}, processor time of the client per record, {client}",
            value=of.processor_s / len(of.times_ms) * 1e6,
            unit="us",
        )
    for client in ("blocking", "asyncio"):
        yield Figure(
            family=FAMILY,
            name=f"{what}, p50, {client} of trio",
            value=p50[client] / p50["trio"],
            unit="x",
            floor=below(MOST_OF_TRIO) if (client, what) == ("asyncio", "50 sends") else None,
        )


def _trio(address: str, topic: str, sends: int) -> Taken:
    taken = Taken()

    async def run() -> None:
        async with Producer(address) as producer:
            await producer.partitions_for(topic)

            async def send() -> None:
                started = time.perf_counter()
                await (await producer.send(topic, VALUE))
                taken.times_ms.append((time.perf_counter() - started) * 1000)

            for number in range(ROUNDS[sends]):
                if number == WARM_UP:
                    taken.start()
                if sends == 1:
                    await send()
                    continue
                async with trio.open_nursery() as nursery:
                    for _ in range(sends):
                        nursery.start_soon(send)
            taken.processor_s += time.process_time()

    trio.run(run)
    return taken


def _asyncio(address: str, topic: str, sends: int) -> Taken:
    taken = Taken()

    async def run() -> None:
        async with aio.Producer(address) as producer:
            await producer.partitions_for(topic)

            async def send() -> None:
                started = time.perf_counter()
                await (await producer.send(topic, VALUE))
                taken.times_ms.append((time.perf_counter() - started) * 1000)

            for number in range(ROUNDS[sends]):
                if number == WARM_UP:
                    taken.start()
                if sends == 1:
                    await send()
                    continue
                async with asyncio.TaskGroup() as group:
                    for _ in range(sends):
                        group.create_task(send())
            taken.processor_s += time.process_time()

    asyncio.run(run())
    return taken


def _blocking(address: str, topic: str, sends: int) -> Taken:
    taken = Taken()
    with blocking.Producer(address) as producer, ThreadPoolExecutor(sends) as threads:
        producer.partitions_for(topic)

        def send() -> None:
            started = time.perf_counter()
            producer.send(topic, VALUE).result()
            taken.times_ms.append((time.perf_counter() - started) * 1000)

        for number in range(ROUNDS[sends]):
            if number == WARM_UP:
                taken.start()
            if sends == 1:
                send()
                continue
            for sent in [threads.submit(send) for _ in range(sends)]:
                sent.result()
        taken.processor_s += time.process_time()
    return taken


CLIENTS: Final[dict[str, Callable[[str, str, int], Taken]]] = {
    "trio": _trio,
    "blocking": _blocking,
    "asyncio": _asyncio,
}

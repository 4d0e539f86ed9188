"""The latency of transactions with two partitions and a group's offsets, one after another.

The clients do not linger, because latency is measured.
"""

import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import trio
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as ConfluentProducer

from odradek.client import Producer, blocking
from odradek.client import TopicPartition as Place
from scripts.benchmarks.figures import Figure, below
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.targets import Target

FAMILY: Final = "transactions"
COUNT: Final = 500
QUICK_COUNT: Final = 100
WARM_UP: Final = 20  # the first transactions create the state topics and find the coordinators
GROUP: Final = "bench-group"
VALUE: Final = b"x" * 100
TIMEOUT_SECONDS: Final = 60.0


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    count = QUICK_COUNT if quick else COUNT
    with target.running() as address:
        topic = new_topic(address, "ledger", partitions=2)
        for client, run in CLIENTS.items():
            yield from latencies(FAMILY, client, run(address, topic, count + WARM_UP))


def latencies(family: str, client: str, times_ms: list[float]) -> Iterator[Figure]:
    """Return p50 and p99 of the transactions' times, without the first `WARM_UP`."""
    hundredths = statistics.quantiles(times_ms[WARM_UP:], n=100)
    for name, value, limit in (("p50", hundredths[49], 6.0), ("p99", hundredths[98], 15.0)):
        yield Figure(
            family=family,
            name=f"transaction {name}, {client}",
            value=value,
            unit="ms",
            floor=below(limit),
        )


def _confluent(address: str, topic: str, count: int) -> list[float]:
    sender = ConfluentProducer(
        {"bootstrap.servers": address, "transactional.id": "bench-confluent", "linger.ms": 0}
    )
    receiver = Consumer({"bootstrap.servers": address, "group.id": GROUP})
    group = receiver.consumer_group_metadata()

    def transaction(number: int) -> None:
        sender.begin_transaction()
        sender.produce(topic, VALUE, partition=0)
        sender.produce(topic, VALUE, partition=1)
        offsets = [TopicPartition(topic, 0, number)]
        sender.send_offsets_to_transaction(offsets, group, TIMEOUT_SECONDS)
        sender.commit_transaction(TIMEOUT_SECONDS)

    try:
        sender.init_transactions(TIMEOUT_SECONDS)
        return _timed(transaction, count)
    finally:
        receiver.close()


def _blocking(address: str, topic: str, count: int) -> list[float]:
    with blocking.Producer(address, transactional_id="bench-blocking") as sender:

        def transaction(number: int) -> None:
            with sender.transaction() as open_transaction:
                open_transaction.send(topic, VALUE, partition=0)
                open_transaction.send(topic, VALUE, partition=1)
                open_transaction.send_offsets({Place(topic, 0): number}, GROUP)

        return _timed(transaction, count)


def _trio(address: str, topic: str, count: int) -> list[float]:
    return trio.run(_ours, address, topic, count)


async def _ours(address: str, topic: str, count: int) -> list[float]:
    async with Producer(address, transactional_id="bench-trio") as sender:

        async def transaction(number: int) -> None:
            async with sender.transaction() as open_transaction:
                await open_transaction.send(topic, VALUE, partition=0)
                await open_transaction.send(topic, VALUE, partition=1)
                await open_transaction.send_offsets({Place(topic, 0): number}, GROUP)

        return await _timed_async(transaction, count)


def _timed(transaction: Callable[[int], None], count: int) -> list[float]:
    """Return the milliseconds of each transaction."""
    times = []
    for number in range(count):
        started = time.perf_counter()
        transaction(number)
        times.append((time.perf_counter() - started) * 1000)
    return times


async def _timed_async(transaction: Callable[[int], Awaitable[None]], count: int) -> list[float]:
    """Return the milliseconds of each transaction."""
    times = []
    for number in range(count):
        started = time.perf_counter()
        await transaction(number)
        times.append((time.perf_counter() - started) * 1000)
    return times


CLIENTS: Final[dict[str, Callable[[str, str, int], list[float]]]] = {
    "confluent-kafka": _confluent,
    "our client, trio": _trio,
    "our client, blocking": _blocking,
}

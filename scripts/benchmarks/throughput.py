"""Bulk produce and consume with confluent-kafka, which is faster than any Python broker."""

import statistics
from collections.abc import Iterator
from typing import Final

from scripts.benchmarks.figures import Figure, Floor, at_least_of_theirs
from scripts.benchmarks.load import consume, new_topic, produce
from scripts.benchmarks.targets import Target

FAMILY: Final = "throughput"
COUNTS: Final = {100: 2_000_000, 1024: 500_000}  # record size: number of records in a round
ROUNDS: Final = 3
WARM_UP_COUNT: Final = 100_000


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    with target.running() as address:
        warm = new_topic(address, "warm")
        produce(address, warm, size_bytes=100, count=WARM_UP_COUNT)
        consume(address, warm, count=WARM_UP_COUNT)
        for size_bytes, full_count in COUNTS.items():
            count = full_count // 4 if quick else full_count
            produced, consumed = [], []
            for _ in range(1 if quick else ROUNDS):
                topic = new_topic(address, f"bulk-{size_bytes}")
                produced.append(produce(address, topic, size_bytes=size_bytes, count=count))
                consumed.append(consume(address, topic, count=count))
            yield _figure("produce", size_bytes, count / statistics.median(produced))
            yield _figure("consume", size_bytes, count / statistics.median(consumed))


def _figure(direction: str, size_bytes: int, records_per_second: float) -> Figure:
    floor: Floor | None = at_least_of_theirs(0.6) if size_bytes == 1024 else None
    return Figure(
        family=FAMILY,
        name=f"{direction} {size_bytes} B, confluent-kafka",
        value=records_per_second * size_bytes / 1e6,
        unit="MB/s",
        floor=floor,
    )

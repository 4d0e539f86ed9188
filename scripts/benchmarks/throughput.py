"""Bulk produce and consume with confluent-kafka, which is faster than any Python broker.

Consumers are read_committed. *CPU* is the processor time of all threads of the broker, for each
MB of records: with client and broker on the same cores, it says more than the rate.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from scripts.benchmarks.figures import Figure, Floor, at_least_of_theirs
from scripts.benchmarks.idle import processor_seconds
from scripts.benchmarks.load import consume, new_topic, produce
from scripts.benchmarks.targets import Served, Target

FAMILY: Final = "throughput"
COUNTS: Final = {100: 2_000_000, 1024: 500_000}  # record size: number of records in a round
ROUNDS: Final = 3
WARM_UP_COUNT: Final = 100_000


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    with target.served() as broker:
        warm = new_topic(broker.address, "warm")
        produce(broker.address, warm, size_bytes=100, count=WARM_UP_COUNT)
        consume(broker.address, warm, count=WARM_UP_COUNT)
        for size_bytes, full_count in COUNTS.items():
            count = full_count // 4 if quick else full_count
            produced, consumed = [], []
            for _ in range(1 if quick else ROUNDS):
                topic = new_topic(broker.address, f"bulk-{size_bytes}")
                send = partial(produce, broker.address, topic, size_bytes=size_bytes, count=count)
                produced.append(_cost(broker, send))
                consumed.append(_cost(broker, partial(consume, broker.address, topic, count=count)))
            for direction, costs in (("produce", produced), ("consume", consumed)):
                yield from _figures(direction, size_bytes, count, costs)


@dataclass(frozen=True, slots=True)
class Cost:
    seconds: float
    processor_seconds: float | None  # of the broker, None if it is not known


def _cost(broker: Served, move: Callable[[], float]) -> Cost:
    """Move records, and return what it took."""
    if broker.pid is None:
        return Cost(move(), None)
    before = processor_seconds(broker.pid)
    seconds = move()
    return Cost(seconds, processor_seconds(broker.pid) - before)


def _figures(
    direction: str, size_bytes: int, count: int, costs: Sequence[Cost]
) -> Iterator[Figure]:
    floor: Floor | None = at_least_of_theirs(0.6) if size_bytes == 1024 else None
    what = f"{direction} {size_bytes} B, confluent-kafka"
    megabytes = count * size_bytes / 1e6
    yield Figure(
        family=FAMILY,
        name=what,
        value=megabytes / statistics.median(cost.seconds for cost in costs),
        unit="MB/s",
        floor=floor,
    )
    taken = [cost.processor_seconds for cost in costs if cost.processor_seconds is not None]
    if taken:
        yield Figure(
            family=FAMILY,
            name=f"CPU per MB, {what}",
            value=1000 * statistics.median(taken) / megabytes,
            unit="ms",
        )

"""Three brokers, each record on all of them: bulk produce, and transactions one after another.

A record is acknowledged when at least two of three have it (acks=all, min.insync.replicas 2). Ours
have flushed it by then, Kafka's have it in memory: both are the defaults.
"""

import statistics
from collections.abc import Iterator
from typing import Final

from scripts.benchmarks import java_client
from scripts.benchmarks.figures import Figure, Floor, at_least_of_theirs, at_most_of_theirs
from scripts.benchmarks.load import Replication, new_topic, produce
from scripts.benchmarks.targets import ClusterTarget
from scripts.benchmarks.transactions import CLIENTS, WARM_UP

FAMILY: Final = "replicated"
REPLICATED: Final = Replication(replicas=3, min_insync_replicas=2)
RECORD_BYTES: Final = 1024
RECORDS: Final = 200_000
ROUNDS: Final = 3
TRANSACTIONS: Final = 500
WARM_UP_RECORDS: Final = 20_000
OURS_AND_C: Final = ("confluent-kafka", "our client, trio")


def measure(target: ClusterTarget, quick: bool) -> Iterator[Figure]:
    count = RECORDS // 4 if quick else RECORDS
    with target.running() as bootstrap:
        warm = new_topic(bootstrap, "warm", replication=REPLICATED)
        produce(bootstrap, warm, size_bytes=RECORD_BYTES, count=WARM_UP_RECORDS)
        seconds = []
        for _ in range(1 if quick else ROUNDS):
            topic = new_topic(bootstrap, "bulk", replication=REPLICATED)
            seconds.append(produce(bootstrap, topic, size_bytes=RECORD_BYTES, count=count))
        yield Figure(
            family=FAMILY,
            name=f"produce {RECORD_BYTES} B, 3 replicas, confluent-kafka",
            value=count * RECORD_BYTES / statistics.median(seconds) / 1e6,
            unit="MB/s",
            floor=at_least_of_theirs(0.8),
        )
        yield from _transactions(bootstrap, TRANSACTIONS // 5 if quick else TRANSACTIONS)


def _transactions(bootstrap: str, count: int) -> Iterator[Figure]:
    topic = new_topic(bootstrap, "ledger", partitions=2, replication=REPLICATED)
    for client in OURS_AND_C:
        times_ms = CLIENTS[client](bootstrap, topic, count + WARM_UP)
        yield _median(client, times_ms[WARM_UP:], 0.5 if client == "confluent-kafka" else None)
    client = "Java client"
    first = java_client.COMPILED_AFTER
    times_ms = java_client.run(bootstrap, topic, count + first, java_client.CLIENTS[client])
    yield _median(client, times_ms[first:], 2.0)


def _median(client: str, times_ms: list[float], most: float | None) -> Figure:
    floor: Floor | None = None if most is None else at_most_of_theirs(most)
    return Figure(
        family=FAMILY,
        name=f"transaction p50, 3 replicas, {client}",
        value=statistics.median(times_ms),
        unit="ms",
        floor=floor,
    )

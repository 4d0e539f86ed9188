"""Bulk load with confluent-kafka, as fast as one process can, so that the broker is measured.

The producer passes many records in one call into C. The consumer keeps a longer queue than its
default (`queued.min.messages`). Without both, the rows would measure Python or the client's sleep.
"""

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS: Final = 4
CALL_RECORDS: Final = 1_000
QUEUED_RECORDS: Final = 500_000
TIMEOUT_SECONDS: Final = 300.0
PLAIN: Final[Mapping[str, Any]] = {}
"""The settings of a client for a listener without TLS and SASL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    replicas: int = 1
    min_insync_replicas: int = 1


ALONE: Final = Replication()


def new_topic(
    bootstrap: str,
    what_for: str,
    partitions: int = PARTITIONS,
    replication: Replication = ALONE,
) -> str:
    """Create a topic with a new name, because a running broker may be measured more than once."""
    topic = f"bench-{what_for}-{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"min.insync.replicas": str(replication.min_insync_replicas)}
    wanted = NewTopic(topic, partitions, replication.replicas, config=config)
    admin.create_topics([wanted])[topic].result(TIMEOUT_SECONDS)
    return topic


def produce(
    bootstrap: str,
    topic: str,
    *,
    size_bytes: int,
    count: int,
    settings: Mapping[str, Any] = PLAIN,
) -> float:
    """Return the seconds until `count` idempotent records on all partitions are acknowledged."""
    sender = Producer(
        {
            **settings,
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 2 * QUEUED_RECORDS,
            "queue.buffering.max.kbytes": 1_048_576,
        }
    )
    sender.list_topics(topic, TIMEOUT_SECONDS)  # connect before the clock starts
    record = {"value": b"x" * size_bytes}
    batches: list[list[dict[str, Any]]] = [[record] * CALL_RECORDS] * (count // CALL_RECORDS)
    started = time.perf_counter()
    for number, batch in enumerate(batches):
        sender.produce_batch(topic, batch, partition=number % PARTITIONS)
        while len(sender) > QUEUED_RECORDS:
            sender.poll(0.01)
    left = sender.flush(TIMEOUT_SECONDS)
    taken = time.perf_counter() - started
    if left:
        raise TimeoutError(f"{left} records were not acknowledged")
    return taken


def consume(
    bootstrap: str, topic: str, *, count: int, settings: Mapping[str, Any] = PLAIN
) -> float:
    """Return the seconds until `count` records are read with read_committed."""
    receiver = Consumer(
        {
            **settings,
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "queued.min.messages": 10_000_000,
            "queued.max.messages.kbytes": 1_048_576,
            "fetch.message.max.bytes": 8 << 20,
            "fetch.max.bytes": 64 << 20,
        }
    )
    try:
        receiver.list_topics(topic, TIMEOUT_SECONDS)
        read = 0
        started = time.perf_counter()
        receiver.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        while read < count:
            messages = receiver.consume(min(10_000, count - read), timeout=TIMEOUT_SECONDS / 10)
            if not messages:
                raise TimeoutError(f"{read} of {count} records were read")
            error = messages[0].error()
            if error is not None:
                raise KafkaException(error)
            read += len(messages)
        return time.perf_counter() - started
    finally:
        receiver.close()

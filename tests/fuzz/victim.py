"""An honest client (confluent-kafka) that runs transactions while other clients attack the broker.

    python -m tests.fuzz.victim HOST:PORT

It runs until its standard input ends, and then prints its results as one line of JSON.
"""

import json
import select
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC: Final = "honest"
PARTITIONS: Final = 2
PATIENCE_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.02
ABORTED_EVERY: Final = 10


@dataclass
class Seen:
    """The results of the victim: what it wrote, and its longest transaction."""

    committed: list[int] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)
    longest_seconds: float = 0.0


def main(address: str) -> None:
    _create_topic(address)
    producer = Producer(
        {
            "bootstrap.servers": address,
            "transactional.id": "honest-producer",
            "linger.ms": 0,
            "transaction.timeout.ms": 300_000,
        }
    )
    producer.init_transactions(PATIENCE_SECONDS)
    print("ready", flush=True)
    seen = Seen()
    number = 0
    while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
        began = time.monotonic()
        _transaction(producer, number, seen)
        seen.longest_seconds = max(seen.longest_seconds, time.monotonic() - began)
        number += 1
    print(json.dumps(asdict(seen)), flush=True)


def _create_topic(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    admin.create_topics([topic])[TOPIC].result(PATIENCE_SECONDS)


def _transaction(producer: Producer, number: int, seen: Seen) -> None:
    """Write one record to each partition. Every tenth transaction is aborted."""
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(TOPIC, str(number).encode(), partition=partition)
    if number % ABORTED_EVERY == 0:
        producer.flush(PATIENCE_SECONDS)
        producer.abort_transaction(PATIENCE_SECONDS)
        seen.aborted.append(number)
    else:
        producer.commit_transaction(PATIENCE_SECONDS)
        seen.committed.append(number)


def stored(address: str) -> list[list[int]]:
    """Return what a read_committed consumer finds in each partition, in order."""
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "honest-reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
        at_end = 0
        while at_end < PARTITIONS:
            message = consumer.poll(PATIENCE_SECONDS)
            assert message is not None, "a reader waits for ever"
            error, index, value = message.error(), message.partition(), message.value()
            if error is not None:
                assert error.name() == "_PARTITION_EOF", error
                at_end += 1
            else:
                assert index is not None
                assert value is not None
                found[index].append(int(value))
    finally:
        consumer.close()
    return found


if __name__ == "__main__":
    main(sys.argv[1])

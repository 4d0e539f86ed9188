"""Topics that grow, go, or are made anew while a transaction is open in them."""

from typing import Final

from odradek.protocol.apis.topics import (
    CREATE_PARTITIONS,
    DELETE_TOPICS,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
)
from tests.judge.asking import Batch, describe, producers, send
from tests.judge.broker import Broker, Identity, Where
from tests.judge.situations import GENERATIONS, TV2
from tests.judge.story import variants

T0: Final = ("t", 0)
T1: Final = ("t", 1)
U0: Final = ("u", 0)
TIMEOUT_MS: Final = 60_000


def write(
    broker: Broker, producer: Identity, generation: int, where: Where, sequence: int = 0
) -> None:
    if generation != TV2:
        broker.add("x", producer, [where])
    batch = Batch(where, producer, sequence, is_transactional=True)
    send(broker, "x", batch, version=12 if generation == TV2 else 11)


def end(broker: Broker, producer: Identity, generation: int, *, commit: bool) -> Identity:
    return broker.end("x", producer, commit=commit, version=5 if generation == TV2 else 3)


def grow(broker: Broker, topic: str, count: int) -> None:
    wanted = CreatePartitionsTopic(name=broker.names.on_wire(topic), count=count, assignments=None)
    request = CreatePartitionsRequest(topics=(wanted,), timeout_ms=TIMEOUT_MS, validate_only=False)
    broker.ask(f"grow {topic} to {count}", CREATE_PARTITIONS, 3, request)
    broker.topics_made[topic] = count
    for partition in range(count):
        broker.wait_until_led(topic, partition)


def delete(broker: Broker, topic: str) -> None:
    wire = broker.names.on_wire(topic)
    request = DeleteTopicsRequest(topic_names=(wire,), timeout_ms=TIMEOUT_MS)
    broker.ask(f"delete {topic}", DELETE_TOPICS, 5, request)
    del broker.topics_made[topic]
    broker.wait_until_gone(topic, 0)


@variants(generation=GENERATIONS, commit=(True, False))
def story_new_partitions(broker: Broker, generation: int, commit: bool) -> None:
    """They are not in the transaction until they are added."""
    broker.topic("t")
    producer = broker.init("x")
    write(broker, producer, generation, T0)
    write(broker, producer, generation, T1)
    grow(broker, "t", 3)
    send(broker, "x", Batch(T1, producer, is_transactional=True), version=11)
    write(broker, producer, generation, T1)
    describe(broker, "x")
    producer = end(broker, producer, generation, commit=commit)
    write(broker, producer, generation, ("t", 2))
    end(broker, producer, generation, commit=True)


@variants(generation=GENERATIONS, commit=(True, False))
def story_gone(broker: Broker, generation: int, commit: bool) -> None:
    """The transaction keeps the partition in its list, and ends without it."""
    broker.topic("t")
    broker.topic("u")
    producer = broker.init("x")
    write(broker, producer, generation, T0)
    write(broker, producer, generation, U0)
    delete(broker, "t")
    describe(broker, "x")
    write(broker, producer, generation, T0, 1)
    broker.add("x", producer, [T0], version=5, verify_only=True)
    producer = end(broker, producer, generation, commit=commit)
    describe(broker, "x")
    write(broker, producer, generation, U0, 0 if generation == TV2 else 1)
    end(broker, producer, generation, commit=True)


@variants(generation=GENERATIONS, commit=(True, False))
def story_made_anew(broker: Broker, generation: int, commit: bool) -> None:
    """The new topic knows nothing of the transaction; Kafka writes a marker nevertheless."""
    broker.topic("t")
    producer = broker.init("x")
    write(broker, producer, generation, T0)
    delete(broker, "t")
    broker.topic("t", 2)
    producers(broker, "t")
    broker.end_offsets("t")
    producer = end(broker, producer, generation, commit=commit)
    producers(broker, "t")
    write(broker, producer, generation, T0, 0 if generation == TV2 else 1)
    write(broker, producer, generation, T1)
    end(broker, producer, generation, commit=True)

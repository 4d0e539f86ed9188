"""A client inside the network: `python -m tests.cluster.writer LIBRARY BOOTSTRAP TOPIC`.

It sends the values 0, 1, 2... with acks=all, one after the other, until its input ends. It prints
each value that was acknowledged. An error that the library does not retry ends it.
"""

import asyncio
import select
import sys
from collections.abc import Iterator
from typing import Final

import aiokafka
import confluent_kafka
import kafka

TIMEOUT_SECONDS: Final = 60.0


def values() -> Iterator[bytes]:
    number = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        yield b"%d" % number
        number += 1


def acknowledged(value: bytes) -> None:
    print(value.decode(), flush=True)


def write_with_confluent(bootstrap: str, topic: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
    producer = confluent_kafka.Producer({**settings, "acks": "all"})

    def delivered(error: object, message: "confluent_kafka.Message[bytes, bytes]") -> None:
        if error is not None:
            sys.exit(f"{message.value()!r}: {error}")
        value = message.value()
        assert value is not None
        acknowledged(value)

    for value in values():
        producer.produce(topic, value, on_delivery=delivered)
        left = producer.flush(TIMEOUT_SECONDS)
        assert left == 0, f"{value!r} was not answered within {TIMEOUT_SECONDS} s"


def write_with_kafka_python(bootstrap: str, topic: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap.split(","), acks="all", enable_idempotence=True
    )
    for value in values():
        producer.send(topic, value).get(TIMEOUT_SECONDS)
        acknowledged(value)
    producer.close()


def write_with_aiokafka(bootstrap: str, topic: str) -> None:
    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, acks="all", enable_idempotence=True
        )
        async with producer:
            for value in values():
                await asyncio.wait_for(producer.send_and_wait(topic, value), TIMEOUT_SECONDS)
                acknowledged(value)

    asyncio.run(write())


WRITERS: Final = {
    "confluent": write_with_confluent,
    "kafka-python": write_with_kafka_python,
    "aiokafka": write_with_aiokafka,
}


if __name__ == "__main__":
    library, bootstrap, topic = sys.argv[1:]
    WRITERS[library](bootstrap, topic)

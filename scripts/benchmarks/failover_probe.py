"""A client that the failover figures watch: `failover_probe KIND BOOTSTRAP NAME`.

It does one thing after the other, and prints for each the time of its answer, in seconds of the
monotonic clock, and a word. An error of the client ends it.
"""

import sys
import time
from collections.abc import Iterator
from typing import Final

import confluent_kafka

from odradek.client.blocking import Admin, Producer

TIMEOUT_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.01


def produced(bootstrap: str, topic: str) -> Iterator[object]:
    with Producer(bootstrap) as sender:
        while True:
            yield sender.send(topic, b"value").result().offset


def produced_by_librdkafka(bootstrap: str, topic: str) -> Iterator[object]:
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
    sender = confluent_kafka.Producer({**settings, "acks": "all"})

    def answered(error: object, message: "confluent_kafka.Message[bytes, bytes]") -> None:
        if error is not None:
            sys.exit(f"{message.value()!r}: {error}")

    while True:
        sender.produce(topic, b"value", on_delivery=answered)
        yield sender.flush(TIMEOUT_SECONDS)


def committed(bootstrap: str, topic: str) -> Iterator[object]:
    with Producer(bootstrap, transactional_id=topic) as sender:
        while True:
            with sender.transaction() as transaction:
                transaction.send(topic, b"value")
            yield "committed"


def elected(bootstrap: str, _: str) -> Iterator[object]:
    """Yield the controller of each answer to Metadata."""
    with Admin(bootstrap) as admin:
        while True:
            yield admin.describe_cluster().controller_id


KINDS: Final = {
    "produce": produced,
    "produce-librdkafka": produced_by_librdkafka,
    "commit": committed,
    "elect": elected,
}


if __name__ == "__main__":
    kind, bootstrap, name = sys.argv[1:]
    for answer in KINDS[kind](bootstrap, name):
        print(time.monotonic(), answer, flush=True)
        time.sleep(PAUSE_SECONDS)

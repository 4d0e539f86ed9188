"""Short forms of confluent-kafka (librdkafka) for the tests: deliver, read, wait."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.compat.conftest import DEADLINE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A record that was read, or whose storing was acknowledged."""

    partition: int
    offset: int  # -1 if nobody told it
    key: bytes | None
    value: bytes | None
    headers: Any  # a list of (name, value), or None
    timestamp: tuple[int, int]  # its kind, and milliseconds

    @classmethod
    def of(cls, message: "Message[bytes, bytes]") -> Self:
        partition, offset = message.partition(), message.offset()
        return cls(
            partition=-1 if partition is None else partition,
            offset=-1 if offset is None else offset,
            key=message.key(),
            value=message.value(),
            headers=message.headers(),
            timestamp=message.timestamp(),
        )


def producer(bootstrap: str, **settings: Any) -> Producer:
    """An idempotent producer that does not wait to fill batches. `a_b=1` sets `a.b`."""
    return Producer(_settings(bootstrap, {"enable_idempotence": True, "linger_ms": 0, **settings}))


def transactional(bootstrap: str, transactional_id: str, **settings: Any) -> Producer:
    """A producer that has initialised its transactions (and fenced its predecessor)."""
    made = producer(bootstrap, transactional_id=transactional_id, **settings)
    made.init_transactions(DEADLINE_SECONDS)
    return made


@contextmanager
def consumer(bootstrap: str, group: str = "nobody", **settings: Any) -> Iterator[Consumer]:
    """A consumer that is read_committed, from the beginning, and stores offsets when told."""
    defaults: dict[str, object] = {
        "group_id": group,
        "isolation_level": "read_committed",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_wait_max_ms": 50,
        "heartbeat_interval_ms": 300,  # how soon a member learns of a rebalance
    }
    if settings.get("group_protocol") == "consumer":
        del defaults["heartbeat_interval_ms"]  # the broker's setting, for all members
    made = Consumer(_settings(bootstrap, {**defaults, **settings}))
    try:
        yield made
    finally:
        made.close()


def deliver(
    sender: Producer, topic: str, values: Iterable[bytes | None], **arguments: Any
) -> list[Received]:
    """Produce the values, wait for all their answers, return them in order. Raises on an error."""
    answers: list[Received] = []
    errors: list[KafkaError] = []

    def answered(error: KafkaError | None, message: "Message[bytes, bytes]") -> None:
        if error is not None:
            errors.append(error)
        answers.append(Received.of(message))

    for value in values:
        sender.produce(topic, value=value, on_delivery=answered, **arguments)
        sender.poll(0)
    assert sender.flush(DEADLINE_SECONDS) == 0, "records were not answered"
    if errors:
        raise KafkaException(errors[0])
    return answers


def read(
    bootstrap: str,
    topic: str,
    *,
    count: int,
    partitions: int = 1,
    isolation_level: str = "read_committed",
    **settings: Any,
) -> list[Received]:
    """At least `count` records, and all that can be read after them: one too many shows as well."""
    messages: list[Received] = []
    next_offsets = dict.fromkeys(range(partitions), 0)
    deadline = time.monotonic() + DEADLINE_SECONDS
    with consumer(
        bootstrap, isolation_level=isolation_level, enable_partition_eof=True, **settings
    ) as receiver:

        def assign() -> None:
            receiver.assign([TopicPartition(topic, *place) for place in next_offsets.items()])

        def read_some() -> set[int]:
            ended = set()
            assert time.monotonic() < deadline, f"{len(messages)} records of {count}"
            for message in receiver.consume(1000, timeout=0.05):
                error = message.error()
                if error is None:
                    messages.append(Received.of(message))
                    next_offsets[messages[-1].partition] = messages[-1].offset + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(Received.of(message).partition)
                else:
                    raise KafkaException(error)
            return ended

        assign()
        while len(messages) < count:
            read_some()
        assign()  # the end of a partition is told once: ask anew, now that all should be there
        ended: set[int] = set()
        while len(ended) < partitions:
            ended |= read_some()
    return messages


def values(messages: Iterable[Received]) -> list[bytes]:
    """The values of records none of which is null."""
    found = []
    for message in messages:
        assert message.value is not None
        found.append(message.value)
    return found


def next_record(receiver: Consumer) -> Received:
    """The next record, waited for."""
    message = receiver.poll(DEADLINE_SECONDS)
    assert message is not None, "no record came"
    if message.error() is not None:
        raise KafkaException(message.error())
    return Received.of(message)


def poll_until(
    done: Callable[[], bool], *receivers: Consumer, collect: list[Received] | None = None
) -> None:
    """Poll the consumers in turn until `done()`: that is how members of a group make progress."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not done():
        assert time.monotonic() < deadline, "it did not happen"
        for receiver in receivers:
            message = receiver.poll(0.05)
            if message is None:
                continue
            if message.error() is not None:
                raise KafkaException(message.error())
            if collect is not None:
                collect.append(Received.of(message))


def _settings(bootstrap: str, settings: dict[str, Any]) -> dict[str, Any]:
    named = {
        name if name.endswith("_cb") else name.replace("_", "."): value
        for name, value in settings.items()
    }
    return {"bootstrap.servers": bootstrap, **named}

"""Short forms of kafka-python for the tests: deliver, read, wait."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.compat.conftest import DEADLINE_SECONDS

POLLS_IN_VAIN: Final = 5


@contextmanager
def producer(bootstrap: str, **settings: Any) -> Iterator[Any]:
    """A producer (idempotent, as this client is by default)."""
    made = KafkaProducer(bootstrap_servers=bootstrap, **settings)
    try:
        yield made
    finally:
        made.close(timeout=DEADLINE_SECONDS)


@contextmanager
def transactional(bootstrap: str, transactional_id: str, **settings: Any) -> Iterator[Any]:
    """A producer that has initialised its transactions (and fenced its predecessor)."""
    with producer(bootstrap, transactional_id=transactional_id, **settings) as made:
        made.init_transactions()
        yield made


@contextmanager
def consumer(bootstrap: str, group: str | None = None, **settings: Any) -> Iterator[Any]:
    """A consumer that is read_committed, from the beginning, and stores offsets when told."""
    defaults = {
        "isolation_level": "read_committed",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": 50,
        "heartbeat_interval_ms": 300,  # how soon a member learns of a rebalance
    }
    made = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, **{**defaults, **settings})
    try:
        yield made
    finally:
        made.close()


def deliver(sender: Any, topic: str, values: Iterable[bytes | None], **arguments: Any) -> list[Any]:
    """Send the values, wait for all their answers, return them in order. Raises on an error."""
    answers = [sender.send(topic, value, **arguments) for value in values]
    return [answer.get(timeout=DEADLINE_SECONDS) for answer in answers]


def read(
    bootstrap: str, topic: str, *, count: int, partitions: int = 1, **settings: Any
) -> list[Any]:
    """At least `count` records, and all that can be read after them: one too many shows as well."""
    records: list[Any] = []
    places = [TopicPartition(topic, index) for index in range(partitions)]
    deadline = time.monotonic() + DEADLINE_SECONDS
    with consumer(bootstrap, **settings) as receiver:
        receiver.assign(places)
        receiver.seek_to_beginning(*places)
        while len(records) < count or not _is_at_end(receiver, places):
            assert time.monotonic() < deadline, f"{len(records)} records of {count}"
            records += polled(receiver)
    return records


def _is_at_end(receiver: Any, places: list[TopicPartition]) -> bool:
    ends = receiver.end_offsets(places)
    return all(receiver.position(place) >= ends[place] for place in places)


def polled(receiver: Any, timeout_ms: int = 50) -> list[Any]:
    """The records of one poll, in order of their partition."""
    found = receiver.poll(timeout_ms=timeout_ms)
    return [record for records in found.values() for record in records]


def join_again(receiver: Any) -> None:
    topics = receiver.subscription()
    receiver.unsubscribe()
    receiver.subscribe(list(topics))


def poll_until(done: Callable[[], bool], *receivers: Any, collect: list[Any] | None = None) -> None:
    """Poll the consumers until `done()`, each in a thread: a member that waits for the others to
    join does so inside its poll. A poll that ends between SyncGroup and its answer loses the
    assignment for good (kafka-python 3.0.12): these are long, and who has none after some of them
    joins again."""
    stop = threading.Event()
    deadline = time.monotonic() + DEADLINE_SECONDS

    def poll(receiver: Any) -> None:
        in_vain = 0
        while not stop.is_set():
            records = polled(receiver, timeout_ms=1_000)
            if collect is not None:
                collect.extend(records)
            in_vain = 0 if receiver.assignment() else in_vain + 1
            if in_vain == POLLS_IN_VAIN:
                join_again(receiver)
                in_vain = 0

    with ThreadPoolExecutor(len(receivers)) as threads:
        polling = [threads.submit(poll, receiver) for receiver in receivers]
        try:
            while not done():
                assert time.monotonic() < deadline, "it did not happen"
                wait(polling, timeout=0.02, return_when=FIRST_EXCEPTION)
                if any(poll.done() for poll in polling):
                    break  # by an error, which result() raises
        finally:
            stop.set()
        for ended in polling:
            ended.result()

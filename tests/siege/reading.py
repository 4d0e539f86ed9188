"""The readers of a siege: read_committed from the start, each poll noted for the checker."""

import threading
from collections import defaultdict

from confluent_kafka import TopicPartition as Place

from odradek.client import blocking
from tests.checker.history import Found, Partition, Poll
from tests.compat.confluent import consumer, read

POLL_SECONDS = 0.2
AT_ONCE = 500


def read_with_confluent(
    bootstrap: str, partitions: list[Partition], polls: list[Poll], stop: threading.Event
) -> None:
    with consumer(bootstrap, reconnect_backoff_max_ms=200) as receiver:
        receiver.assign([Place(*partition, 0) for partition in partitions])
        while not stop.is_set():
            records: defaultdict[Partition, list[Found]] = defaultdict(list)
            for message in receiver.consume(AT_ONCE, timeout=POLL_SECONDS):
                topic, number = message.topic(), message.partition()
                offset, value = message.offset(), message.value()
                if message.error() is None and offset is not None and value is not None:
                    assert topic is not None
                    assert number is not None
                    records[topic, number].append((offset, value))
            if records:
                polls.append(Poll(process="reader-confluent", records=records))


def read_with_our_client(
    bootstrap: str, partitions: list[Partition], polls: list[Poll], stop: threading.Event
) -> None:
    positions = dict.fromkeys(partitions, 0)
    while not stop.is_set():
        try:
            with blocking.Consumer(bootstrap) as receiver:
                receiver.assign(partitions)
                for partition, offset in positions.items():
                    receiver.seek(blocking.TopicPartition(*partition), offset)
                while not stop.is_set():
                    records: defaultdict[Partition, list[Found]] = defaultdict(list)
                    polled = receiver.poll(timeout_ms=1000 * POLL_SECONDS, max_records=AT_ONCE)
                    for record in polled:
                        partition = (record.topic, record.partition)
                        assert record.value is not None
                        records[partition].append((record.offset, record.value))
                        positions[partition] = record.offset + 1
                    if records:
                        polls.append(Poll(process="reader-ours", records=records))
        except blocking.OdradekError:
            continue  # it goes on at its positions


def read_everything(bootstrap: str, topic: str, partitions: int) -> dict[Partition, list[Found]]:
    """Return what a fresh read_committed reader finds from the start to the end."""
    log: dict[Partition, list[Found]] = {(topic, number): [] for number in range(partitions)}
    for record in read(bootstrap, topic, count=1, partitions=partitions):
        assert record.value is not None
        log[topic, record.partition].append((record.offset, record.value))
    return log


def unequal_ends(bootstrap: str, topic: str, partitions: int) -> list[str]:
    """Return the partitions whose last stable offset is not the high watermark."""
    found = []
    for number in range(partitions):
        ends = []
        for isolation in ("read_committed", "read_uncommitted"):
            with consumer(bootstrap, isolation_level=isolation) as receiver:
                ends.append(receiver.get_watermark_offsets(Place(topic, number), timeout=30)[1])
        if ends[0] != ends[1]:
            found.append(f"{topic}-{number}: LSO {ends[0]}, high watermark {ends[1]}")
    return found

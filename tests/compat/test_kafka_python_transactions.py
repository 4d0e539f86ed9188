"""kafka-python (first generation of the transaction protocol): transactions."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from kafka import OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError

from tests.compat.conftest import TRANSACTION_TIMEOUTS_MS, CreateTopic
from tests.compat.kafka_python import (
    consumer,
    deliver,
    poll_until,
    producer,
    read,
    transactional,
)


def test_only_what_was_committed_is_read_by_read_committed(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic = create_topic(partitions=2)
    with transactional(bootstrap, unique("txn")) as sender:
        for number in range(12):
            sender.begin_transaction()
            deliver(sender, topic, [b"%d" % number], partition=0)
            deliver(sender, topic, [b"%d" % number], partition=1)
            if number % 3 == 0:
                sender.abort_transaction()
            else:
                sender.commit_transaction()

    kept = [b"%d" % number for number in range(12) if number % 3 != 0]
    committed = read(bootstrap, topic, count=2 * len(kept), partitions=2)
    everything = read(bootstrap, topic, count=24, partitions=2, isolation_level="read_uncommitted")
    for partition in range(2):
        assert _values(committed, partition) == kept
        assert _values(everything, partition) == [b"%d" % number for number in range(12)]


def test_a_zombie_is_fenced_and_its_open_transaction_aborted(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, transactional_id = create_topic(), unique("txn")
    with transactional(bootstrap, transactional_id) as zombie:
        zombie.begin_transaction()
        deliver(zombie, topic, [b"zombie"])
        with transactional(bootstrap, transactional_id) as successor:
            with pytest.raises(KafkaError) as fenced:
                zombie.commit_transaction()
            successor.begin_transaction()
            deliver(successor, topic, [b"successor"])
            successor.commit_transaction()

    assert type(fenced.value).__name__ in ("ProducerFencedError", "InvalidProducerEpochError")
    assert _values(read(bootstrap, topic, count=1)) == [b"successor"]


def test_a_transaction_that_outlives_its_timeout_is_aborted_and_frees_its_readers(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic = create_topic()
    with contextlib.ExitStack() as stack:
        for timeout_ms in TRANSACTION_TIMEOUTS_MS:
            settings = {"transaction_timeout_ms": timeout_ms}
            sender = stack.enter_context(transactional(bootstrap, unique("txn"), **settings))
            sender.begin_transaction()
            try:
                deliver(sender, topic, [b"too slow"])
                break
            except KafkaError:
                if timeout_ms == TRANSACTION_TIMEOUTS_MS[-1]:
                    raise
        with producer(bootstrap) as other:
            deliver(other, topic, [b"waits behind it"])
        assert _values(read(bootstrap, topic, count=1)) == [b"waits behind it"]
        with pytest.raises(KafkaError):
            sender.commit_transaction()


def test_offsets_become_those_of_the_group_with_the_transaction(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    source, target, group = create_topic(), create_topic(), unique("group")
    place = TopicPartition(source, 0)
    received: list[Any] = []
    with producer(bootstrap) as sender:
        deliver(sender, source, [b"%d" % number for number in range(10)])

    with (
        consumer(bootstrap, group) as receiver,
        transactional(bootstrap, unique("txn")) as sender,
    ):
        receiver.subscribe([source])
        poll_until(lambda: len(received) == 10, receiver, collect=received)
        for offset, commits in ((4, True), (8, False)):
            sender.begin_transaction()
            deliver(sender, target, [record.value for record in received[:offset]])
            sender.send_offsets_to_transaction(
                {place: OffsetAndMetadata(offset, "", -1)}, receiver.group_metadata()
            )
            if commits:
                sender.commit_transaction()
            else:
                sender.abort_transaction()
        stored = receiver.committed(place)

    assert stored == 4
    assert _values(read(bootstrap, target, count=4)) == [b"0", b"1", b"2", b"3"]


def test_offsets_of_an_open_transaction_are_not_stable(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    place, group = TopicPartition(create_topic(), 0), unique("group")
    with (
        consumer(bootstrap, group) as receiver,
        transactional(bootstrap, unique("txn")) as sender,
    ):
        receiver.assign([place])
        receiver.commit({place: OffsetAndMetadata(1, "", -1)})
        sender.begin_transaction()
        sender.send_offsets_to_transaction(
            {place: OffsetAndMetadata(5, "", -1)}, receiver.group_metadata()
        )
        with pytest.raises(KafkaTimeoutError):
            receiver.committed(place, timeout_ms=500)
        sender.commit_transaction()
        assert receiver.committed(place) == 5


def test_a_timeout_over_the_brokers_limit_is_refused(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    with (
        producer(
            bootstrap, transactional_id=unique("txn"), transaction_timeout_ms=900_001
        ) as sender,
        pytest.raises(KafkaError) as refused,
    ):
        sender.init_transactions()
    assert "InvalidTransactionTimeout" in str(refused.value)


def _values(records: list[Any], partition: int = 0) -> list[bytes]:
    return [record.value for record in records if record.partition == partition]

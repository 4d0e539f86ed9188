"""confluent-kafka (librdkafka, first generation of the transaction protocol): transactions."""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.compat.confluent import (
    Received,
    consumer,
    deliver,
    poll_until,
    producer,
    read,
    transactional,
    values,
)
from tests.compat.conftest import DEADLINE_SECONDS, TRANSACTION_TIMEOUTS_MS, CreateTopic


def test_a_committed_transaction_is_read_on_all_its_partitions(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic = create_topic(partitions=3)
    sender = transactional(bootstrap, unique("txn"))

    sender.begin_transaction()
    for partition in range(3):
        deliver(sender, topic, [b"%d" % partition], partition=partition)
    sender.commit_transaction(DEADLINE_SECONDS)

    messages = read(bootstrap, topic, count=3, partitions=3)
    assert sorted(values(messages)) == [b"0", b"1", b"2"]
    assert {message.offset for message in messages} == {0}


def test_an_aborted_transaction_is_read_only_by_read_uncommitted(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic = create_topic()
    sender = transactional(bootstrap, unique("txn"))

    sender.begin_transaction()
    deliver(sender, topic, [b"aborted"])
    sender.abort_transaction(DEADLINE_SECONDS)
    sender.begin_transaction()
    deliver(sender, topic, [b"committed"])
    sender.commit_transaction(DEADLINE_SECONDS)

    committed = read(bootstrap, topic, count=1)
    everything = read(bootstrap, topic, count=2, isolation_level="read_uncommitted")
    assert [(message.offset, message.value) for message in committed] == [(2, b"committed")]
    assert values(everything) == [b"aborted", b"committed"]


def test_an_open_transaction_holds_back_what_follows_it_until_it_ends(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic = create_topic()
    sender = transactional(bootstrap, unique("txn"))
    deliver(producer(bootstrap), topic, [b"before"])

    sender.begin_transaction()
    deliver(sender, topic, [b"inside"])
    deliver(producer(bootstrap), topic, [b"after"])
    assert values(read(bootstrap, topic, count=1)) == [b"before"]
    assert len(read(bootstrap, topic, count=3, isolation_level="read_uncommitted")) == 3
    sender.commit_transaction(DEADLINE_SECONDS)

    assert values(read(bootstrap, topic, count=3)) == [b"before", b"inside", b"after"]


def test_transactions_one_after_the_other_keep_only_what_was_committed(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic = create_topic(partitions=2)
    sender = transactional(bootstrap, unique("txn"))

    for number in range(20):
        sender.begin_transaction()
        deliver(sender, topic, [b"%d" % number], partition=0)
        deliver(sender, topic, [b"%d" % number], partition=1)
        if number % 3 == 0:
            sender.abort_transaction(DEADLINE_SECONDS)
        else:
            sender.commit_transaction(DEADLINE_SECONDS)

    kept = [b"%d" % number for number in range(20) if number % 3 != 0]
    messages = read(bootstrap, topic, count=2 * len(kept), partitions=2)
    for partition in range(2):
        assert [m.value for m in messages if m.partition == partition] == kept


def test_a_zombie_is_fenced_and_its_open_transaction_aborted(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, transactional_id = create_topic(), unique("txn")
    zombie = transactional(bootstrap, transactional_id)
    zombie.begin_transaction()
    deliver(zombie, topic, [b"zombie"])

    successor = transactional(bootstrap, transactional_id)
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(DEADLINE_SECONDS)
    successor.begin_transaction()
    deliver(successor, topic, [b"successor"])
    successor.commit_transaction(DEADLINE_SECONDS)

    error = fenced.value.args[0]
    assert error.fatal()
    assert error.code() == KafkaError._FENCED
    assert values(read(bootstrap, topic, count=1)) == [b"successor"]


def test_a_zombie_cannot_write_after_it_was_fenced(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, transactional_id = create_topic(), unique("txn")
    zombie = transactional(bootstrap, transactional_id)
    successor = transactional(bootstrap, transactional_id)

    zombie.begin_transaction()
    zombie.produce(
        topic, b"zombie"
    )  # no callback: confluent-kafka crashes if a fatal error meets one
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(DEADLINE_SECONDS)
    successor.begin_transaction()
    deliver(successor, topic, [b"successor"])
    successor.commit_transaction(DEADLINE_SECONDS)

    assert fenced.value.args[0].fatal()
    everything = read(bootstrap, topic, count=1, isolation_level="read_uncommitted")
    assert values(everything) == [b"successor"]


def test_a_transaction_that_outlives_its_timeout_is_aborted_and_frees_its_readers(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic = create_topic()
    for timeout_ms in TRANSACTION_TIMEOUTS_MS:
        sender = transactional(bootstrap, unique("txn"), transaction_timeout_ms=timeout_ms)
        sender.begin_transaction()
        try:
            deliver(sender, topic, [b"too slow"])
            break
        except KafkaException:
            if timeout_ms == TRANSACTION_TIMEOUTS_MS[-1]:
                raise
    deliver(producer(bootstrap), topic, [b"waits behind it"])

    assert values(read(bootstrap, topic, count=1)) == [b"waits behind it"]
    with pytest.raises(KafkaException) as late:
        sender.commit_transaction(DEADLINE_SECONDS)

    assert late.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_TXN_STATE)


def test_offsets_become_those_of_the_group_with_the_transaction(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    source, target, group = create_topic(), create_topic(), unique("group")
    deliver(producer(bootstrap), source, [b"%d" % number for number in range(10)])
    sender = transactional(bootstrap, unique("txn"))
    received: list[Received] = []

    with consumer(bootstrap, group) as receiver:
        receiver.subscribe([source])
        poll_until(lambda: len(received) == 10, receiver, collect=received)
        for offset, commits in ((4, True), (8, False)):
            sender.begin_transaction()
            deliver(sender, target, values(received[:offset]))
            sender.send_offsets_to_transaction(
                [TopicPartition(source, 0, offset)],
                receiver.consumer_group_metadata(),
                DEADLINE_SECONDS,
            )
            if commits:
                sender.commit_transaction(DEADLINE_SECONDS)
            else:
                sender.abort_transaction(DEADLINE_SECONDS)
        (place,) = receiver.committed([TopicPartition(source, 0)], DEADLINE_SECONDS)

    assert place.offset == 4
    assert values(read(bootstrap, target, count=4)) == values(received[:4])


def test_offsets_of_an_open_transaction_are_not_stable(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(), unique("group")
    place = TopicPartition(topic, 0, 5)
    sender = transactional(bootstrap, unique("txn"))

    with consumer(bootstrap, group) as receiver:
        receiver.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        sender.begin_transaction()
        sender.send_offsets_to_transaction(
            [place], receiver.consumer_group_metadata(), DEADLINE_SECONDS
        )
        with pytest.raises(KafkaException) as unstable:
            receiver.committed([TopicPartition(topic, 0)], 0.5)
        sender.commit_transaction(DEADLINE_SECONDS)
        (stored,) = receiver.committed([TopicPartition(topic, 0)], DEADLINE_SECONDS)

    assert unstable.value.args[0].code() in (
        KafkaError._TIMED_OUT,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    )
    assert stored.offset == 5


def test_a_member_that_was_replaced_cannot_put_offsets_into_a_transaction(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(), unique("group")
    sender = transactional(bootstrap, unique("txn"))
    with consumer(bootstrap, group) as old:
        old.subscribe([topic])
        poll_until(lambda: len(old.assignment()) == 1, old)
        stale = old.consumer_group_metadata()

    with consumer(bootstrap, group) as current:
        current.subscribe([topic])
        poll_until(lambda: len(current.assignment()) == 1, current)
        sender.begin_transaction()
        with pytest.raises(KafkaException) as refused:
            sender.send_offsets_to_transaction(
                [TopicPartition(topic, 0, 1)], stale, DEADLINE_SECONDS
            )
        sender.abort_transaction(DEADLINE_SECONDS)

    assert refused.value.args[0].txn_requires_abort()
    assert refused.value.args[0].code() in (
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
    )


def test_a_timeout_over_the_brokers_limit_is_refused(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    with pytest.raises(KafkaException) as refused:
        transactional(bootstrap, unique("txn"), transaction_timeout_ms=900_001)
    assert refused.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT

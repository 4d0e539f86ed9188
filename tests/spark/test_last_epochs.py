"""The driver's epochs end after some 16,000 batches, two for each: it gets a new producer id.

Each query here has a driver whose epoch is so high that the change comes at another step of the
commits that follow. Between two of these, a driver that was given up goes on.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from odradek.client.blocking import Aborted, Admin, Fenced, Producer
from odradek.client.spark.commit import BatchCommit
from odradek.client.spark.decisions import Decision
from odradek.client.spark.errors import CommitRefused
from odradek.client.spark.members import Attempt
from odradek.client.spark.messages import TaskMessage
from odradek.client.spark.options import WriteOptions
from odradek.client.spark.task_writer import TaskWriter
from odradek.protocol.state_topics import (
    TRANSACTION_STATE_TOPIC,
    TransactionLogKey,
    TransactionLogValue,
    encode_key,
    encode_value,
)
from tests.conftest import BROKER_SETTINGS
from tests.spark.conftest import ReadTopic
from tests.spark.test_task_writer import many, words_in

LAST = 32_766
EPOCHS = range(LAST - 6, LAST + 1)
EMPTY = 0
ADMIN_CLIENT = "__admin_client"
"""The client id with which Kafka, and so Odradek, takes records for internal topics."""


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker whose transactional ids are all in one partition."""
    with run_broker(
        config={**BROKER_SETTINGS, "transaction.state.log.num.partitions": "1"}
    ) as broker:
        yield broker


@pytest.fixture(scope="module")
def bootstrap(broker: RunningBroker) -> str:
    return broker.address


@pytest.fixture(scope="module")
def planted(broker: RunningBroker) -> dict[str, int]:
    """The producer ids that the drivers of the queries `e<epoch>` have at their epoch."""
    first_ids = {}
    with Admin(broker.address) as admin:
        for epoch in EPOCHS:
            admin.create_topic(f"t{epoch}", partitions=2)
    for epoch in EPOCHS:
        query = BatchCommit(options_of(broker.address, f"t{epoch}"), f"e{epoch}")
        query.commit(0, [TaskMessage(write_id=f"e{epoch}", batch_id=0)])
        first_ids[f"e{epoch}"] = identity(query)[0]
    with Producer(broker.address, client_id=ADMIN_CLIENT) as producer:
        for epoch in EPOCHS:
            query = BatchCommit(options_of(broker.address, f"t{epoch}"), f"e{epoch}")
            at_the_end = TransactionLogValue(
                producer_id=first_ids[f"e{epoch}"],
                producer_epoch=epoch,
                transaction_timeout_ms=60_000,
                transaction_status=EMPTY,
                transaction_partitions=None,
                transaction_last_update_timestamp_ms=2**41,
                transaction_start_timestamp_ms=-1,
                client_transaction_version=2,
            )
            key = encode_key(TransactionLogKey(transactional_id=query.transactional_id))
            producer.send(TRANSACTION_STATE_TOPIC, encode_value(at_the_end), key=key, partition=0)
        producer.flush()
    broker.restart()  # the coordinator reads them
    return first_ids


def options_of(bootstrap: str, topic: str) -> WriteOptions:
    return WriteOptions(bootstrap=bootstrap, topic=topic, inline_max_bytes=100)


def identity(query: BatchCommit) -> tuple[int, int]:
    """Return the producer id and epoch of the driver's transactional id."""
    with Admin(query._options.bootstrap) as admin:
        found = admin.describe_transactions(query.transactional_id)[query.transactional_id]
    assert not isinstance(found, Exception)
    return found.producer_id, found.producer_epoch


def write(options: WriteOptions, query: str, batch_id: int, word: str) -> TaskMessage:
    attempt = Attempt(write_id=query, batch_id=batch_id, run=word, partition=0, attempt=0)
    return TaskWriter(options, attempt, begins=True).write(many(word))


class OvertakenBeforeDeciding(BatchCommit):
    """While it commits, another driver of the same query commits the same batch."""

    other: TaskMessage

    def decide(self, *arguments: Any) -> None:
        assert BatchCommit(self._options, self._write_id).commit(1, [self.other])
        super().decide(*arguments)


class OvertakenBeforeWriting(BatchCommit):
    """Another driver comes in earlier, and the records are in the task's message."""

    other: TaskMessage

    def is_decided(self, batch_id: int, hint: Decision, offset: int) -> bool:
        is_decided = super().is_decided(batch_id, hint, offset)
        assert BatchCommit(self._options, self._write_id).commit(2, [self.other])
        return is_decided


@pytest.mark.parametrize("epoch", EPOCHS)
def test_a_zombie_decides_nothing_across_the_drivers_change_of_producer_id(
    epoch: int,
    broker: RunningBroker,
    planted: dict[str, int],
    read_topic: ReadTopic,
) -> None:
    query, topic = f"e{epoch}", f"t{epoch}"
    options = options_of(broker.address, topic)
    assert identity(BatchCommit(options, query)) == (planted[query], epoch)

    first = OvertakenBeforeDeciding(options, query)
    first.other = write(options, query, 1, "one")
    with pytest.raises(CommitRefused, match="nothing of it is visible"):
        first.commit(1, [write(options, query, 1, "zombie")])
    assert not BatchCommit(options, query).commit(1, [write(options, query, 1, "again")])

    second = OvertakenBeforeWriting(options, query)
    second.other = write(options, query, 2, "two")
    relayed = write(replace(options, inline_max_bytes=1 << 20), query, 2, "zombie")
    assert relayed.batches
    with pytest.raises((CommitRefused, Fenced, Aborted)):
        second.commit(2, [relayed])
    assert not BatchCommit(options, query).commit(2, [write(options, query, 2, "again")])

    assert BatchCommit(options, query).commit(3, [write(options, query, 3, "three")])
    assert words_in(read_topic, topic) == {"one": 50, "two": 50, "three": 50}
    assert identity(BatchCommit(options, query))[0] != planted[query]

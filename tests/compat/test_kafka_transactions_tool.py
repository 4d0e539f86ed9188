"""Kafka's `kafka-transactions.sh`, unmodified: all its commands against ours and against Kafka.

A hanging transaction is one that is open in a partition and that no coordinator is going to end. It
is made as bugs once made it: a batch is appended without asking the coordinator, with the
verification that prevents that switched off.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from odradek.broker.testing import run_broker
from odradek.protocol.errors import ErrorCode
from tests.broker.api.conftest import HostAndPort
from tests.broker.api.producing import Writer, unique, until
from tests.broker.asks import batch, create_topic, fetch, produce
from tests.broker.raw import RawClient
from tests.compat.kafka_tool import TRANSACTIONS, KafkaTools, Printed
from tests.conftest import BROKER_SETTINGS
from tests.peers.kafka import RealKafka

pytestmark = pytest.mark.peers

VERIFICATION: Final = "transaction.partition.verification.enable"
HOUR_MS: Final = 3_600_000
E = ErrorCode


@dataclass
class World:
    """A broker whose partitions take batches of transactions that nobody has begun."""

    address: str
    tools: KafkaTools
    client: RawClient

    def run(self, *arguments: object) -> Printed:
        return self.tools.run(TRANSACTIONS, "--bootstrap-server", self.address, *arguments)

    def hang(self, topic: str, producer: tuple[int, int], partition: int = 0) -> int:
        """Open a transaction that no coordinator knows, an hour ago; its first offset."""
        records = batch(
            b"lost",
            producer=producer,
            base_sequence=0,
            is_transactional=True,
            timestamp_ms=int(time.time() * 1000) - HOUR_MS,
        )

        def ask() -> Any:
            return produce(
                self.client,
                topic,
                records,
                version=11,
                partition=partition,
                transactional_id="nobody",
            )

        # A real Kafka needs a moment until a new topic has its leader.
        answer = until(ask, lambda answer: answer.error_code == E.NONE)
        return int(answer.base_offset)

    def stable(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Last stable offset and high watermark."""
        answer = fetch(self.client, topic, 0, isolation_level=1, partition=partition)
        return answer.last_stable_offset, answer.high_watermark


@pytest.fixture(scope="module", params=["odradek", "kafka"])
def world(request: pytest.FixtureRequest, kafka_tools: KafkaTools) -> Iterator[World]:
    if request.param == "odradek":
        with run_broker(config={VERIFICATION: "false"}) as broker, RawClient(broker) as client:
            yield World(broker.address, kafka_tools, client)
        return
    # A Kafka of its own: `find-hanging --broker-id` asks each partition of the broker, and fails
    # when a topic of another test is just being deleted.
    with (
        RealKafka(settings={**BROKER_SETTINGS, VERIFICATION: "false"}) as kafka,
        RawClient(HostAndPort(kafka.host, kafka.port)) as client,
    ):
        yield World(kafka.address, kafka_tools, client)


def test_list_has_every_transaction_and_filters_them(world: World) -> None:
    idle, busy = Writer(world.client), Writer(world.client)
    busy.write()
    rows = {row["TransactionalId"]: row for row in world.run("list").table}
    assert rows[idle.id] == {
        "TransactionalId": idle.id,
        "Coordinator": "1",
        "ProducerId": str(idle.producer[0]),
        "TransactionState": "Empty",
        "": "",
    }
    assert rows[busy.id]["TransactionState"] == "Ongoing"
    matching = world.run("list", "--transactional-id-pattern", f"{busy.id[:-1]}.").table
    assert [row["TransactionalId"] for row in matching] == [busy.id]
    old = {row["TransactionalId"] for row in world.run("list", "--duration-filter", HOUR_MS).table}
    assert idle.id in old
    assert busy.id not in old
    bad = world.run("list", "--transactional-id-pattern", "(")
    assert bad.status == 1
    assert "Failed to list transactions" in bad.text
    busy.end()


def test_describe_tells_one_transaction(world: World) -> None:
    writer = Writer(world.client)
    (row,) = world.run("describe", "--transactional-id", writer.id).table
    assert (row["TransactionState"], row["TopicPartitions"]) == ("Empty", "")
    assert row["CurrentTransactionStartTimeMs"] == row["TransactionDurationMs"] == "None"
    writer.write(1)
    (row,) = world.run("describe", "--transactional-id", writer.id).table
    assert (row["CoordinatorId"], row["TransactionalId"]) == ("1", writer.id)
    assert (row["ProducerId"], row["ProducerEpoch"]) == tuple(map(str, writer.producer))
    assert (row["TransactionState"], row["TransactionTimeoutMs"]) == ("Ongoing", "60000")
    assert 0 <= int(row["TransactionDurationMs"]) < 60_000
    assert row["TopicPartitions"] == f"{writer.topic}-1"
    writer.end()
    unknown = world.run("describe", "--transactional-id", unique("nobody"))
    assert unknown.status == 1
    assert "the ID could not be found" in unknown.text


def test_describe_producers_tells_one_partition(world: World) -> None:
    writer = Writer(world.client)
    assert world.run("describe-producers", "--topic", writer.topic, "--partition", 0).table == []
    writer.write()
    (row,) = world.run("describe-producers", "--topic", writer.topic, "--partition", 0).table
    assert (row["ProducerId"], row["ProducerEpoch"]) == tuple(map(str, writer.producer))
    assert (row["LatestCoordinatorEpoch"], row["LastSequence"]) == ("-1", "0")
    assert row["CurrentTransactionStartOffset"] == "0"
    writer.end()
    arguments = ("--topic", writer.topic, "--partition", 0, "--broker-id", 1)
    (row,) = world.run("describe-producers", *arguments).table
    assert row["CurrentTransactionStartOffset"] == "None"
    assert int(row["LatestCoordinatorEpoch"]) >= 0


def test_find_hanging_tells_lost_transactions_from_slow_ones(world: World) -> None:
    slow = Writer(world.client)
    slow.write()
    lost = (slow.producer[0] + 50_000, 3)
    offset = world.hang(slow.topic, lost)
    assert (offset, world.stable(slow.topic)) == (1, (0, 2))
    # One of an id that is known, in a partition that the coordinator knows nothing of.
    strayed = Writer(world.client)
    assert world.hang(slow.topic, strayed.producer, 1) == 0

    rows = world.run("find-hanging", "--topic", slow.topic).table
    found = {row["ProducerId"]: row for row in rows}
    assert set(found) == {str(lost[0]), str(strayed.producer[0])}
    row = found[str(lost[0])]
    assert (row["Topic"], row["Partition"]) == (slow.topic, "0")
    assert (row["ProducerEpoch"], row["CoordinatorEpoch"]) == ("3", "-1")
    assert (row["StartOffset"], row["Duration(min)"]) == ("1", "60")

    everywhere = world.run("find-hanging", "--broker-id", 1).table
    assert set(found) <= {row["ProducerId"] for row in everywhere}
    one = ("--topic", slow.topic, "--partition", 1)
    (row,) = world.run("find-hanging", *one).table
    assert row["ProducerId"] == str(strayed.producer[0])
    assert world.run("find-hanging", *one, "--max-transaction-timeout", 90).table == []

    for partition, start in ((0, 1), (1, 0)):
        where = ("--topic", slow.topic, "--partition", partition)
        assert world.run("abort", *where, "--start-offset", start).status == 0
    assert world.run("find-hanging", "--topic", slow.topic).table == []
    assert world.stable(slow.topic) == (0, 3)  # the slow one goes on
    slow.end()
    assert world.stable(slow.topic) == (4, 4)
    assert world.stable(slow.topic, 1) == (2, 2)


def test_abort_by_offset_frees_the_partition(world: World) -> None:
    topic = unique("t")
    create_topic(world.client, topic, 1)
    assert world.hang(topic, (900_001, 0)) == 0
    assert world.stable(topic) == (0, 1)
    where = ("--topic", topic, "--partition", 0)
    nothing = world.run("abort", *where, "--start-offset", 5)
    assert nothing.status == 1
    assert "Could not find any open transactions starting at offset 5" in nothing.text
    assert world.run("abort", *where, "--start-offset", 0).status == 0
    assert world.stable(topic) == (2, 2)
    answer = fetch(world.client, topic, 0, isolation_level=1)
    aborted = [(a.producer_id, a.first_offset) for a in answer.aborted_transactions]
    assert aborted == [(900_001, 0)]


def test_abort_by_producer_frees_the_partition(world: World) -> None:
    topic = unique("t")
    create_topic(world.client, topic, 1)
    world.hang(topic, (900_002, 4))
    where = ("--topic", topic, "--partition", 0)
    (row,) = world.run("find-hanging", "--topic", topic).table
    who = ("--producer-id", row["ProducerId"], "--coordinator-epoch", row["CoordinatorEpoch"])
    refused = world.run("abort", *where, *who, "--producer-epoch", 3)
    assert refused.status == 1
    assert "invalid producer epoch" in refused.text
    assert world.stable(topic) == (0, 1)
    assert world.run("abort", *where, *who, "--producer-epoch", 4).status == 0
    assert world.stable(topic) == (2, 2)
    (row,) = world.run("describe-producers", *where).table
    assert (row["LatestCoordinatorEpoch"], row["CurrentTransactionStartOffset"]) == ("0", "None")


def test_force_terminate_ends_a_transaction_and_fences_its_producer(world: World) -> None:
    writer = Writer(world.client)
    writer.write()
    ended = world.run("forceTerminateTransaction", "--transactionalId", writer.id)
    assert ended.status == 0, ended.text
    state = until(writer.described, lambda state: state.transaction_state != "PrepareAbort")
    assert state.transaction_state in ("CompleteAbort", "Empty")
    assert (state.producer_id, state.topics) == (writer.producer[0], ())
    assert state.producer_epoch > writer.producer[1]
    assert world.stable(writer.topic) == (2, 2)
    records = batch(b"v", producer=writer.producer, base_sequence=1, is_transactional=True)
    late = produce(world.client, writer.topic, records, transactional_id=writer.id)
    assert late.error_code == E.INVALID_PRODUCER_EPOCH

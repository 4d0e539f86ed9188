"""`transaction.abort.on.disconnect` with real producers: confluent-kafka in a process, killed."""

import time
from collections.abc import Callable, Iterator

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from odradek.client import TopicPartition
from odradek.client.blocking import Admin, Consumer
from tests.compat.agents import Agent, Client, Refused, python_command

CONFLUENT = Client("confluent-kafka", python_command("confluent"), 1)
PLACE = TopicPartition("ledger", 0)
IDLE_MS = 1_500
DEADLINE_SECONDS = 20.0
SOON_SECONDS = 5.0
"""The time-out of the transactions is 60 s; on a quiet machine it takes 0.02 s."""


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    settings = {
        "transaction.abort.on.disconnect": "true",
        "connections.max.idle.ms": str(IDLE_MS),
        "num.partitions": "1",
    }
    with run_broker(config=settings) as running:
        with Admin(running.address) as admin:
            admin.create_topic("ledger", partitions=1)
        yield running


@pytest.fixture
def agent() -> Iterator[Agent]:
    with CONFLUENT.running() as running:
        yield running


def stable_offset(broker: RunningBroker) -> int:
    """What a read_committed reader may see."""
    with Consumer(broker.address, isolation_level="read_committed") as consumer:
        return consumer.end_offsets([PLACE])[PLACE]


def wait_until(is_so: Callable[[], bool], what: str) -> float:
    """How many seconds it took."""
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < DEADLINE_SECONDS, what
        time.sleep(0.02)  # between two looks, not for luck
    return time.monotonic() - began


def test_a_killed_producer_holds_nobody_up(broker: RunningBroker, agent: Agent) -> None:
    producer = agent.producer(broker.address, "refunds-2")
    producer.begin()
    producer.send("ledger", "one")
    assert stable_offset(broker) == 0
    agent.kill()
    took = wait_until(lambda: stable_offset(broker) == 2, "the last stable offset stands still")
    assert took < SOON_SECONDS
    assert "'refunds-2' was fenced: 127.0.0.1 as" in broker.log
    assert "closed its last connection; aborted: producer id" in broker.log


def test_who_comes_back_is_served_at_once(broker: RunningBroker, agent: Agent) -> None:
    first = agent.producer(broker.address, "refunds-2")
    first.begin()
    first.send("ledger", "one")
    agent.kill()
    with CONFLUENT.running() as other:
        second = other.producer(broker.address, "refunds-2")
        assert second.write("ledger", "two") == 2
        wait_until(lambda: stable_offset(broker) == 4, "its commit is not seen")


def test_an_idle_connection_that_is_closed_does_not_abort_a_busy_producer(
    broker: RunningBroker, agent: Agent
) -> None:
    """librdkafka has one connection for the coordinator and one for the partition's leader. The
    former has nothing to do while records are sent."""
    producer = agent.producer(broker.address, "refunds-2")
    producer.begin()
    producer.send("ledger", "first")

    def was_one_closed() -> bool:
        producer.send("ledger", "more")
        return "closed: nothing was asked for" in broker.log

    wait_until(was_one_closed, "no connection was idle for long enough")
    offset = producer.send("ledger", "last")
    producer.commit()
    wait_until(lambda: stable_offset(broker) == offset + 2, "its commit is not seen")
    assert "was fenced" not in broker.log


def test_two_producers_in_one_process_go_together(broker: RunningBroker, agent: Agent) -> None:
    for name in ("a", "b"):
        producer = agent.producer(broker.address, name)
        producer.begin()
        producer.send("ledger", name)
    agent.kill()
    wait_until(lambda: stable_offset(broker) == 4, "the last stable offset stands still")


def test_the_stop_of_the_broker_aborts_nothing(broker: RunningBroker, agent: Agent) -> None:
    producer = agent.producer(broker.address, "refunds-2")
    producer.begin()
    offset = producer.send("ledger", "one")
    broker.restart()
    try:
        producer.commit()
    except Refused:
        pytest.fail(f"the transaction did not survive: {broker.log}")
    wait_until(lambda: stable_offset(broker) == offset + 2, "its commit is not seen")

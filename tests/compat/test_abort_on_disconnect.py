"""`transaction.abort.on.disconnect` with real producers: confluent-kafka in a process, killed."""

import re
import time
from collections.abc import Callable, Iterator

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from odradek.client import TopicPartition
from odradek.client.blocking import Admin, Consumer
from tests.compat.agents import Agent, Client, Refused, RemoteProducer, python_command

CONFLUENT = Client("confluent-kafka", python_command("confluent"), 1)
PLACE = TopicPartition("ledger", 0)
IDLE_MS = 5_000
TIMEOUT_MS = 900_000
DEADLINE_SECONDS = 60.0
"""What a test waits for; the time-out of the transactions comes long after it."""

quickly_idle = pytest.mark.parametrize(
    "broker", [{"connections.max.idle.ms": IDLE_MS}], indirect=True
)


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """With the settings that are the test's parameter, if it has one."""
    settings = {"transaction.abort.on.disconnect": "true", "num.partitions": "1"}
    settings |= {name: str(value) for name, value in getattr(request, "param", {}).items()}
    with run_broker(config=settings) as running:
        with Admin(running.address) as admin:
            admin.create_topic("ledger", partitions=1)
        yield running


@pytest.fixture
def agent() -> Iterator[Agent]:
    with CONFLUENT.running() as running:
        yield running


def begun(agent: Agent, broker: RunningBroker, transactional_id: str) -> RemoteProducer:
    """A producer in a transaction, with one record written."""
    producer = agent.producer(broker.address, transactional_id, timeout_ms=TIMEOUT_MS)
    producer.begin()
    producer.send("ledger", "first")
    return producer


def stable_offset(broker: RunningBroker) -> int:
    """What a read_committed reader may see."""
    with Consumer(broker.address, isolation_level="read_committed") as consumer:
        return consumer.end_offsets([PLACE])[PLACE]


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < DEADLINE_SECONDS, what
        time.sleep(0.02)  # between two looks, not for luck


def test_a_killed_producer_holds_nobody_up(broker: RunningBroker, agent: Agent) -> None:
    begun(agent, broker, "refunds-2")
    assert stable_offset(broker) == 0
    agent.kill()
    wait_until(lambda: stable_offset(broker) == 2, "the last stable offset stands still")
    why = re.compile(
        "'refunds-2' was fenced: 127.0.0.1 as .* closed its last connection; aborted: producer id"
    )
    wait_until(lambda: why.search(broker.log) is not None, "the log does not say why")


def test_who_comes_back_is_served_at_once(broker: RunningBroker, agent: Agent) -> None:
    begun(agent, broker, "refunds-2")
    agent.kill()
    with CONFLUENT.running() as other:
        second = other.producer(broker.address, "refunds-2")
        assert second.write("ledger", "two") == 2
        wait_until(lambda: stable_offset(broker) == 4, "its commit is not seen")


@quickly_idle
def test_an_idle_connection_that_is_closed_does_not_abort_a_busy_producer(
    broker: RunningBroker, agent: Agent
) -> None:
    """librdkafka has one connection for the coordinator and one for the partition's leader. The
    former has nothing to do while records are sent."""
    producer = begun(agent, broker, "refunds-2")

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
        begun(agent, broker, name)
    agent.kill()
    wait_until(lambda: stable_offset(broker) == 4, "the last stable offset stands still")


def test_the_stop_of_the_broker_aborts_nothing(broker: RunningBroker, agent: Agent) -> None:
    producer = begun(agent, broker, "refunds-2")
    broker.restart()
    try:
        producer.commit()
    except Refused:
        pytest.fail(f"the transaction did not survive: {broker.log}")
    wait_until(lambda: stable_offset(broker) == 2, "its commit is not seen")

"""The broker dies by kill -9 exactly at a step of the two-phase commit, and starts again.

Once PrepareCommit is durable the commit is finished, whoever is still there; before that nothing is
visible, and the producer can go on. An abort goes the same way.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from odradek.client import blocking
from tests.compat.agents import Agent, Client, Refused, RemoteProducer
from tests.compat.confluent import read, values
from tests.stories.logs import log_of, markers_of, states_of
from tests.stories.looking import Onlooker, eventually

TOPIC: Final = "flights"
SOURCE: Final = "bookings"
GROUP: Final = "refunders"
ID: Final = "refunds-1"
PARTITIONS: Final = (0, 1)
DEATH_SECONDS: Final = 60.0
OFFSET_BEFORE: Final = 3
OFFSET_IN_TRANSACTION: Final = 5

# By both generations of the protocol; franz-go, which is of Java's, has a story of its own below.
BY_BOTH: Final = pytest.mark.parametrize(
    "client", ["confluent", pytest.param("java", marks=pytest.mark.peers)], indirect=True
)
Doomed = Callable[..., RunningBroker]


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[Doomed]:
    """Starts a broker that will die when it reaches the fault point; `name:N` is the Nth time."""
    with ExitStack() as stack:

        def start(point: str, flush: str = "journal") -> RunningBroker:
            environment, config = {"ODRADEK_KILL_AT": point}, {"log.flush": flush}
            broker = stack.enter_context(
                run_broker(data_dir=tmp_path, environment=environment, config=config)
            )
            onlooker = Onlooker(broker.address)
            onlooker.create_topic(TOPIC, partitions=len(PARTITIONS))
            onlooker.create_topic(SOURCE)
            onlooker.store_offset(GROUP, SOURCE, OFFSET_BEFORE)
            return broker

        yield start


def end_and_die(agent: Agent, broker: RunningBroker, how: str) -> RemoteProducer:
    """A transaction over both partitions and an offset is ended; the broker dies of it."""
    producer = agent.producer(broker.address, ID)
    producer.begin()
    for partition in PARTITIONS:
        producer.send(TOPIC, f"value-{partition}", partition=partition)
    producer.send_offset(GROUP, SOURCE, 0, OFFSET_IN_TRANSACTION)
    agent.tell(how, producer.name)
    assert broker.wait(DEATH_SECONDS) == -signal.SIGKILL
    return producer


def start_again(broker: RunningBroker) -> Onlooker:
    broker.environment.clear()
    broker.start()
    return Onlooker(broker.address)


def markers_in(broker: RunningBroker) -> list[list[str]]:
    """The markers in each partition of the transaction, from the files: two of the topic, and the
    one with the group's offsets."""
    found = [markers_of(broker.data_dir, topic) for topic in (TOPIC, "__consumer_offsets")]
    return [markers for of_topic in found for markers in of_topic]


def last_state(broker: RunningBroker) -> str:
    return states_of(broker.data_dir, ID)[-1].state


def assert_it_ended(
    broker: RunningBroker, onlooker: Onlooker, how: str, *, state: str = ""
) -> None:
    """All of it or nothing: records, markers, offsets, and what the coordinator knows."""
    onlooker.wait_until_settled(TOPIC, PARTITIONS)
    with blocking.Admin(broker.address) as admin:
        ended = state or f"Complete{how.title()}"
        eventually(lambda: admin.describe_transaction(ID).state, ended)
        assert admin.describe_transaction(ID).partitions == ()
    assert last_state(broker) == ended
    # Which markers were written is not known after a restart, so all are sent again; one of the
    # first generation is then in the log twice, as Kafka has it, too.
    assert [set(markers) for markers in markers_in(broker)] == [{how.upper()}] * 3
    committed = how == "commit"
    stored = onlooker.stored_offset(GROUP, SOURCE)
    assert stored == (OFFSET_IN_TRANSACTION if committed else OFFSET_BEFORE)
    visible = values(read(broker.address, TOPIC, count=2 * committed, partitions=2))
    assert sorted(visible) == ([b"value-0", b"value-1"] if committed else [])


@BY_BOTH
@pytest.mark.parametrize("how", ["commit", "abort"])
@pytest.mark.parametrize(
    ("flush", "point", "written"),
    [
        ("journal", "after-prepare", {0, 1, 2, 3}),  # they may share the write of the decision
        ("ack", "after-prepare", {0}),
        ("ack", "between-markers:1", {1}),
        ("ack", "between-markers:2", {2}),
    ],
)
def test_what_was_decided_is_finished_although_nobody_is_left(
    doomed: Doomed, client: Client, how: str, flush: str, point: str, written: set[int]
) -> None:
    broker = doomed(point, flush)
    with client.running() as agent:
        end_and_die(agent, broker, how)
    assert last_state(broker) == f"Prepare{how.title()}"
    found = markers_in(broker)
    assert all(markers in ([], [how.upper()]) for markers in found)
    assert sum(map(len, found)) in written

    onlooker = start_again(broker)

    assert_it_ended(broker, onlooker, how)


@BY_BOTH
@pytest.mark.parametrize(
    ("point", "how"),
    [
        ("before-prepare", "commit"),
        ("before-prepare", "abort"),
        ("after-prepare", "commit"),
        ("between-markers", "abort"),
    ],
)
def test_the_producer_goes_on_as_if_nothing_had_been(
    doomed: Doomed, agent: Agent, point: str, how: str
) -> None:
    broker = doomed(point)
    producer = end_and_die(agent, broker, how)

    onlooker = start_again(broker)
    agent.answer()  # of the very call during which the broker died

    assert_it_ended(broker, onlooker, how)
    offset = producer.write(TOPIC, "value-2")
    assert [entry.what for entry in log_of(broker.data_dir, TOPIC)][offset] == "value-2"
    onlooker.wait_until_settled(TOPIC)
    assert b"value-2" in values(read(broker.address, TOPIC, count=1, partitions=2))


@BY_BOTH
def test_before_it_was_decided_nothing_is_visible_and_a_new_instance_ends_it(
    doomed: Doomed, client: Client
) -> None:
    broker = doomed("before-prepare")
    with client.running() as agent:
        end_and_die(agent, broker, "commit")
    assert last_state(broker) == "Ongoing"
    assert markers_in(broker) == [[], [], []]

    onlooker = start_again(broker)

    for partition in PARTITIONS:
        assert onlooker.ends(TOPIC, partition) == (0, 1)
    with blocking.Admin(broker.address) as admin:
        described = admin.describe_transaction(ID)
    assert described.state == "Ongoing"
    assert len(described.partitions) == len(PARTITIONS) + 1
    assert read(broker.address, TOPIC, count=0, partitions=2) == []
    with client.running() as successor:
        successor.producer(broker.address, ID)
        assert_it_ended(broker, onlooker, "abort", state="Empty")


@pytest.mark.peers
@pytest.mark.parametrize("client", ["franz-go"], indirect=True)
@pytest.mark.parametrize(
    ("point", "found"), [("before-prepare", "abort"), ("after-prepare", "commit")]
)
def test_a_producer_that_gave_up_finds_all_of_it_or_nothing(
    doomed: Doomed, agent: Agent, point: str, found: str
) -> None:
    broker = doomed(point)
    producer = end_and_die(agent, broker, "commit")
    with pytest.raises(Refused, match="connection refused"):
        agent.answer()

    onlooker = start_again(broker)
    producer.abort()  # as franz-go wants it where an outcome is unknown: it initialises anew

    assert_it_ended(broker, onlooker, found, state="Empty")
    offset = producer.write(TOPIC, "value-2")
    onlooker.wait_until_settled(TOPIC)
    assert [entry.what for entry in log_of(broker.data_dir, TOPIC)][offset] == "value-2"

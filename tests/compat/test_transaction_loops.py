"""Consume, transform, produce: the loop that exactly-once is for, run by foreign clients.

Each loop aborts every third transaction on purpose and consumes its records again. Whatever happens
to the process or to the broker meanwhile, in the end each record of the source is in the target
once, in its order.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.broker.testing import RunningBroker, run_broker
from odradek.client.blocking import Admin
from tests.compat.agents import Agent, Client, Refused
from tests.compat.confluent import deliver, producer, read
from tests.compat.conftest import DEADLINE_SECONDS
from tests.stories.logs import states_of
from tests.stories.looking import eventually

PARTITIONS: Final = 2
RECORDS: Final = 200
IN_EACH: Final = RECORDS // PARTITIONS
OF_PEERS: Final = (
    pytest.param("java", marks=pytest.mark.peers),
    pytest.param("franz-go", marks=pytest.mark.peers),
)
ALL: Final = pytest.mark.parametrize(
    "client", ["confluent", "kafka_python", "aiokafka", *OF_PEERS], indirect=True
)
LONG: Final = pytest.mark.parametrize(
    "client",
    [
        "confluent",
        pytest.param("kafka_python", marks=pytest.mark.minutes),
        pytest.param("aiokafka", marks=pytest.mark.minutes),
        pytest.param("java", marks=pytest.mark.peers),
        pytest.param("franz-go", marks=[pytest.mark.peers, pytest.mark.minutes]),
        pytest.param("franz-go-848", marks=pytest.mark.peers),
    ],
    indirect=True,
)
"""All, of which CI has one of each kind: of the first and second generation, and of KIP-848."""
STABLE: Final = pytest.mark.parametrize(
    "client", ["confluent", "kafka_python", *OF_PEERS], indirect=True
)
"""Who waits for stable offsets. A member that comes back while another commits has the other join
again, and an aiokafka that does so reads the group's offsets without those of its own commit."""
FENCED: Final = {  # as a producer, or as a member of the group, whichever it hears first
    "confluent": {"_FENCED", "FENCED_INSTANCE_ID", "_FATAL"},
    "kafka_python": {"ProducerFencedError", "InvalidProducerEpochError", "FencedInstanceIdError"},
    "aiokafka": {"ProducerFenced", "InvalidProducerEpoch"},
    "java": {"ProducerFencedException", "FencedInstanceIdException"},
    "franz-go": {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "FENCED_INSTANCE_ID"},
}


@dataclass(frozen=True, slots=True)
class Loop:
    """What a relay of an agent is told; all of a kind have the same ids, as restarts would."""

    broker: RunningBroker
    name: str

    def start(self, agent: Agent, *, batch: int, count: int = RECORDS) -> None:
        ids = (f"{self.name}-id", f"{self.name}-group", f"{self.name}-instance")
        topics = (f"{self.name}-source", f"{self.name}-target")
        agent.tell("relay", self.broker.address, *ids, *topics, count, batch)

    def fill(self, numbers: range) -> None:
        """Write to each partition of the source what has these numbers."""
        sender = producer(self.broker.address)
        for partition in range(PARTITIONS):
            values = [value_of(partition, number) for number in numbers]
            deliver(sender, f"{self.name}-source", values, partition=partition)

    def epochs_of_ends(self) -> int:
        """How many different epochs the ends of transactions have."""
        steps = states_of(self.broker.data_dir, f"{self.name}-id")
        return len({step.epoch for step in steps if step.state.startswith("Complete")})

    def has_consumer_group(self) -> bool:
        """Return True if the group is of the new protocol (KIP-848)."""
        with Admin(self.broker.address) as admin:
            listed = admin.list_groups(types=["consumer"])
        return f"{self.name}-group" in [group.group_id for group in listed]

    def assert_each_record_is_there_once_and_in_order(self) -> None:
        found = read(
            self.broker.address, f"{self.name}-target", count=RECORDS, partitions=PARTITIONS
        )
        for partition in range(PARTITIONS):
            values = [record.value for record in found if record.partition == partition]
            assert values == [value_of(partition, number) for number in range(IN_EACH)]


def value_of(partition: int, number: int) -> bytes:
    return b"%d-%d" % (partition, number)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with run_broker() as started:
        yield started


@pytest.fixture
def loop(broker: RunningBroker, unique: Callable[[str], str]) -> Loop:
    """Topics for a loop, the source filled."""
    made = Loop(broker, unique("loop"))
    admin = AdminClient({"bootstrap.servers": broker.address})
    topics = [NewTopic(f"{made.name}-{end}", PARTITIONS, 1) for end in ("source", "target")]
    for created in admin.create_topics(topics).values():
        created.result(DEADLINE_SECONDS)
    made.fill(range(IN_EACH))
    return made


@LONG
def test_hundreds_of_small_transactions_with_offsets(loop: Loop, client: Client) -> None:
    with client.running() as agent:
        loop.start(agent, batch=1)
        committed, aborted = map(int, agent.answer())

    assert committed == RECORDS
    assert aborted >= committed // 3
    ends = committed + aborted  # and each has an epoch of its own in the second generation only
    # A commit is answered when it is decided; that it is complete is written a moment later.
    eventually(loop.epochs_of_ends, ends if client.transaction_version == 2 else 1)
    assert loop.has_consumer_group() == (client.name == "franz-go-848")
    loop.assert_each_record_is_there_once_and_in_order()


@ALL
def test_a_successor_goes_on_where_a_killed_process_was(loop: Loop, client: Client) -> None:
    with client.running() as victim:
        loop.start(victim, batch=5)
        victim.progress(at_least=5)
        victim.kill()

    with client.running() as successor:
        loop.start(successor, batch=10)
        committed, _ = map(int, successor.answer())

    assert committed < RECORDS // 5, "it began again from the start"
    loop.assert_each_record_is_there_once_and_in_order()


@ALL
def test_a_process_that_was_only_asleep_finds_that_it_was_replaced(
    loop: Loop, client: Client
) -> None:
    fence_a_sleeper(loop, client, wakes_early=False)


@STABLE
def test_a_process_that_wakes_while_its_successor_is_at_work_finds_that_it_was_replaced(
    loop: Loop, client: Client
) -> None:
    fence_a_sleeper(loop, client, wakes_early=True)


def fence_a_sleeper(loop: Loop, client: Client, *, wakes_early: bool) -> None:
    """It wakes while its successor is at work, or when that is done; more records, of which only
    the sleeper is told, see to it that it has something left to do."""
    with client.running() as zombie, client.running() as successor:
        loop.start(zombie, batch=5, count=RECORDS + PARTITIONS)
        zombie.progress(at_least=5)
        zombie.pause()
        loop.start(successor, batch=5)
        successor.progress(at_least=2)
        if wakes_early:
            zombie.resume()
        successor.answer()
        loop.fill(range(IN_EACH, IN_EACH + 1))
        if not wakes_early:
            zombie.resume()
        with pytest.raises(Refused) as refused:
            zombie.answer()

    assert refused.value.kind in FENCED[client.name]
    loop.assert_each_record_is_there_once_and_in_order()


@LONG
def test_the_broker_dies_twice_under_a_loop(loop: Loop, client: Client) -> None:
    with client.running() as agent:
        loop.start(agent, batch=3)
        for commits in (10, 25):
            agent.progress(at_least=commits)
            loop.broker.kill()
            loop.broker.start()
        agent.answer()

    loop.assert_each_record_is_there_once_and_in_order()

"""KafkaJS, unmodified: a relay in transactions, as a member of a group."""

from collections.abc import Callable
from typing import Final

import pytest

from tests.compat.agents import Client
from tests.compat.confluent import deliver, producer, read
from tests.compat.conftest import CreateTopic

pytestmark = [pytest.mark.peers, pytest.mark.minutes]

PARTITIONS: Final = 2
IN_EACH: Final = 30
BATCH: Final = 5


def test_a_relay_in_transactions(
    bootstrap: str,
    create_topic: CreateTopic,
    unique: Callable[[str], str],
    kafkajs_agent: list[str],
) -> None:
    source, target = create_topic(partitions=PARTITIONS), create_topic(partitions=PARTITIONS)
    sender = producer(bootstrap)
    for partition in range(PARTITIONS):
        values = [b"%d-%d" % (partition, number) for number in range(IN_EACH)]
        deliver(sender, source, values, partition=partition)
    count = PARTITIONS * IN_EACH
    words = (bootstrap, unique("id"), unique("group"), "-", source, target, count, BATCH)
    with Client("kafkajs", kafkajs_agent, transaction_version=1).running() as agent:
        committed, aborted = map(int, agent.ask("relay", *words))
    assert aborted >= committed // 3 > 0
    found = read(bootstrap, target, count=count, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        copied = [record.value for record in found if record.partition == partition]
        assert copied == [b"%d-%d" % (partition, number) for number in range(IN_EACH)]

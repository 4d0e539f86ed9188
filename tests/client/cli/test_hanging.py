"""Transactions that hang for real: its coordinator does not know it.

Brokers that verify (KIP-890) refuse it, so these do not verify: ours, and with --peers Kafka.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator

import pytest

from odradek.broker.testing import run_broker
from odradek.client import Admin, OdradekError, Refused, TopicPartition
from odradek.client.administration.descriptions import PartitionProducers
from tests.client.hanging import WITHOUT_VERIFICATION, leave_hanging
from tests.client.live import Run
from tests.peers.kafka import RealKafka


@pytest.fixture(params=["odradek", pytest.param("kafka", marks=pytest.mark.peers)], scope="module")
def lax(request: pytest.FixtureRequest) -> Iterator[Run]:
    """A broker that believes what producers send."""
    if request.param == "kafka":
        with RealKafka(settings=WITHOUT_VERIFICATION) as kafka:
            yield Run(kafka.address)
    else:
        with run_broker(config=WITHOUT_VERIFICATION) as broker:
            yield Run(broker.address)


async def test_it_is_found_with_the_command_that_ends_it(lax: Run) -> None:
    place, name = await leave_hanging(lax.bootstrap)
    topic = ("--topic", place.topic)
    assert lax.said("txn", "hanging", *topic) == "No transaction hangs.\n"  # not for long enough
    said = lax.said("txn", "hanging", *topic, "--max-timeout", "30")
    first, command = said.splitlines()
    assert first.startswith(f"{place}: producer id ")
    assert re.search(r"open from offset 0 on, last written (8|9|10|11) min ago", first)
    assert first.endswith(f"{name!r} is Empty and does not have {place} in its transaction")
    pins = lax.said("txn", "who-pins", place.topic)
    assert "no coordinator will end it" in pins
    facts = json.loads(lax.said("txn", "hanging", *topic, "--max-timeout", "30", "--json"))
    assert (facts["start_offset"], facts["abort_command"]) == (0, command.strip())
    assert lax("txn", "hanging", *topic, "--max-timeout", "30", "--fail").exit_code == 3

    odradek, *arguments = shlex.split(command)
    assert odradek == "odradek"
    assert "its last stable offset went from 0 to 2" in lax.said(*arguments)
    assert lax.said("txn", "hanging", *topic, "--max-timeout", "30") == "No transaction hangs.\n"
    assert lax("txn", "hanging", *topic, "--fail").exit_code == 0


async def test_all_topics_are_searched_where_none_is_named(lax: Run) -> None:
    place, _ = await leave_hanging(lax.bootstrap)
    async with Admin(lax.bootstrap) as admin:
        (found,) = [
            transaction
            for transaction in await admin.find_hanging(max_timeout_ms=30_000)
            if transaction.partition == place
        ]
        await admin.abort_transaction(
            place,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            coordinator_epoch=found.coordinator_epoch,
        )
        assert place not in [
            transaction.partition for transaction in await admin.find_hanging(max_timeout_ms=0)
        ]


class WhileDeleting(Admin):
    """An admin client. The topic is deleted just before its nth request for the producers."""

    def __init__(self, bootstrap: str, topic: str, look: int) -> None:
        super().__init__(bootstrap)
        self._topic, self._looks_left = topic, look

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionProducers | OdradekError]:
        self._looks_left -= 1
        if self._looks_left == 0:
            await self.delete_topics(self._topic)
        return await super().describe_producers(partitions)


async def test_a_topic_that_is_deleted_during_the_search_has_nothing_that_hangs() -> None:
    with run_broker(config=WITHOUT_VERIFICATION) as broker:
        run = Run(broker.address)
        kept, _ = await leave_hanging(run.bootstrap)
        for look in (1, 2):
            deleted, _ = await leave_hanging(run.bootstrap)
            async with WhileDeleting(run.bootstrap, deleted.topic, look) as admin:
                found = await admin.find_hanging(max_timeout_ms=30_000)
                assert [transaction.partition for transaction in found] == [kept]
        async with WhileDeleting(run.bootstrap, kept.topic, 1) as admin:
            with pytest.raises(Refused, match="there is no topic"):  # somebody asked for it
                await admin.find_hanging(kept.topic, max_timeout_ms=30_000)

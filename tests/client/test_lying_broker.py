"""Answers that are well formed and not true are an error of the client's, in words and in time."""

import pytest
import trio
from trio.testing import MockClock

from odradek.client import Consumer, Disconnected, OdradekError, Producer
from odradek.client.cluster.cluster import Cluster
from odradek.client.config import ClientConfig
from odradek.protocol.apis.fetch import FETCH, FetchPartition, PartitionData
from tests.client.consuming.test_consumer import PLACE, part
from tests.client.consuming.test_fetched import data
from tests.client.fake_broker import ADDRESS, FakeBroker
from tests.client.lying_broker import LIES, REQUESTS_MAX, Lie, LyingBroker, empty, huge, negative
from tests.client.test_every_call_ends import BRIEFLY, CALLS, END, SLACK, entered

pytestmark = pytest.mark.slow

SENTENCE_MAX = 1_500
CASES = [
    *((name, lie, False) for name in CALLS for lie in LIES),
    *(
        (name, lie, True)
        for name in ("Producer.send", "Transaction.commit", "Consumer.poll", "Admin.list_topics")
        for lie in (empty, negative, huge)
    ),
]
"""The last says whether the broker lies about its versions too."""


@pytest.mark.parametrize(
    ("name", "lie", "is_all_a_lie"), CASES, ids=lambda lie: getattr(lie, "__name__", lie)
)
async def test_a_lie_of_the_broker_is_a_sentence_and_takes_no_longer(
    autojump_clock: MockClock, nursery: trio.Nursery, name: str, lie: Lie, is_all_a_lie: bool
) -> None:
    """It was an IndexError, a KeyError, a UnicodeError, or a loop without a checkpoint."""
    broker = LyingBroker(nursery)
    broker.is_all_a_lie = is_all_a_lie
    call = CALLS[name]
    said = ""
    with trio.move_on_after(2 * END + SLACK) as scope:
        try:
            async with entered(name, broker, BRIEFLY) as subject:
                broker.lie = lie
                if is_all_a_lie:
                    broker.disconnect()
                before = trio.current_time()
                try:
                    await call.make(subject)
                except OdradekError as error:
                    said = str(error)
                took = trio.current_time() - before
        except OdradekError as error:
            said = said or str(error)
    assert not scope.cancelled_caught, "it waits for ever"
    assert took <= call.bound_in(BRIEFLY) + SLACK
    assert len(said) <= SENTENCE_MAX
    assert "\n" not in said


@pytest.mark.parametrize("records", [b"", data(0, b"old")], ids=["nothing", "what was read"])
async def test_a_broker_that_answers_at_once_with_nothing_new_is_asked_seldom(
    records: bytes, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """The client sent the request again at once, for ever."""
    broker = FakeBroker(nursery)

    def read(wanted: FetchPartition) -> PartitionData:
        assert len(broker.requests) < REQUESTS_MAX
        return part(wanted.partition, records)

    broker.read = read
    async with Consumer(ADDRESS, connect=broker.connect) as consumer:
        consumer.assign([PLACE])
        consumer.seek(PLACE, 5)
        assert await consumer.poll(10_000) == []
        assert len(broker.asked(FETCH)) < 60


async def test_a_host_that_cannot_be_looked_up_is_a_sentence(nursery: trio.Nursery) -> None:
    """A UnicodeError in a task of the client ended all its other tasks."""
    async with Cluster(f"{'h' * 70}.example:9092", ClientConfig()) as cluster:
        with pytest.raises(Disconnected, match="no connection to h"):
            await cluster.connection(None)


async def test_a_producer_outlives_a_broker_that_comes_back_with_other_versions(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """A refusal in a task of the sender's ended the client."""
    broker = LyingBroker(nursery)
    async with Producer(ADDRESS, connect=broker.connect, metadata_max_age_ms=1_000) as producer:
        await (await producer.send("t", b"before", partition=0))
        broker.lie, broker.is_all_a_lie = empty, True
        broker.disconnect()
        await trio.sleep(5)
        broker.lie = None
        broker.disconnect()
        await (await producer.send("t", b"after", partition=0))

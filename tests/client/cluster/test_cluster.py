"""What several calls of one client ask at the same time."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from odradek.client import Closed, Consumer, Disconnected
from odradek.client.cluster.cluster import Cluster
from odradek.client.config import ClientConfig
from odradek.protocol.apis.metadata import METADATA
from tests.client.fake_broker import ADDRESS, SILENCE, FakeBroker


def cluster_of(broker: FakeBroker) -> Cluster:
    return Cluster(ADDRESS, ClientConfig(connect=broker.connect))


async def test_who_asks_the_same_meanwhile_hears_why_there_is_no_answer(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    """The waiting callers got an error about a missing topic, not about the broker that is down."""
    fake_broker.is_down = True
    errors: list[Disconnected] = []

    async def ask() -> None:
        with pytest.raises(Disconnected, match=ADDRESS) as failed:
            await cluster.refresh(["t"])
        errors.append(failed.value)

    async with cluster_of(fake_broker) as cluster, trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
    assert len({id(error) for error in errors}) == 3  # each has a history of its own


async def test_who_asks_the_same_meanwhile_asks_no_second_time(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    async with cluster_of(fake_broker) as cluster, trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(cluster.topic, "t")
    assert len(fake_broker.asked(METADATA)) == 1


async def test_who_asks_the_same_as_a_call_that_is_cancelled_asks_again(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    """It took the cancelled request for an answered one: there seemed to be no topic at all."""
    fake_broker.next(METADATA, SILENCE)
    scope = trio.CancelScope()
    found: list[list[str]] = []

    async def list_topics() -> None:
        found.append(await consumer.topics())

    async def list_topics_and_be_cancelled() -> None:
        with scope:
            await consumer.topics()

    async with (
        Consumer(ADDRESS, connect=fake_broker.connect) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(list_topics_and_be_cancelled)
        await wait_all_tasks_blocked()
        nursery.start_soon(list_topics)
        nursery.start_soon(list_topics)
        await wait_all_tasks_blocked()
        scope.cancel()
        await wait_all_tasks_blocked()
        fake_broker.disconnect()  # that connection has no answer for anybody
    assert found == [["t"], ["t"]]


async def test_a_call_ends_when_the_client_is_closed_before_its_connection_was_begun(
    autojump_clock: MockClock, fake_broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task that connects never ran, and the call waited for its whole time-out."""
    before = trio.current_time()
    outcome: list[Closed] = []

    async def ask() -> None:
        with pytest.raises(Closed) as closed:
            await cluster.topic("t")
        outcome.append(closed.value)

    async with trio.open_nursery() as callers, cluster_of(fake_broker) as cluster:
        spawn = cluster.tasks.spawn

        def spawn_and_close(*args: Any) -> None:
            spawn(*args)
            cluster.close()

        monkeypatch.setattr(cluster.tasks, "spawn", spawn_and_close)
        callers.start_soon(ask)
        await trio.sleep_forever()
    assert len(outcome) == 1
    assert trio.current_time() == before

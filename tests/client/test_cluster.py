"""What several calls of one client ask at the same time."""

import pytest
import trio
from trio.testing import MockClock

from odradek.client import Disconnected
from odradek.client.cluster import Cluster
from odradek.client.config import ClientConfig
from odradek.protocol.apis.metadata import METADATA
from tests.client.fake_broker import ADDRESS, FakeBroker


def cluster_of(broker: FakeBroker) -> Cluster:
    return Cluster(ADDRESS, ClientConfig(connect=broker.connect))


async def test_who_asks_the_same_meanwhile_hears_why_there_is_no_answer(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    """It was told that the topic is not there yet, and nothing of the broker that is not."""
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

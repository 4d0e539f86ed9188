"""Consumers that join a group whose coordinator a test directs, by either protocol."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import trio

from odradek.client import Consumer, TopicPartition
from odradek.client.types import Topics
from odradek.protocol.apis.fetch import FetchPartition, PartitionData
from tests.client.consuming.test_consumer import THREE, part
from tests.client.fake_broker import ADDRESS
from tests.client.fake_consumer_group import FakeConsumerGroup
from tests.client.fake_group import FakeGroup

ZERO: Final = TopicPartition("t", 0)
ONE: Final = TopicPartition("t", 1)
Told = list[tuple[str, list[TopicPartition]]]

both: Final = pytest.mark.parametrize("group", [FakeGroup, FakeConsumerGroup], indirect=True)
"""What holds whatever protocol the member speaks."""


def three_in_each(wanted: FetchPartition) -> PartitionData | None:
    return part(wanted.partition, THREE) if wanted.fetch_offset < 3 else None


def new_group(nursery: trio.Nursery) -> FakeConsumerGroup:
    """A coordinator of the new protocol (KIP-848)."""
    group = FakeConsumerGroup(nursery)
    group.read = three_in_each
    return group


@asynccontextmanager
async def joined(
    group: FakeGroup, topics: Topics = "t", **options: Any
) -> AsyncIterator[tuple[Consumer, Told]]:
    """A member whose callbacks note what they are told."""
    told: Told = []
    options = {"group_id": "g", "connect": group.connect, **options}
    async with Consumer(ADDRESS, **options) as consumer:
        consumer.subscribe(
            topics,
            on_assigned=lambda names: told.append(("assigned", names)),
            on_revoked=lambda names: told.append(("revoked", names)),
            on_lost=lambda names: told.append(("lost", names)),
        )
        with trio.fail_after(60):
            while not told:
                await consumer.poll(100, max_records=1)
        yield consumer, told

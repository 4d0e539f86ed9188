"""Consumers that join a fake group of the new protocol (KIP-848)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from odradek.client import (
    Consumer,
)
from odradek.client.types import Topics
from tests.client.fake_broker import (
    ADDRESS,
)
from tests.client.fake_consumer_group import FakeConsumerGroup
from tests.client.grouping.test_member import Told, three_in_each


def new_group(nursery: trio.Nursery) -> FakeConsumerGroup:
    group = FakeConsumerGroup(nursery)
    group.read = three_in_each
    return group


@asynccontextmanager
async def joined(
    group: FakeConsumerGroup, topics: Topics = "t", **options: Any
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

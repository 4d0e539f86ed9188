"""Members of a group on a real broker: ours, and with --peers Apache Kafka."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from odradek.client import (
    Consumer,
    Producer,
)
from odradek.client.types import ASSIGNOR_NAMES
from tests.client.live import WAIT_MS, name_of
from tests.client.producing.test_producer_live import make_topic

QUICK: dict[str, Any] = {"heartbeat_interval_ms": 100}
"""A member learns of a rebalance by its next heartbeat."""


async def poll_until(is_done: Callable[[], bool], *consumers: Consumer) -> list[Any]:
    """Poll the consumers in turn, as one task does, until a condition holds."""
    found = []
    with trio.fail_after(WAIT_MS / 1000):
        while not is_done():
            for consumer in consumers:
                found += await consumer.poll(20)
    return found


def sizes(*consumers: Consumer) -> list[int]:
    return [len(consumer.assignment()) for consumer in consumers]


@pytest.mark.parametrize("assignor", ASSIGNOR_NAMES)
async def test_members_share_the_partitions_and_one_takes_over(
    bootstrap: str, assignor: str
) -> None:
    topic, group = await make_topic(bootstrap, 4), name_of("group")
    options = {**QUICK, "group_id": group, "partition_assignors": [assignor]}
    async with Consumer(bootstrap, **options) as first:
        first.subscribe(topic)
        await poll_until(lambda: sizes(first) == [4], first)
        async with Consumer(bootstrap, **options) as second:
            second.subscribe(topic)
            await poll_until(lambda: sizes(first, second) == [2, 2], first, second)
            assert not set(first.assignment()) & set(second.assignment())
            async with Producer(bootstrap) as producer:
                for number in range(100):
                    await producer.send(topic, b"%d" % number, partition=number % 4)
            found: list[Any] = []
            with trio.fail_after(WAIT_MS / 1000):
                while len(found) < 100:
                    found += await first.poll(50)
                    found += await second.poll(50)
            assert sorted(int(record.value) for record in found) == list(range(100))
        await poll_until(lambda: sizes(first) == [4], first)

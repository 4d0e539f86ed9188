"""An administrator's calls go on when the broker that they go to has died."""

from collections.abc import Awaitable, Callable
from typing import Final

import pytest
import trio

from odradek.client import Admin, TopicPartition
from tests.simulation.test_lost_logs import GROUP, LOST, brokers, fill
from tests.simulation.world import World

ID: Final = "an id"
SECONDS: Final = 15
"""In which the cluster elects others, far below `max_block_ms`."""


async def controller(admin: Admin, _world: World) -> int:
    return (await admin.describe_cluster()).controller_id


async def leader(_admin: Admin, world: World) -> int:
    return world.leader_of(*LOST)


async def coordinator_of_group(admin: Admin, _world: World) -> int:
    return (await admin.describe_group(GROUP)).coordinator_id


async def coordinator_of_id(admin: Admin, _world: World) -> int:
    return (await admin.describe_transaction(ID)).coordinator_id


Find = Callable[[Admin, World], Awaitable[int]]
Call = Callable[[Admin], Awaitable[object]]


@pytest.mark.parametrize(
    ("find", "call"),
    [
        (controller, lambda admin: admin.create_topic("u", replication_factor=1)),
        (controller, lambda admin: admin.delete_topics("t")),
        (coordinator_of_group, lambda admin: admin.describe_groups(GROUP)),
        (coordinator_of_group, lambda admin: admin.committed(GROUP)),
        (coordinator_of_id, lambda admin: admin.describe_transaction(ID)),
        (coordinator_of_id, lambda admin: admin.fence_producers(ID)),
        (leader, lambda admin: admin.describe_producers([LOST])),
        (leader, lambda admin: admin.delete_records({LOST: 1})),
    ],
)
async def test_an_administrator_goes_to_the_broker_that_has_taken_the_place_of_a_dead_one(
    find: Find, call: Call
) -> None:
    """The client asked the dead controller, coordinator or leader until its time was over."""
    async with brokers(3) as world, world.admin() as admin:
        await admin.create_topic("t", partitions=3)
        await fill(world, LOST)
        async with world.producer(transactional_id=ID) as producer, producer.transaction() as txn:
            await txn.send("t", b"x", partition=1)
        node = await find(admin, world)
        await call_without_effect(admin)
        world.machines[node].kill()
        with trio.fail_after(SECONDS):
            await call(admin)


async def call_without_effect(admin: Admin) -> None:
    """Have the client learn which broker does what."""
    await admin.create_topic("t", if_not_exists=True)
    await admin.describe_groups(GROUP)
    await admin.describe_transaction(ID)
    await admin.describe_producers([TopicPartition("t", 0)])

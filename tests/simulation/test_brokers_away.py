"""A broker that is away is shown until it is forgotten; replicas keep to their racks."""

from dataclasses import replace

import pytest
import trio

from odradek.client import Admin
from odradek.client.errors import Refused
from odradek.client.types import TopicPartition
from odradek.protocol.errors import ErrorCode
from tests.simulation.world import World

RACKS = {1: "west", 2: "west", 3: "east", 4: "east"}
TOPIC = "spread"


async def said_of_forgetting(admin: Admin, broker: int) -> str:
    """Ask for a broker to be forgotten. Return why it is not; nothing if it is."""
    try:
        await admin.unregister_broker(broker)
    except Refused as error:
        return str(error)
    return ""


async def test_a_broker_that_is_away_is_shown_until_it_is_forgotten() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, brokers=4, seed=31)
        for node_id, machine in world.machines.items():
            machine.config = replace(machine.config, broker_rack=RACKS[node_id])
        await world.start()
        async with world.admin(max_block_ms=60_000) as admin:
            await admin.create_topic(TOPIC, partitions=8, replication_factor=2)
            await admin.create_partitions(TOPIC, 12)
            (topic,) = await admin.describe_topics(TOPIC)
            assert all(
                {RACKS[n] for n in each.replicas} == {"west", "east"} for each in topic.partitions
            )
            world.machines[4].kill()
            with trio.fail_after(60):
                while len((await admin.describe_cluster()).brokers) > 3:  # noqa: ASYNC110
                    await trio.sleep(0.1)
            found = (await admin.describe_cluster(include_fenced=True)).brokers
            assert {each.node_id: (each.rack, each.is_fenced) for each in found} == {
                node: (rack, node == 4) for node, rack in RACKS.items()
            }
            with pytest.raises(Refused, match=r"Broker 4 has a replica of .* and") as refused:
                await admin.unregister_broker(4)
            assert refused.value.code is ErrorCode.INVALID_REQUEST
            with pytest.raises(Refused, match="Broker 1 is alive"):
                await admin.unregister_broker(1)
            moves = {
                TopicPartition(TOPIC, each.partition): (*(n for n in each.replicas if n != 4), 3)
                for each in topic.partitions
                if 4 in each.replicas
            }
            await admin.move_partitions(moves)
            with trio.fail_after(60):
                while await admin.list_moves():  # noqa: ASYNC110
                    await trio.sleep(0.05)
            with trio.fail_after(60):  # the broker that is asked may hear of a change later
                while "has a replica" in await said_of_forgetting(admin, 4):  # noqa: ASYNC110
                    await trio.sleep(0.05)
                while len(found) > 3:
                    await trio.sleep(0.1)
                    found = (await admin.describe_cluster(include_fenced=True)).brokers
            assert [each.node_id for each in found] == [1, 2, 3]
            with pytest.raises(Refused, match="Broker ID 4 is not currently registered"):
                await admin.unregister_broker(4)
            await world.restart(4)
            with trio.fail_after(60):
                while len((await admin.describe_cluster()).brokers) < 4:  # noqa: ASYNC110
                    await trio.sleep(0.1)
        nursery.cancel_scope.cancel()

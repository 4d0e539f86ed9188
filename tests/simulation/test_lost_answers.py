"""Changes of in-sync sets whose answer from the metadata store is lost."""

import trio

from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.record import Record
from tests.broker.own_records import append_records
from tests.simulation.world import World

TOPIC = "t"
PROPERTIES = {"replica.lag.time.max.ms": "600", "broker.session.timeout.ms": "60000"}


async def in_sync(world: World, *nodes: int) -> None:
    """Wait until the metadata store has this in-sync set."""
    with trio.fail_after(30):
        while True:
            partition = world.image().partition(TOPIC, 0)
            if partition is not None and sorted(partition.isr) == sorted(nodes):
                return
            await trio.sleep(0.001)


async def test_a_follower_counts_whose_way_into_the_set_had_a_lost_answer() -> None:
    """KAFKA-14144: the leader took the lost answer for a refusal, and went on without it."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=3, properties=PROPERTIES)
        await world.start()
        async with world.producer() as producer:
            await (await producer.send(TOPIC, b"u", partition=0))
            leader = world.machines[world.leader_of(TOPIC, 0)]
            follower, other = (m for m in world.machines.values() if m is not leader)
            link = (leader.host.name, follower.host.name)
            world.net.cut(*link)
            await in_sync(world, leader.node_id, other.node_id)
            assert leader.meta is not None
            leader.meta.loses_answer = lambda: True
            leader.meta.watch_delay_s = lambda: 1e6
            world.net.heal(link)
            await in_sync(world, 1, 2, 3)
            world.net.cut(*link)
            where = TopicPartition(TOPIC, 0)
            led, copied = (m.core.partitions.find(where) for m in (leader, follower) if m.core)
            assert led is not None
            assert copied is not None
            for _ in range(100):  # for longer than the leader waits for the lost answer
                append_records(led, [Record(key=None, value=b"v")])
                await trio.sleep(0.05)
            assert led.log_end_offset > copied.log_end_offset
            assert led.high_watermark <= copied.log_end_offset
            nursery.cancel_scope.cancel()

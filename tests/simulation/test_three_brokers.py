"""Three real brokers on a simulated network: replication, elections, transactions."""

import trio

from tests.simulation.world import World

TOPIC = "t"


async def test_a_record_is_on_every_replica() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.start()
        async with world.producer() as producer:
            sent = await producer.send(TOPIC, b"v", partition=0)
            await sent
        async with world.consumer() as consumer:
            consumer.assign([(TOPIC, 0)])
            await consumer.seek_to_beginning()
            assert [record.value for record in await consumer.poll()] == [b"v"]
        await trio.sleep(1)
        for machine in world.machines.values():
            assert b"v" in machine.disk.bytes_of("/data/t-0/00000000000000000000.log")
        nursery.cancel_scope.cancel()


async def test_records_are_there_after_their_leader_was_killed_again_and_again() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=2)
        await world.start()
        acknowledged: list[bytes] = []
        async with world.producer() as producer:
            for number in range(60):
                if number % 10 == 5:
                    leader = world.leader_of(TOPIC, 0)
                    world.machines[leader].kill()
                    nursery.start_soon(world.restart_after, leader, 4.0)
                value = b"%d" % number
                await (await producer.send(TOPIC, value, partition=0))
                acknowledged.append(value)
        await trio.sleep(10)
        async with world.consumer() as consumer:
            consumer.assign([(TOPIC, 0)])
            await consumer.seek_to_beginning()
            found: list[bytes | None] = []
            while len(found) < len(acknowledged):
                found += [record.value for record in await consumer.poll()]
        assert found == acknowledged
        world.check_replicas(TOPIC, 0)
        nursery.cancel_scope.cancel()

"""Replicas whose stored data is damaged or gone: others lead, and they are fetched anew."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import trio

from odradek.broker.partitions.partition import Partition
from odradek.broker.values.topic_partition import TopicPartition
from odradek.client import OdradekError
from tests.simulation.machine import DIRECTORY, Machine
from tests.simulation.world import World

TOPIC = "t"
WHERE = TopicPartition(TOPIC, 0)
HERE = f"{DIRECTORY}/{WHERE}"
SEGMENT = f"{HERE}/00000000000000000000.log"
MAGIC_AT = 16
"""The place of the magic byte in a batch."""
VALUES = [b"%d" % number for number in range(20)]


@asynccontextmanager
async def three_brokers(seed: int, **properties: str) -> AsyncIterator[World]:
    """Run three brokers with some records in one partition."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=seed, properties=properties)
        await world.start()
        await produce(world, VALUES)
        yield world
        nursery.cancel_scope.cancel()


async def produce(world: World, values: list[bytes]) -> None:
    async with world.producer() as producer:
        for value in values:
            await (await producer.send(TOPIC, value, partition=0))


async def consume(world: World, count: int) -> list[bytes | None]:
    async with world.consumer() as consumer:
        consumer.assign([WHERE])
        await consumer.seek_to_beginning()
        found: list[bytes | None] = []
        with trio.fail_after(60):
            while len(found) < count:
                found += [record.value for record in await consumer.poll()]
        return found


def replica(machine: Machine) -> Partition:
    assert machine.core is not None
    found = machine.core.partitions.find(WHERE)
    assert found is not None
    return found


async def all_in_sync(world: World) -> None:
    with trio.fail_after(60):
        while True:
            image = world.image().partition(*WHERE)
            assert image is not None
            if image.leader != -1 and len(image.isr) == 3:
                return
            await trio.sleep(0.1)


async def eligible(world: World, machine: Machine, expected: bool) -> None:
    """Wait until a broker may be elected, or may not."""
    with trio.fail_after(10):
        while True:
            image = world.image().topics[WHERE.topic].partitions[WHERE.partition]
            if (machine.node_id in (*image.isr, *image.elr)) is expected:
                return
            await trio.sleep(0.001)


def is_set_aside(machine: Machine) -> bool:
    return any(name.endswith(".set-aside") for name in machine.disk.listdir(DIRECTORY))


async def damage(machine: Machine) -> None:
    """Have a broker find a replica damaged, as the scrubber does."""
    assert machine.core is not None
    await machine.core.partitions.take_offline(replica(machine), "a bit has flipped")


async def test_a_damaged_follower_is_fetched_anew() -> None:
    """It may not be elected until it has all records again."""
    async with three_brokers(1) as world:
        leader = world.leader_of(*WHERE)
        machine = next(m for m in world.machines.values() if m.node_id != leader)
        await damage(machine)
        await eligible(world, machine, False)
        await eligible(world, machine, True)
        assert is_set_aside(machine)
        assert replica(machine).log_end_offset == len(VALUES)
        await all_in_sync(world)
        assert world.leader_of(*WHERE) == leader
        world.check_replicas(*WHERE)
        await produce(world, [b"more"])
        assert await consume(world, 21) == [*VALUES, b"more"]


async def test_a_damaged_leader_hands_over_and_is_fetched_anew() -> None:
    async with three_brokers(2) as world:
        machine = world.machines[world.leader_of(*WHERE)]
        await damage(machine)
        await produce(world, [b"more"])
        assert world.leader_of(*WHERE) != machine.node_id
        await all_in_sync(world)
        assert is_set_aside(machine)
        assert await consume(world, 21) == [*VALUES, b"more"]
        await trio.sleep(1)
        world.check_replicas(*WHERE)


async def test_a_leader_in_which_a_consumer_finds_damage_hands_over_and_is_fetched_anew() -> None:
    """It went on leading until the scrubber came by, once a day."""
    async with three_brokers(8, **{"log.roll.ms": "1"}) as world:
        machine = world.machines[world.leader_of(*WHERE)]
        first, *_ = machine.disk.files(HERE, ".log")
        machine.disk.damage(f"{HERE}/{first}", MAGIC_AT)
        with suppress(OdradekError):  # a consumer that meets the damage is told so
            await consume(world, len(VALUES))
        await trio.sleep(3)
        await all_in_sync(world)
        assert is_set_aside(machine)
        assert world.leader_of(*WHERE) != machine.node_id
        assert await consume(world, len(VALUES)) == VALUES
        world.check_replicas(*WHERE)


async def test_a_replica_that_is_damaged_at_the_start_is_fetched_anew() -> None:
    async with three_brokers(3) as world:
        machine = world.machines[world.leader_of(*WHERE)]
        await machine.stop()
        file = machine.disk.open(SEGMENT)
        await file.truncate(100)
        await file.fsync()
        file.close()
        await world.restart(machine.node_id)
        await trio.sleep(2)
        await all_in_sync(world)
        assert is_set_aside(machine)
        assert await consume(world, 20) == VALUES
        world.check_replicas(*WHERE)


async def test_a_replica_with_bit_rot_does_not_lead_after_a_power_failure() -> None:
    """It may look like a torn write. Seen: the log was cut there, and was elected."""
    async with three_brokers(9, **{"log.roll.ms": "1"}) as world:
        machine = world.machines[world.leader_of(*WHERE)]
        others = [m for m in world.machines.values() if m is not machine]
        first, *_ = machine.disk.files(HERE, ".log")
        machine.disk.damage(f"{HERE}/{first}", 65)
        machine.lose_power()
        for other in others:
            other.kill()
        await trio.sleep(10)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.restart, machine.node_id)
            await trio.sleep(20)
            for other in others:
                nursery.start_soon(world.restart, other.node_id)
        assert await consume(world, len(VALUES)) == VALUES
        await all_in_sync(world)
        assert is_set_aside(machine)
        world.check_replicas(*WHERE)


async def test_a_replica_that_begins_anew_has_files_of_its_own() -> None:
    """Recovery had opened some of them, and found the damage in a later one.

    Seen: the new replica wrote to them. Its records were gone when the broker was restarted.
    """
    async with three_brokers(7, **{"log.roll.ms": "1"}) as world:
        machine = next(m for m in world.machines.values() if m.node_id != world.leader_of(*WHERE))
        _, second, *_ = machine.disk.files(HERE, ".log")
        machine.disk.damage(f"{HERE}/{second}", 65)
        await damage(machine)
        machine.kill()
        await world.restart(machine.node_id)
        await trio.sleep(2)
        await all_in_sync(world)
        assert is_set_aside(machine)
        world.check_replicas(*WHERE)


async def test_a_replica_whose_directory_is_gone_does_not_lead_with_an_empty_log() -> None:
    async with three_brokers(4) as world:
        machine = world.machines[world.leader_of(*WHERE)]
        others = [m for m in world.machines.values() if m is not machine]
        for each in (*others, machine):
            await each.stop()
        await machine.disk.rmtree(HERE)
        await machine.disk.fsync_dir(DIRECTORY)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.restart, machine.node_id)
            await trio.sleep(20)
            for other in others:
                nursery.start_soon(world.restart, other.node_id)
        assert await consume(world, 20) == VALUES
        await all_in_sync(world)
        world.check_replicas(*WHERE)


async def test_a_damaged_replica_without_others_in_sync_is_left_as_it_is() -> None:
    async with three_brokers(5, **{"min.insync.replicas": "1"}) as world:
        machine = world.machines[world.leader_of(*WHERE)]
        for other in world.machines.values():
            if other is not machine:
                other.kill()
        await trio.sleep(20)
        await produce(world, [b"more"])
        before = machine.disk.bytes_of(SEGMENT)
        image = world.image().partition(*WHERE)
        await damage(machine)
        for other in world.machines.values():
            if other is not machine:
                await world.restart(other.node_id)
        await trio.sleep(20)
        assert world.image().partition(*WHERE) == image
        assert machine.disk.bytes_of(SEGMENT) == before
        assert not is_set_aside(machine)


async def test_a_topic_whose_directories_a_power_failure_took_everywhere_is_led_again() -> None:
    """With log.flush=os new directories are in the page caches only; the power failure explains it.

    Seen: the last leader kept its partition offline, as if a person had removed the directory.
    """
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=6, properties={"log.flush": "os"})
        await world.start()
        await world.all_registered()
        await trio.sleep(1)  # until each broker knows that
        async with world.admin() as admin:
            await admin.create_topic(TOPIC, partitions=1, replication_factor=3)
        for machine in world.machines.values():
            machine.lose_power()
        for machine in world.machines.values():
            await machine.ended()
        leader = world.leader_of(TOPIC, 0)
        for node in world.machines:
            if node != leader:
                await world.restart(node)
        await trio.sleep(20)  # until the leader is the only one that is relied on
        await world.restart(leader)
        await trio.sleep(20)
        assert world.leader_of(TOPIC, 0) == leader
        async with world.producer() as producer:
            with trio.fail_after(20):
                await (await producer.send(TOPIC, b"w", partition=0))
        nursery.cancel_scope.cancel()
